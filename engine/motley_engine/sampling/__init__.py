"""Logits to token ids, on rank 0 only."""
