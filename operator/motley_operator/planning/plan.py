"""Plans a service on given cards: the planner's answer as placed groups, its refusals in the object's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from motley_operator.api.document import InputError
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.spec_topology import GroupSpec
from motley_operator.planning.selection import CardPool
from motley_operator.planning.serving import serving_of
from motley_operator.render.model import Group, cut_into_slots
from motley_planner.inventory import Card
from motley_planner.memory import Serving
from motley_planner.model_facts import ModelError, ModelFacts
from motley_planner.plan import Plan
from motley_planner.request import Auto, PlanRefusedError, PlanRequest, Ratio
from motley_planner.solve import plan_replica
from motley_planner.source_errors import SourceError
from motley_planner.sources import model_facts, resolve_model

FIELDS: Mapping[str, str] = {
    "--rank-gpu-id": "spec.topology",
    "--rank-gpu-memory-mib": "budgets",
    "--rank-tp-ratio": "spec.topology.groups[].ranks[].shareUnits",
    "--rank-vocab-ratio": "the vocabulary's split",
    "--context-length": "spec.model.maxModelLength",
    "--dtype": "spec.model.dtype",
    "--tp-size": "ranks",
    "--chunked-prefill-size": "spec.engine.extraArgs --chunked-prefill-size",
    "--max-running-requests": "spec.engine.extraArgs --max-running-requests",
    "--page-size": "spec.engine.extraArgs --page-size",
}
"""Where an object states what the planner calls by a flag."""


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model on this machine: its sizes, and the bytes of its weight files."""

    facts: ModelFacts
    file_bytes: int


def locate_model(uri: str, cache_dir: Path | None = None, weights: bool = True) -> LocatedModel:
    """Find a model and read its sizes; ``weights`` off fetches only what planning needs. Raises InputError."""
    try:
        resolved = resolve_model(uri, cache_dir, weights)
        return LocatedModel(model_facts(resolved), sum(path.stat().st_size for path in resolved.files))
    except (SourceError, ModelError, OSError) as error:
        raise InputError(str(error)) from error


def plan_cards(facts: ModelFacts, cards: tuple[Card, ...], serving: Serving, ratio: Ratio | Auto) -> Plan:
    """Plan of one replica on ``cards``. Weights in ``ratio`` are taken as they are; ``auto`` weighs ranks by their
    budgets, and cuts MLP and vocabulary by the same weights or evenly, whichever leaves the largest pool (attention
    comes in coarse units, so following its weights is not always best). Raises PlanRefusedError."""
    budgets = tuple(card.total_mib for card in cards) if cards[0].kind == "cpu" else ()
    request = PlanRequest(facts, cards, serving, budgets_mib=budgets, ratio=ratio)
    if len(cards) == 1:
        return plan_replica(replace(request, ratio=None))
    if ratio != "auto" and len(set(ratio)) == 1:
        # equal shares need no more than the smallest budget of anyone
        return plan_replica(replace(request, ratio=None, budgets_mib=(min(budgets),) if budgets else ()))
    if ratio != "auto":
        return plan_replica(request)
    even = (1,) * len(cards)
    families: tuple[tuple[Ratio, Ratio | Auto], ...] = (((), ()), ((), "auto"), (even, ()), (even, "auto"))
    plans = [plan_replica(replace(request, mlp_ratio=mlp, vocab_ratio=vocab)) for mlp, vocab in families]
    return max(plans, key=lambda plan: plan.predicted["pool_tokens"].value)


def place_service(service: InferenceService, facts: ModelFacts, pool: CardPool) -> tuple[Group, ...]:
    """Take cards from ``pool`` and plan every group of ``service``. Raises InputError; plans may be infeasible."""
    if service.spec.topology.mode == "Manual":
        return tuple(_manual_group(service, facts, pool, group) for group in service.spec.topology.groups)
    cards = pool.take_auto(service)
    plan = _planned(service, facts, cards, "auto")
    members = [member for member, _ in plan.decision.groups()] or [""]
    return tuple(_placed(member or "main", plan, member, cards) for member in members)


def _manual_group(service: InferenceService, facts: ModelFacts, pool: CardPool, group: GroupSpec) -> Group:
    cards = pool.take_group(service, group)
    plan = _planned(service, facts, cards, tuple(rank.share_units for rank in group.ranks))
    members = [member for member, _ in plan.decision.groups()] or [""]
    return _placed(group.name, plan, members[0], cards)


def _planned(service: InferenceService, facts: ModelFacts, cards: tuple[Card, ...], ratio: Ratio | Auto) -> Plan:
    try:
        return plan_cards(facts, cards, serving_of(service, facts, cards[0].kind), ratio)
    except PlanRefusedError as error:
        lines = [f"{service.metadata.name}: {in_object_words(message)}" for message in error.messages]
        raise InputError("\n".join(lines)) from error


def in_object_words(message: str) -> str:
    """A planner message with flags replaced by the fields that state them."""
    for flag in sorted(FIELDS, key=len, reverse=True):
        message = message.replace(flag, FIELDS[flag])
    return message


def infeasible(groups: Iterable[Group]) -> list[Group]:
    """Groups whose plan does not fit."""
    return [group for group in groups if group.plan.verdict != "feasible"]


def _placed(name: str, plan: Plan, member: str, cards: tuple[Card, ...]) -> Group:
    nodes = {card.uuid: card.node or "localhost" for card in cards}
    slots = cut_into_slots(plan.group(member), nodes) if plan.verdict == "feasible" else ()
    return Group(name=name, role="Unified", plan=plan, member=member, slots=slots)
