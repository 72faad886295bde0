"""Checkpoint readers and the copy of each rank slice into its parameters."""
