"""Cards the planner may use, and how people name them. Adapters (NVML, YAML, pretend budgets) end here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import yaml

from motley_planner.strict_json import JsonError, decode

CardKind = Literal["cuda", "cpu"]


class InventoryError(ValueError):
    """A card that is not there, or an inventory that cannot be read. The text names the flag or field at fault."""


@dataclass(frozen=True, slots=True)
class Card:
    """One device. ``total_mib`` is NVML's total, never the marketing size; ``used_mib`` what others hold of it.

    ``cuda_index`` is the index under which this process's CUDA sees the card (None: masked, remote or no CUDA).
    """

    uuid: str
    product: str
    total_mib: int
    used_mib: int = 0
    kind: CardKind = "cuda"
    cuda_index: int | None = None
    pci_bus_id: str = ""
    compute_capability: str = ""
    node: str = ""

    def __post_init__(self) -> None:
        if not self.uuid.strip():
            raise InventoryError("uuid: must not be empty")
        if self.total_mib < 1:
            raise InventoryError(f"total_mib: {self.total_mib} MiB of {self.uuid} is not positive")
        if not 0 <= self.used_mib <= self.total_mib:
            raise InventoryError(f"used_mib: {self.used_mib} MiB of {self.uuid} is not within its {self.total_mib} MiB")

    def __str__(self) -> str:
        index = "-" if self.cuda_index is None else str(self.cuda_index)
        return f"{index} {self.uuid} {self.product} {self.total_mib} MiB"


@dataclass(frozen=True, slots=True)
class Node:
    """One machine and its cards."""

    name: str
    cards: tuple[Card, ...]
    driver: str = ""

    def __post_init__(self) -> None:
        uuids = [card.uuid for card in self.cards]
        for uuid in uuids:
            if uuids.count(uuid) > 1:
                raise InventoryError(f"cards: {uuid} is listed twice on node {self.name}")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The machines a plan may use."""

    nodes: tuple[Node, ...]

    @property
    def cards(self) -> tuple[Card, ...]:
        """All cards with their node's name."""
        return tuple(replace(card, node=node.name) for node in self.nodes for card in node.cards)


def read_inventory(path: Path) -> Inventory:
    """A hand-written inventory: ``nodes: [{name, driver, cards: [{uuid, product, total_mib, ...}]}]`` in YAML.

    InventoryError names the field at fault.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InventoryError(f"{path}: cannot be read as YAML: {error}") from error
    try:
        return decode(Inventory, document)
    except JsonError as error:
        raise InventoryError(f"{path}: {error}") from error


def pretend_cards(budgets_mib: Sequence[int]) -> tuple[Card, ...]:
    """CPU ranks with given budgets in place of cards."""
    return tuple(Card(f"CPU-{rank}", "CPU", mib, kind="cpu") for rank, mib in enumerate(budgets_mib))


def resolve_cards(names: Sequence[str], cards: Sequence[Card], world: int, flag: str = "--rank-gpu-id") -> list[Card]:
    """The card of every rank: ``names`` are CUDA indices, UUIDs or unambiguous UUID prefixes, also mixed.

    InventoryError names the flag and lists the cards present.
    """
    if len(names) != world:
        noun = "entry" if len(names) == 1 else "entries"
        raise InventoryError(f"{flag}: {len(names)} {noun} for --tp-size {world}; give one GPU per rank")
    return [_resolve(name.strip(), cards, flag) for name in names]


def _resolve(name: str, cards: Sequence[Card], flag: str) -> Card:
    present = f"present: {', '.join(str(card) for card in cards) or 'none'}"
    if name.removeprefix("-").isdecimal():
        if name.startswith("-"):
            raise InventoryError(f"{flag}: {name} is negative; give a CUDA index or a UUID; {present}")
        found = [card for card in cards if card.cuda_index == int(name)]
    else:
        found = [card for card in cards if name and card.uuid == name]
        found = found or [card for card in cards if name and card.uuid.startswith(name)]
    if not found:
        raise InventoryError(f'{flag}: no GPU "{name}"; {present}')
    if len(found) > 1:
        raise InventoryError(f'{flag}: "{name}" fits {len(found)} GPUs; give more of the UUID; {present}')
    return found[0]
