"""Per-row memory of the sampler: which ids a row has seen, and its bias. Lives on the device, updated after each step.

The host may not know the last id yet when the next step starts (overlap), so counts are never rebuilt from the host.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from motley_engine.executor.step import IntArray, RowSampling
from motley_engine.sampling.upload import upload

Ints: TypeAlias = npt.NDArray[np.signedinteger[Any]]

BYTES_PER_ENTRY = 5
"""Device bytes per row and vocabulary entry: an int32 count and a flag."""


class RowStates:
    """State of ``rows`` rows over a vocabulary of ``vocab`` ids."""

    def __init__(self, rows: int, vocab: int, device: torch.device) -> None:
        self._counts = torch.zeros(rows, vocab, dtype=torch.int32, device=device)
        self._in_prompt = torch.zeros(rows, vocab, dtype=torch.bool, device=device)
        # columns: repetition, frequency, presence
        self._penalties = torch.zeros(rows, 3, dtype=torch.float32, device=device)
        self._biases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._device = device

    def set_row(self, state: RowSampling) -> None:
        """Start ``state.row`` afresh from the ids seen so far."""
        row = state.row
        self._in_prompt[row].zero_()
        self._in_prompt[row].index_fill_(0, self._ids(state.prompt), True)
        ids, counts = np.unique(state.output, return_counts=True)
        self._counts[row].zero_()
        self._counts[row].index_copy_(0, self._ids(ids), upload(counts.astype(np.int32), self._device))
        penalties = np.array((state.repetition, state.frequency, state.presence), np.float32)
        self._penalties[row] = upload(penalties, self._device)
        self._biases.pop(row, None)
        if len(state.bias_ids):
            values = upload(state.bias_values.astype(np.float32), self._device)
            self._biases[row] = (self._ids(state.bias_ids), values)

    def apply(self, logits: torch.Tensor, at: Ints, rows: IntArray) -> None:
        """Penalise and bias ``logits[at[i]]`` by the state of ``rows[i]``, in place.

        Repetition divides positive and multiplies negative logits of every id of prompt or output; frequency subtracts
        once per occurrence in the output, presence once per id in it; the bias is added last.
        """
        places, table = self._ids(at), self._ids(rows)
        counts = self._counts[table]
        repetition, frequency, presence = self._penalties[table].unsqueeze(-1).unbind(1)
        x = logits[places]
        seen = self._in_prompt[table] | (counts > 0)
        x = torch.where(seen, torch.where(x > 0, x / repetition, x * repetition), x)
        x -= frequency * counts + presence * (counts > 0)
        logits[places] = x
        for place, row in zip(at.tolist(), rows.tolist(), strict=True):
            if row in self._biases:
                ids, values = self._biases[row]
                logits[place].index_add_(0, ids, values)

    def count(self, rows: IntArray, ids: torch.Tensor) -> None:
        """Note that ``rows[i]`` has just produced ``ids[i]`` (int64, on the device)."""
        ones = torch.ones(len(rows), dtype=torch.int32, device=self._device)
        self._counts.index_put_((self._ids(rows), ids), ones, accumulate=True)

    def _ids(self, ids: Ints) -> torch.Tensor:
        return upload(ids.astype(np.int64), self._device)
