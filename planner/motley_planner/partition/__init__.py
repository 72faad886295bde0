"""The only code that computes a shard size: (dimension, unit, weights) in, sizes and offsets of all ranks out."""

from motley_planner.partition.gdn import conv_slices
from motley_planner.partition.heads import HeadGrid, HeadSplit, head_grid, heads_of, split_heads
from motley_planner.partition.kv_tokens import MAX_STRIPE, TokenOwnership, token_vector
from motley_planner.partition.model import (
    ACTIVATION_UNIT,
    VOCAB_UNIT,
    FamilyWeights,
    Grid,
    ModelPartition,
    Vectors,
    model_grid,
    partition_model,
    split_model,
)
from motley_planner.partition.units import (
    PartitionError,
    Shard,
    UnitTable,
    aligned_unit,
    reduce_vector,
    split_units,
)

__all__ = [
    "ACTIVATION_UNIT",
    "MAX_STRIPE",
    "VOCAB_UNIT",
    "FamilyWeights",
    "Grid",
    "HeadGrid",
    "HeadSplit",
    "ModelPartition",
    "PartitionError",
    "Shard",
    "TokenOwnership",
    "UnitTable",
    "Vectors",
    "aligned_unit",
    "conv_slices",
    "head_grid",
    "heads_of",
    "model_grid",
    "partition_model",
    "reduce_vector",
    "split_heads",
    "split_model",
    "split_units",
    "token_vector",
]
