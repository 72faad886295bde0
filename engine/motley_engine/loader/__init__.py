"""Checkpoint readers and the copy of each rank slice into its parameters."""

from motley_engine.loader.checkpoint import CheckpointReader, Piece
from motley_engine.loader.errors import CheckpointError
from motley_engine.loader.load import LoadReport, load_weights
from motley_engine.loader.open import open_checkpoint

__all__ = ["CheckpointError", "CheckpointReader", "LoadReport", "Piece", "load_weights", "open_checkpoint"]
