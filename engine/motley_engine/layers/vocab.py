"""Embedding and LM head with the vocabulary's rows cut over the ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from motley_engine.layers.build import Build
from motley_engine.loader.checkpoint import Piece
from motley_kernels.embedding import embedding


class VocabRows:
    """One rank's rows of a vocabulary matrix [rows, hidden]. Padded rows beyond the vocabulary are zero."""

    def __init__(self, build: Build, name: str) -> None:
        self._name = name
        self.shard = build.partition.vocab.shard(build.rank)
        self.weight = build.empty(self.shard.size, build.config.hidden_size)
        self.weight[self.shard.real :] = 0.0

    def pieces(self) -> Iterator[Piece]:
        real = self.shard.real
        if real:
            yield Piece(f"{self._name}.weight", self.weight[:real], 0, self.shard.start, self.shard.start + real)


class Embedding:
    """Token ids to hidden states: own rows, zeros for the rest, then the sum over the ranks."""

    def __init__(self, build: Build, rows: VocabRows) -> None:
        self._rows = rows
        self._comm = build.comm
        self._backend = build.backend
        # the factor is applied as a number of the model's type, as the checkpoints were trained
        self._scale = torch.tensor(build.config.embedding_scale, dtype=build.dtype).item()

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [T] to [T, hidden], the same on every rank."""
        rows = self._rows
        own = embedding(tokens, rows.weight, rows.shard.start, scale=self._scale, backend=self._backend)
        return self._comm.all_reduce(own)


class LMHead:
    """Hidden states to logits, gathered on rank 0. Tied to the embedding by sharing its rows."""

    def __init__(self, build: Build, rows: VocabRows) -> None:
        self._rows = rows
        self._comm = build.comm
        self._sizes = build.partition.vocab.sizes
        self._vocab_size = build.config.vocab_size
        self._softcap = build.config.logits_softcap

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """[N, hidden] to float32 [N, vocab_size] without padding on rank 0, None on the others."""
        whole = self._comm.gather_columns(F.linear(hidden, self._rows.weight), self._sizes)
        if whole is None:
            return None
        # only the last rank's tail is padding
        logits = whole[:, : self._vocab_size].float()
        if self._softcap:
            logits = self._softcap * torch.tanh(logits / self._softcap)
        return logits.contiguous()
