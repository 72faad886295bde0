"""Allocation routes: how a pod gets exactly its cards. One file per route."""

from __future__ import annotations

from collections.abc import Callable

from motley_operator.render.routes import none, runtime_class
from motley_operator.render.routes.grant import Grant, SlotRequest

ROUTES: dict[str, Callable[[SlotRequest], Grant]] = {
    "None": none.grant,
    "RuntimeClass": runtime_class.grant,
}

__all__ = ["ROUTES", "Grant", "SlotRequest"]
