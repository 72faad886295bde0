"""Log-probabilities of chosen, most likely and asked ids. They come from the model's raw logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from motley_engine.executor.step import IntArray, Logprobs
from motley_engine.sampling.upload import upload


@dataclass(frozen=True, slots=True)
class DeviceLogprobs:
    """``Logprobs`` still on the device: values and ids packed for one copy to the host.

    ``chosen`` float32 [N]; ``top_values`` float32 and ``top_ids`` int64 [N, K]; ``asked`` float32 [A], the asked ids'
    values of all positions one after the other, ``asked_counts`` how many belong to which position.
    """

    chosen: torch.Tensor
    top_values: torch.Tensor
    top_ids: torch.Tensor
    asked: torch.Tensor
    asked_counts: tuple[tuple[int, int], ...]

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.chosen, self.top_values, self.top_ids, self.asked

    def on_host(self, copies: tuple[torch.Tensor, ...]) -> Logprobs:
        """The result from host copies of ``tensors()``."""
        chosen, top_values, top_ids, asked = (copy.numpy() for copy in copies)
        by_position = {}
        start = 0
        for position, count in self.asked_counts:
            by_position[position] = asked[start : start + count]
            start += count
        return Logprobs(chosen, top_values, top_ids.astype(np.int32), by_position)


def logprobs(logits: torch.Tensor, ids: torch.Tensor, top: IntArray, asked: Mapping[int, IntArray]) -> DeviceLogprobs:
    """For float32 ``logits`` [N, V] and ``ids`` int64 [N]: as many top entries as the largest of ``top`` [N]."""
    norm = torch.logsumexp(logits, dim=1, keepdim=True)
    width = min(max(0, int(top.max(initial=0))), logits.shape[1])
    values, indices = torch.topk(logits, width, dim=1)
    positions = np.array([position for position, wanted in asked.items() for _ in wanted], np.int64)
    flat = np.array([token for wanted in asked.values() for token in wanted], np.int64)
    at, tokens = upload(positions, logits.device), upload(flat, logits.device)
    return DeviceLogprobs(
        chosen=(logits.gather(1, ids.unsqueeze(1)) - norm).squeeze(1),
        top_values=values - norm,
        top_ids=indices,
        asked=logits[at, tokens] - norm[at, 0],
        asked_counts=tuple((position, len(wanted)) for position, wanted in asked.items()),
    )


def joined(parts: list[DeviceLogprobs], starts: list[int]) -> DeviceLogprobs:
    """One result of consecutive chunks; ``starts[i]`` is the first position of ``parts[i]``. All have the same K."""
    return DeviceLogprobs(
        chosen=torch.cat([part.chosen for part in parts]),
        top_values=torch.cat([part.top_values for part in parts]),
        top_ids=torch.cat([part.top_ids for part in parts]),
        asked=torch.cat([part.asked for part in parts]),
        asked_counts=tuple(
            (start + position, count)
            for part, start in zip(parts, starts, strict=True)
            for position, count in part.asked_counts
        ),
    )
