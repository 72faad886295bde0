"""motley command line: thin commands with lazy imports and no logic."""
