"""Golden manifests: every case rendered and kept as YAML; ``python -m tests.golden`` in ``operator/`` rewrites them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.read import parse_services
from motley_operator.render.model import Group, Settings, cut_into_slots
from motley_operator.render.workload import render_service
from motley_planner.partition import Vectors
from motley_planner.plan import Decision, Plan, RankPlan, ReplicaPlan, StagePlan, Units

GOLDEN = Path(__file__).parent / "data" / "golden"
SETTINGS = Settings(image="registry.example.com/motley:default", model_bytes=48 * 1000**3)
CARDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{digit}" for digit in "abc")

MINIMAL = """
apiVersion: motley.dev/v1alpha1
kind: InferenceService
metadata: {name: chat}
spec: {model: {uri: "hf://Qwen/Qwen3-8B"}}
"""
EVERYTHING = """
apiVersion: motley.dev/v1alpha1
kind: InferenceService
metadata: {name: chat, namespace: team-a, uid: 1b4e28ba-2fa1-11d2-883f-0016d3cca427}
spec:
  model:
    uri: hf://Qwen/Qwen3-8B
    revision: v1
    servedName: qwen3
    tokenSecretRef: {name: hub, key: token}
    dtype: BFloat16
    maxModelLength: 32768
    cache: {type: PVC, claimName: models}
  engine:
    image: registry.example.com/motley:1
    imagePullPolicy: Always
    imagePullSecrets: [{name: registry}]
    extraArgs: [--max-running-requests=32]
    env: [{name: NCCL_DEBUG, value: INFO}]
    resources: {requests: {cpu: 4, memory: 16Gi}, limits: {memory: 32Gi}}
    sharedMemorySize: 4Gi
  placement:
    nodeSelector: {pool: gpu}
    tolerations: [{key: gpu, operator: Exists}]
    allocation: RuntimeClass
  drain: {terminationGracePeriodSeconds: 90, preStopSeconds: 20}
  networking:
    service: {type: LoadBalancer, port: 443, annotations: {lb: internal}}
    apiKeySecretRef: {name: keys, key: chat}
    fabric: RDMA
    interfaceName: eth0
  podTemplate:
    metadata: {labels: {team: a}, annotations: {note: b}}
    spec:
      priorityClassName: high
      containers: [{name: engine, env: [{name: NCCL_DEBUG, value: WARN}]}]
"""


def make_plan(cards: tuple[str, ...] = CARDS) -> Plan:
    """A plan with one unit more for rank 0 than for the others."""
    counts = (2, *(1 for _ in cards[1:]))
    units = Units(attn=sum(counts), mlp=sum(counts), vocab=sum(counts))
    ranks = tuple(RankPlan(uuid, count << 33, "triton") for uuid, count in zip(cards, counts, strict=True))
    stage = StagePlan((0, 36), ranks, Vectors(attn=counts, mlp=counts, vocab=counts), units)
    replica = ReplicaPlan("unified", 16, 0, "head", "nccl", (stage,))
    return Plan(inputs_hash="0" * 64, verdict="feasible", decision=Decision((replica,)))


def make_group(cards: tuple[str, ...], nodes: dict[str, str], name: str = "u0") -> Group:
    """A placed group on ``cards``."""
    plan = make_plan(cards)
    return Group(name, "Unified", plan, "u0", cut_into_slots(plan.group("u0"), nodes))


def read(text: str) -> InferenceService:
    return parse_services(text, "golden")[0]


def cases() -> dict[str, list[dict[str, Any]]]:
    """Manifests of every case by the name of its file."""
    pretend = ("CPU-0", "CPU-1")
    one_node = make_group(pretend, dict.fromkeys(pretend, "node-1"))
    two_nodes = make_group(CARDS, dict(zip(CARDS, ("node-1", "node-1", "node-2"), strict=True)))
    return {
        "none-minimal.yaml": render_service(read(MINIMAL), (one_node,), "None", SETTINGS),
        "runtime-class-everything.yaml": render_service(read(EVERYTHING), (two_nodes,), "RuntimeClass", SETTINGS),
    }


def text_of(manifests: list[dict[str, Any]]) -> str:
    """Multi-document YAML in the order of application, without aliases."""

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Plain.add_representer(str, text)
    return yaml.dump_all(manifests, Dumper=Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for case, manifests in cases().items():
        (GOLDEN / case).write_text(text_of(manifests), encoding="utf-8")
