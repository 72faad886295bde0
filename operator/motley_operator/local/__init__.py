"""motley up: the rendered pods run as local processes."""
