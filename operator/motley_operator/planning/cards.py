"""The cards of this machine: what NVML lists, pretend CPU budgets, or an inventory file. One of them, never a guess."""

from __future__ import annotations

from pathlib import Path

from motley_operator.api.document import InputError
from motley_planner.inventory import Card, InventoryError, pretend_cards, read_inventory
from motley_planner.nvml import local_node

MAX_PRETEND_MIB = 1 << 30
WAYS_OUT = (
    "give pretend budgets for CPU ranks with --cpu MIB[,MIB...], e.g. --cpu 1024,512, "
    "or describe the cards in a file and give --inventory FILE"
)


def find_cards(cpu: str | None, inventory: Path | None) -> tuple[Card, ...]:
    """Cards to plan with. ``cpu`` is the value of --cpu: one pretend budget in MiB per rank.

    Raises InputError when both sources are given, when one is faulty, or when this machine has no NVIDIA card.
    """
    if cpu is not None and inventory is not None:
        raise InputError("--cpu: excludes --inventory; give one of them")
    if cpu is not None:
        return pretend_cards(parse_budgets(cpu))
    try:
        if inventory is not None:
            return _listed(read_inventory(inventory).cards, f"{inventory}: lists no cards")
        return _listed(local_node().cards, "NVML lists no GPU on this machine")
    except InventoryError as error:
        if inventory is not None:
            raise InputError(f"--inventory {error}") from error
        raise InputError(f"no GPU found: {error}.\n{WAYS_OUT[0].upper()}{WAYS_OUT[1:]}") from error


def parse_budgets(text: str) -> list[int]:
    """MiB of every pretend card. Raises InputError naming the entry at fault."""
    budgets = []
    for entry in text.split(","):
        number = entry.strip()
        if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= MAX_PRETEND_MIB:
            raise InputError(f"--cpu: {entry!r} is not a budget; give MiB as whole numbers, e.g. --cpu 1024,512")
        budgets.append(int(number))
    return budgets


def _listed(cards: tuple[Card, ...], otherwise: str) -> tuple[Card, ...]:
    if not cards:
        raise InventoryError(otherwise)
    return cards
