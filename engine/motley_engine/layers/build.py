"""What every layer is built from: the model, the shards of all ranks, and where this rank's weights live."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from motley_engine.comm.collectives import Collectives
from motley_engine.config.model import ModelConfig
from motley_kernels import Backend
from motley_planner.partition import ModelPartition, Shard


class ShardMismatchError(ValueError):
    """A partition that does not fit the group of ranks or the model. The text names both figures."""


@dataclass(frozen=True, slots=True)
class Build:
    """One rank's building site. ShardMismatchError if the partition does not fit the group or the model."""

    config: ModelConfig
    partition: ModelPartition
    rank: int
    comm: Collectives
    dtype: torch.dtype
    device: torch.device
    backend: Backend

    def __post_init__(self) -> None:
        heads, config = self.partition.heads, self.config
        if (self.rank, self.partition.world) != (self.comm.rank, self.comm.world):
            raise ShardMismatchError(
                f"rank {self.rank} of a partition for {self.partition.world} ranks in a group where it is rank "
                f"{self.comm.rank} of {self.comm.world}"
            )
        for name, world in (("heads", heads.world), ("mlp", self.partition.mlp.world)):
            if world != self.partition.world:
                raise ShardMismatchError(f"{name}: shards for {world} ranks, vocabulary for {self.partition.world}")
        for name, cut, whole in (
            ("query heads", heads.q.total, config.num_q_heads),
            ("kv heads", heads.kv_shard(self.rank).total, config.num_kv_heads),
            ("MLP columns", self.partition.mlp.total, config.intermediate_size),
            ("vocabulary rows", self.partition.vocab.total, config.vocab_size),
        ):
            if cut != whole:
                raise ShardMismatchError(f"{name}: the partition cuts {cut}, the model has {whole}")

    def empty(self, *shape: int) -> torch.Tensor:
        """An unset parameter."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)


def scaled(shard: Shard, factor: int) -> Shard:
    """The same cut counted in smaller elements: heads to features, say."""
    return Shard(shard.rank, shard.start * factor, shard.size * factor, shard.total * factor)
