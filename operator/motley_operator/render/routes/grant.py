"""What a route is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"
"""Value that keeps the NVIDIA runtime from adding cards, whatever the image bakes in."""


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A pod that needs ``cards`` of ``node``."""

    node: str
    cards: tuple[str, ...]
    runtime_class_name: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What a route adds to the pod."""

    visible_devices: str
    device: str
    pod_spec: dict[str, Any] = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
