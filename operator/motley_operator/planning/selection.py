"""Which cards a service may have, and who has them already."""

from __future__ import annotations

import re

from motley_operator.api.base import parse_quantity
from motley_operator.api.document import InputError
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.spec_engine import GPUSelector
from motley_operator.api.spec_topology import GroupSpec
from motley_planner.inventory import Card

MIB = 1 << 20
VENDOR_WORDS = ("nvidia", "geforce", "tesla", "quadro")


class CardPool:
    """Cards that are handed out once. Every refusal names the service that holds the card."""

    def __init__(self, cards: tuple[Card, ...]) -> None:
        self._cards = cards
        self._holders: dict[str, str] = {}

    @property
    def pretend(self) -> bool:
        """Whether the cards are CPU budgets."""
        return bool(self._cards) and self._cards[0].kind == "cpu"

    def take_auto(self, service: InferenceService) -> tuple[Card, ...]:
        """Every free card that the service's selector allows, at most ``maxGPUs``: the largest, in listed order."""
        name, most = service.metadata.name, service.spec.topology.max_gpus
        free = [card for card in self._cards if card.uuid not in self._holders]
        if not free:
            holders = ", ".join(f"{uuid} by {holder}" for uuid, holder in self._holders.items())
            raise InputError(
                f"{name}: no card is left (held: {holders}); set spec.topology.maxGPUs on the objects, or add cards"
            )
        selector = service.spec.placement.gpu_selector
        allowed = free if selector is None or self.pretend else [card for card in free if allows(selector, card)]
        if not allowed:
            listed = "; ".join(str(card) for card in free)
            raise InputError(f"{name}: spec.placement.gpuSelector: selects none of the free cards: {listed}")
        chosen = sorted(allowed, key=lambda card: -card.total_mib)[:most]
        return self._hold(name, [card for card in allowed if card in chosen])

    def take_group(self, service: InferenceService, group: GroupSpec) -> tuple[Card, ...]:
        """The card of every rank of a hand-written group; pretend cards stand in for GPUs in order."""
        name = service.metadata.name
        if not self.pretend:
            return self._hold(name, [self._named(name, group, index) for index in range(len(group.ranks))])
        free = [card for card in self._cards if card.uuid not in self._holders]
        if len(free) < len(group.ranks):
            raise InputError(
                f"{name}: spec.topology.groups: {group.name} has {len(group.ranks)} ranks and {len(free)} pretend "
                f"cards are left; give one --cpu budget per rank"
            )
        return self._hold(name, free[: len(group.ranks)])

    def leftover(self) -> tuple[Card, ...]:
        """Cards that nobody took."""
        return tuple(card for card in self._cards if card.uuid not in self._holders)

    def _named(self, name: str, group: GroupSpec, index: int) -> Card:
        rank = group.ranks[index]
        if rank.gpu_uuid is None:
            raise InputError(
                f"{name}: spec.topology.groups: rank {rank.name} of {group.name} names no gpuUUID, so it runs on CPU; "
                f"give --cpu with one budget per rank"
            )
        for card in self._cards:
            if card.uuid == rank.gpu_uuid:
                return card
        present = ", ".join(str(card) for card in self._cards)
        raise InputError(f"{name}: spec.topology.groups: no GPU {rank.gpu_uuid}; present: {present}")

    def _hold(self, name: str, cards: list[Card]) -> tuple[Card, ...]:
        for card in cards:
            holder = self._holders.get(card.uuid)
            if holder is not None:
                who = "two of its ranks name it" if holder == name else f"{holder} has it"
                raise InputError(f"{name}: {card.uuid} cannot be used twice: {who}; give each rank its own card")
            self._holders[card.uuid] = name
        return tuple(cards)


def allows(selector: GPUSelector, card: Card) -> bool:
    """Whether a ``gpuSelector`` lets ``card`` through."""
    if selector.uuids and card.uuid not in selector.uuids:
        return False
    if card.uuid in selector.exclude_uuids or card.node in selector.exclude_nodes:
        return False
    if selector.products and product_slug(card.product) not in selector.products:
        return False
    if selector.min_memory is not None and card.total_mib * MIB < parse_quantity(selector.min_memory):
        return False
    least = selector.min_compute_capability
    return least is None or _version(card.compute_capability) >= _version(least)


def product_slug(product: str) -> str:
    """Slug of a product name: ``NVIDIA GeForce RTX 3090`` -> ``rtx-3090``."""
    words = re.findall(r"[a-z0-9]+", product.lower())
    return "-".join(word for word in words if word not in VENDOR_WORDS)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
