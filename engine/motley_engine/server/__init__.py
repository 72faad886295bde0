"""HTTP, tokenising and detokenising."""
