"""What the builders are given beside the object: the placed groups and the settings of the renderer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motley_operator.api.spec_topology import Role
from motley_planner.plan import Plan, ReplicaPlan

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Slot:
    """All ranks of a group on one node: one pod. ``cards`` are their UUIDs in rank order."""

    index: int
    node: str
    cards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One placed engine instance. ``member`` is its name inside ``plan``, ``name`` the one that people see."""

    name: str
    role: Role
    plan: Plan
    member: str
    slots: tuple[Slot, ...]

    @property
    def replica(self) -> ReplicaPlan:
        return self.plan.group(self.member)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the renderer itself decides. ``image`` runs where the object names none; ``http_port`` is the engine's port
    inside the pod; ``model_bytes`` (0 = unknown) sets how long a start may take."""

    image: str
    http_port: int = 8000
    model_bytes: int = 0


def cut_into_slots(replica: ReplicaPlan, node_of: Mapping[str, str]) -> tuple[Slot, ...]:
    """Slots of a replica: ranks in order, one slot per node. ``node_of`` maps every card's UUID to its node.

    Raises ValueError when the ranks of a node are not neighbours, which the engine's rank order does not allow.
    """
    by_node: dict[str, list[str]] = {}
    previous = None
    for rank in replica.ranks:
        node = node_of[rank.uuid]
        if node in by_node and node != previous:
            raise ValueError(f"node {node}: its ranks are not neighbours in the plan")
        by_node.setdefault(node, []).append(rank.uuid)
        previous = node
    return tuple(Slot(index, node, tuple(cards)) for index, (node, cards) in enumerate(by_node.items()))
