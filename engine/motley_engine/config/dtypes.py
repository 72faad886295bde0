"""Element types: what ``auto`` means, by name, so that nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from motley_engine.config.errors import ConfigError
from motley_planner.gguf_header import read_header
from motley_planner.inventory import Card
from motley_planner.sources import ResolvedModel, read_config

DtypeName = Literal["float32", "bfloat16", "float16"]

SIZES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
BF16_CAPABILITY = 8.0
"""Compute capability from which cards calculate in bfloat16."""
_GGUF_TYPES: Mapping[str, DtypeName] = {"F32": "float32", "F16": "float16"}


def choose_dtype(asked: str, model: ResolvedModel, cards: Sequence[Card]) -> DtypeName:
    """The type of weights and activations on ``cards``.

    ``auto`` is float32 on CPU. On CUDA it is the checkpoint's, with float32 reduced to bfloat16, and float16 instead of
    bfloat16 if a card cannot calculate in it. ConfigError if bfloat16 is asked of such a card.
    """
    old = [card for card in cards if card.compute_capability and float(card.compute_capability) < BF16_CAPABILITY]
    if asked == "bfloat16" and old:
        raise ConfigError(
            f"--dtype: bfloat16 needs compute capability {BF16_CAPABILITY}, but {old[0].uuid} {old[0].product} has "
            f"{old[0].compute_capability}; use float16"
        )
    if asked in SIZES:
        return asked  # type: ignore[return-value]
    if cards[0].kind == "cpu":
        return "float32"
    stored = checkpoint_dtype(model)
    if stored == "float16" or old:
        return "float16"
    return "bfloat16"


def checkpoint_dtype(model: ResolvedModel) -> DtypeName:
    """The type that the checkpoint keeps most weights in; bfloat16 where it is quantised or does not say."""
    if model.format == "gguf":
        return _GGUF_TYPES.get(read_header(model.path).tensors["blk.0.ffn_down.weight"].type_name, "bfloat16")
    config = read_config(model.path)
    named = _named(config) or _named(config.get("text_config") or {}) or "bfloat16"
    if named not in SIZES:
        raise ConfigError(f"--dtype: the checkpoint's type {named} is not served; give one of {', '.join(SIZES)}")
    return named  # type: ignore[return-value]


def _named(config: Mapping[str, Any]) -> str:
    return str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")
