"""Route ``None``: no GPU; the scheduler places by CPU and memory."""

from __future__ import annotations

from motley_operator.render.routes.grant import VOID, Grant, SlotRequest


def grant(request: SlotRequest) -> Grant:
    """Nothing to ask for, and cards that the image might bake in are kept away."""
    return Grant(visible_devices=VOID, device="cpu")
