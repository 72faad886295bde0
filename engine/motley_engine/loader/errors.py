"""What goes wrong with checkpoints."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint that is missing, damaged or does not fit the model. The text names the file or the tensor."""
