"""Rotary position embedding of one layer type."""

from __future__ import annotations

import torch

from motley_engine.config.model import RopeParams
from motley_kernels.rope import rope_angles


class Rotary:
    """Holds the frequencies on the device; gives the angles of a step."""

    def __init__(self, params: RopeParams, device: torch.device) -> None:
        self._inv_freq = torch.tensor(params.inv_freq, dtype=torch.float32, device=device)
        self._factor = params.attention_factor

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, float32 [T, rotary_dim / 2], for ``positions`` [T]."""
        return rope_angles(positions, self._inv_freq, self._factor)
