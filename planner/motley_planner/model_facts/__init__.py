"""Sizes of a model for planning: from a Hugging Face config or from a GGUF header."""

from motley_planner.model_facts.facts import (
    GdnFacts,
    LayerKind,
    ModelError,
    ModelFacts,
    ModelWeights,
    MoeFacts,
    QuantBlocks,
    Weights,
)
from motley_planner.model_facts.gguf import facts_from_gguf
from motley_planner.model_facts.hf import facts_from_hf_config

__all__ = [
    "GdnFacts",
    "LayerKind",
    "ModelError",
    "ModelFacts",
    "ModelWeights",
    "MoeFacts",
    "QuantBlocks",
    "Weights",
    "facts_from_gguf",
    "facts_from_hf_config",
]
