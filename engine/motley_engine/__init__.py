"""The engine: runs one uneven plan behind an OpenAI-compatible endpoint."""
