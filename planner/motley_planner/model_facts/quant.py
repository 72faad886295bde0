"""Storage of linear weights in a quantised Hugging Face checkpoint: bits, scales and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motley_planner.model_facts.facts import ModelError


@dataclass(frozen=True, slots=True)
class LinearStorage:
    """How a linear weight is stored: ``bits`` per parameter, and ``scale_bytes`` for each ``scale_group`` parameters.
    ``block`` is what may not be cut along the split dimension. ``skipped`` are module name parts left unquantised."""

    bits: int
    block: int = 1
    scale_group: int = 1
    scale_bytes: int = 0
    skipped: tuple[str, ...] = ()

    @property
    def quantised(self) -> bool:
        return self.block > 1 or self.bits < 16

    def bytes(self, params: int) -> int:
        """Stored bytes of ``params`` parameters with their scales."""
        return -(-params * self.bits // 8) + -(-params // self.scale_group) * self.scale_bytes

    def skips(self, module: str) -> bool:
        return any(module in name or name in module for name in self.skipped)


def linear_storage(config: Mapping[str, Any], dtype_size: int) -> LinearStorage:
    """The storage that ``quantization_config`` describes, or plain elements. ModelError names an unknown method."""
    quantisation = config.get("quantization_config")
    if quantisation is None:
        return LinearStorage(8 * dtype_size)
    if not isinstance(quantisation, Mapping):
        raise ModelError("quantization_config: must be an object")
    method = quantisation.get("quant_method")
    skipped = _names(quantisation, "modules_to_not_convert")
    if method == "fp8":
        rows, columns = _block(quantisation.get("weight_block_size") or (1, 1))
        scale_bytes = 4 if rows * columns > 1 else 0
        return LinearStorage(8, max(rows, columns), rows * columns, scale_bytes, skipped)
    if method in ("gptq", "awq"):
        bits, group = _integer(quantisation, "bits"), _integer(quantisation, "group_size")
        if group < 1:
            raise ModelError(f"quantization_config.group_size: {group} is not supported; needs groups of 32 to 256")
        return LinearStorage(bits, group, group, 2 + -(-bits // 8), skipped)
    raise ModelError(f"quantization_config.quant_method: {method!r} is not supported; known: fp8, gptq, awq")


def _integer(quantisation: Mapping[str, Any], name: str) -> int:
    value = quantisation.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"quantization_config.{name}: {value!r} is not an integer")
    return value


def _names(quantisation: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = quantisation.get(name) or ()
    if not isinstance(value, list | tuple):
        raise ModelError(f"quantization_config.{name}: {value!r} is not a list of names")
    return tuple(str(entry) for entry in value)


def _block(value: Any) -> tuple[int, int]:
    pair = isinstance(value, list | tuple) and len(value) == 2
    if not pair or not all(isinstance(size, int) and size > 0 for size in value):
        raise ModelError(f"quantization_config.weight_block_size: {value!r} is not a pair of positive integers")
    return value[0], value[1]
