"""The rules across fields, each written once: the CEL text for the API server beside the predicate that runs here.

Both see the object after defaulting, so a predicate may read defaulted fields and CEL may leave out ``has()`` for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from motley_operator.api.base import Schema, camel_case
from motley_operator.api.inferenceservice import InferenceService

MAX_NAME = 52
NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``at`` is the schema node that carries it (``""`` is the root, ``x[]`` the items of a list), ``field``
    the path below that node which an error names."""

    at: str
    field: str
    cel: str
    message: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with an object: the path of the field and what to do about it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def _ranks(spec: Any) -> Iterator[Any]:
    return (rank for group in spec.topology.groups for rank in group.ranks)


def _roles(topology: Any) -> set[str]:
    return {group.role for group in topology.groups}


RULES: tuple[Rule, ...] = (
    Rule(
        at="",
        field="metadata.name",
        cel=f"self.metadata.name.size() <= {MAX_NAME} && self.metadata.name.matches('{NAME_PATTERN}')",
        message=f"must be at most {MAX_NAME} lower-case letters, digits and '-', "
        "beginning with a letter and not ending with '-'",
        holds=lambda o: len(o.metadata.name) <= MAX_NAME and bool(re.fullmatch(NAME_PATTERN, o.metadata.name)),
    ),
    Rule(
        at="spec",
        field="replicas",
        cel="self.topology.mode != 'Manual' || self.replicas == 1",
        message="must be 1 with topology.mode Manual: the listed groups are the whole service",
        holds=lambda s: s.topology.mode != "Manual" or s.replicas == 1,
    ),
    Rule(
        at="spec",
        field="topology.groups",
        cel="self.placement.allocation != 'None' || !has(self.topology.groups) || "
        "self.topology.groups.all(g, g.ranks.all(r, !has(r.gpuUUID)))",
        message="ranks may not name a gpuUUID with placement.allocation None, which uses no GPU",
        holds=lambda s: s.placement.allocation != "None" or all(r.gpu_uuid is None for r in _ranks(s)),
    ),
    Rule(
        at="spec",
        field="topology.groups",
        cel="self.placement.allocation == 'None' || !has(self.topology.groups) || "
        "self.topology.groups.all(g, g.ranks.all(r, has(r.gpuUUID)))",
        message="every rank needs a gpuUUID, unless placement.allocation is None",
        holds=lambda s: s.placement.allocation == "None" or all(r.gpu_uuid is not None for r in _ranks(s)),
    ),
    Rule(
        at="spec",
        field="rollout.canary",
        cel="!has(self.rollout.canary) || has(self.networking.gateway)",
        message="needs networking.gateway, which splits the traffic",
        holds=lambda s: s.rollout.canary is None or s.networking.gateway is not None,
    ),
    Rule(
        at="spec.topology",
        field="groups",
        cel="self.mode != 'Manual' || (has(self.groups) && self.groups.size() > 0)",
        message="mode Manual needs at least one group",
        holds=lambda t: t.mode != "Manual" or len(t.groups) > 0,
    ),
    Rule(
        at="spec.topology",
        field="groups",
        cel="self.mode != 'Auto' || !has(self.groups) || self.groups.size() == 0",
        message="mode Auto plans the groups itself; remove them or set mode: Manual",
        holds=lambda t: t.mode != "Auto" or len(t.groups) == 0,
    ),
    Rule(
        at="spec.topology",
        field="groups",
        cel="!has(self.groups) || "
        "self.groups.exists(g, g.role == 'Prefill') == self.groups.exists(g, g.role == 'Decode')",
        message="Prefill and Decode groups need each other",
        holds=lambda t: ("Prefill" in _roles(t)) == ("Decode" in _roles(t)),
    ),
    Rule(
        at="spec.topology",
        field="groups",
        cel="!has(self.groups) || !self.groups.exists(g, g.role == 'Unified') || "
        "self.groups.all(g, g.role == 'Unified')",
        message="Unified groups may not stand beside Prefill or Decode groups",
        holds=lambda t: "Unified" not in _roles(t) or len(_roles(t)) == 1,
    ),
    Rule(
        at="spec.scaling",
        field="minReplicas",
        cel="self.minReplicas <= self.maxReplicas",
        message="must not exceed maxReplicas",
        holds=lambda s: s.min_replicas <= s.max_replicas,
    ),
    Rule(
        at="spec.recovery",
        field="backoffBaseSeconds",
        cel="self.backoffBaseSeconds <= self.backoffMaxSeconds",
        message="must not exceed backoffMaxSeconds",
        holds=lambda r: r.backoff_base_seconds <= r.backoff_max_seconds,
    ),
    Rule(
        at="spec.drain",
        field="preStopSeconds",
        cel="self.preStopSeconds < self.terminationGracePeriodSeconds",
        message="must be less than terminationGracePeriodSeconds, or running requests get no time",
        holds=lambda d: d.pre_stop_seconds < d.termination_grace_period_seconds,
    ),
    Rule(
        at="spec.placement",
        field="gpuSelector",
        cel="self.allocation != 'None' || !has(self.gpuSelector)",
        message="selects GPUs, and allocation None uses none; remove one of them",
        holds=lambda p: p.allocation != "None" or p.gpu_selector is None,
    ),
    Rule(
        at="spec.model.cache",
        field="claimName",
        cel="self.type != 'PVC' || has(self.claimName)",
        message="is required with type PVC",
        holds=lambda c: c.type != "PVC" or c.claim_name is not None,
    ),
    Rule(
        at="spec.model.cache",
        field="path",
        cel="self.type != 'HostPath' || has(self.path)",
        message="is required with type HostPath",
        holds=lambda c: c.type != "HostPath" or c.path is not None,
    ),
    Rule(
        at="spec.engine.env[]",
        field="valueFrom",
        cel="!has(self.value) || !has(self.valueFrom)",
        message="excludes value; set one of them",
        holds=lambda e: e.value is None or e.value_from is None,
    ),
    Rule(
        at="spec.networking.tls",
        field="secretName",
        cel="self.mode != 'Secret' || has(self.secretName)",
        message="is required with mode Secret",
        holds=lambda t: t.mode != "Secret" or t.secret_name is not None,
    ),
)


def _attribute(node: Schema, key: str) -> Any:
    by_alias = {field.alias or camel_case(name): name for name, field in type(node).model_fields.items()}
    return getattr(node, by_alias[key])


def _nodes(node: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    if node is None:
        return
    if not steps:
        yield path, node
        return
    key, below = steps[0], steps[1:]
    child = _attribute(node, key.removesuffix("[]"))
    prefix = f"{path}.{key.removesuffix('[]')}" if path else key.removesuffix("[]")
    if not key.endswith("[]"):
        yield from _nodes(child, below, prefix)
        return
    for index, item in enumerate(child):
        yield from _nodes(item, below, f"{prefix}[{index}]")


def broken_rules(service: InferenceService) -> list[Fault]:
    """Faults of every rule that ``service`` breaks, in the order of the table."""
    faults: list[Fault] = []
    for rule in RULES:
        for path, node in _nodes(service, rule.at.split(".") if rule.at else [], ""):
            if not rule.holds(node):
                faults.append(Fault(f"{path}.{rule.field}" if path else rule.field, rule.message))
    return faults
