"""Routes, one file per API."""
