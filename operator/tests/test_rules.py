"""Each rule refuses what it is for, naming the field, and lets the neighbouring valid object through."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from motley_operator.api.read import InvalidObjectError, parse_service
from motley_operator.api.rules import RULES

JSON = dict[str, Any]
GPU_A = "GPU-00000000-0000-0000-0000-00000000000a"
RANK = {"name": "r0", "shareUnits": 2, "gpuUUID": GPU_A}
CPU_RANK = {"name": "r0", "shareUnits": 2}


def manual(*groups: JSON, allocation: str = "Auto", **spec: Any) -> JSON:
    return {"topology": {"mode": "Manual", "groups": list(groups)}, "placement": {"allocation": allocation}, **spec}


def group(name: str = "main", role: str = "Unified", rank: JSON | None = None) -> JSON:
    return {"name": name, "role": role, "ranks": [rank or RANK]}


PREFILL, DECODE = group("p", "Prefill"), group("d", "Decode")
GATEWAY = {"gateway": {"parentRefs": [{"name": "edge"}]}}
ENV_REFERENCE = {"secretKeyRef": {"name": "s", "key": "k"}}

# spec that breaks one rule, path that the error names, neighbour that breaks none
CASES: list[tuple[JSON, str, JSON]] = [
    (manual(group(), replicas=2), "spec.replicas", manual(group(), replicas=1)),
    (
        manual(group(rank=RANK), allocation="None"),
        "spec.topology.groups",
        manual(group(rank=CPU_RANK), allocation="None"),
    ),
    (manual(group(rank=CPU_RANK)), "spec.topology.groups", manual(group(rank=RANK))),
    (
        {"rollout": {"canary": {"weight": 5}}},
        "spec.rollout.canary",
        {"rollout": {"canary": {"weight": 5}}, "networking": GATEWAY},
    ),
    ({"topology": {"mode": "Manual"}}, "spec.topology.groups", manual(group())),
    ({"topology": {"mode": "Manual", "groups": []}}, "spec.topology.groups", manual(group())),
    ({"topology": {"groups": [group()]}}, "spec.topology.groups", {"topology": {"groups": []}}),
    (manual(PREFILL), "spec.topology.groups", manual(PREFILL, DECODE)),
    (manual(DECODE), "spec.topology.groups", manual(PREFILL, DECODE)),
    (manual(PREFILL, DECODE, group()), "spec.topology.groups", manual(group(), group("two"))),
    (
        {"scaling": {"minReplicas": 3, "maxReplicas": 2}},
        "spec.scaling.minReplicas",
        {"scaling": {"minReplicas": 2, "maxReplicas": 2}},
    ),
    (
        {"recovery": {"backoffBaseSeconds": 700}},
        "spec.recovery.backoffBaseSeconds",
        {"recovery": {"backoffBaseSeconds": 600}},
    ),
    ({"drain": {"preStopSeconds": 60}}, "spec.drain.preStopSeconds", {"drain": {"preStopSeconds": 59}}),
    (
        {"placement": {"allocation": "None", "gpuSelector": {}}},
        "spec.placement.gpuSelector",
        {"placement": {"gpuSelector": {}}},
    ),
    (
        {"model": {"cache": {"type": "PVC"}}},
        "spec.model.cache.claimName",
        {"model": {"cache": {"type": "PVC", "claimName": "x"}}},
    ),
    (
        {"model": {"cache": {"type": "HostPath"}}},
        "spec.model.cache.path",
        {"model": {"cache": {"type": "HostPath", "path": "/models"}}},
    ),
    (
        {"engine": {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1", "valueFrom": ENV_REFERENCE}]}},
        "spec.engine.env[1].valueFrom",
        {"engine": {"env": [{"name": "B", "valueFrom": ENV_REFERENCE}]}},
    ),
    (
        {"networking": {"tls": {"mode": "Secret"}}},
        "spec.networking.tls.secretName",
        {"networking": {"tls": {"mode": "Secret", "secretName": "cert"}}},
    ),
]


def merged(base: JSON, patch: JSON) -> JSON:
    result = copy.deepcopy(base)
    for key, value in patch.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if nested else value
    return result


@pytest.mark.parametrize(("broken", "path", "valid"), CASES, ids=[case[1] for case in CASES])
def test_rule_refuses_its_case_and_no_more(minimal: JSON, broken: JSON, path: str, valid: JSON) -> None:
    parse_service(merged(minimal, {"spec": valid}), "good")
    with pytest.raises(InvalidObjectError) as caught:
        parse_service(merged(minimal, {"spec": broken}), "bad")
    assert [fault.path for fault in caught.value.faults] == [path]


@pytest.mark.parametrize("name", ["Chat", "3chat", "chat-", "a.b", "a" * 53, ""])
def test_name_must_be_a_short_dns_label(minimal: JSON, name: str) -> None:
    with pytest.raises(InvalidObjectError, match=r"metadata.name: must be at most 52"):
        parse_service(merged(minimal, {"metadata": {"name": name}}), "bad")


def test_longest_name_is_accepted(minimal: JSON) -> None:
    assert parse_service(merged(minimal, {"metadata": {"name": "a" * 52}}), "good").metadata.name == "a" * 52


def test_every_rule_has_a_case(minimal: JSON) -> None:
    messages: set[str] = set()
    for spec in [case[0] for case in CASES]:
        with pytest.raises(InvalidObjectError) as caught:
            parse_service(merged(minimal, {"spec": spec}), "bad")
        messages |= {fault.message for fault in caught.value.faults}
    assert {rule.message for rule in RULES if rule.at} == messages
