"""The plan: one hashed JSON document that the operator places and the engine runs.

The decision holds only integers and strings. Predictions and explanations stay outside its hash, so a better text never
restarts a pod. A decision that contradicts itself cannot be constructed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Literal

from motley_planner.partition import MAX_STRIPE, Vectors
from motley_planner.strict_json import JsonError, canonical, decode, parse, to_plain

PLANNER_VERSION = "1"

Verdict = Literal["feasible", "infeasible"]
Role = Literal["unified", "prefill", "decode"]
BindingCode = Literal[
    "memory", "bandwidth", "compute", "link", "grid", "kernel", "engine", "latency", "power", "policy"
]


class PlanError(ValueError):
    """A plan that cannot be read or contradicts itself. The text names the field and the fault."""


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One rank: its card (a GPU UUID, or ``CPU-n`` for a CPU rank), all the bytes it may use, and its kernel set."""

    uuid: str
    budget_bytes: int
    kernels: str

    def __post_init__(self) -> None:
        _require(bool(self.uuid.strip()), "uuid: must not be empty")
        _require(self.budget_bytes > 0, f"budget_bytes: {self.budget_bytes} is not positive")


@dataclass(frozen=True, slots=True)
class Units:
    """Units of every family of the model; 0 where it lacks the family."""

    attn: int
    mlp: int
    vocab: int
    gdn: int = 0
    expert: int = 0


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Layers [lo, hi) on a tensor-parallel group. ``vectors`` are units per rank and sum to ``units``."""

    layers: tuple[int, int]
    ranks: tuple[RankPlan, ...]
    vectors: Vectors
    units: Units

    def __post_init__(self) -> None:
        _require(0 <= self.layers[0] < self.layers[1], f"layers: {list(self.layers)} is no range")
        _require(bool(self.ranks), "ranks: must not be empty")
        for item in fields(Units):
            _check_vector(item.name, getattr(self.vectors, item.name), getattr(self.units, item.name), len(self.ranks))
        _check_tokens(self.vectors.kv_tokens, len(self.ranks))


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One replica or role. ``min_pool_tokens`` is what its KV pool must hold at least, or it must not start."""

    role: Role
    min_pool_tokens: int
    state_slots: int
    kv_mode: Literal["head", "token"]
    comm: str
    stages: tuple[StagePlan, ...]

    def __post_init__(self) -> None:
        _require(bool(self.stages), "stages: must not be empty")
        _require(self.min_pool_tokens > 0, f"min_pool_tokens: {self.min_pool_tokens} is not positive")
        _require(self.state_slots >= 0, f"state_slots: {self.state_slots} is negative")
        expected = 0
        for index, stage in enumerate(self.stages):
            lo, hi = stage.layers
            _require(lo == expected, f"stages[{index}].layers: starts at {lo}, the stage before ends at {expected}")
            split = bool(stage.vectors.kv_tokens)
            _require(split == (self.kv_mode == "token"), f"stages[{index}].vectors.kv_tokens: contradicts kv_mode")
            expected = hi

    @property
    def ranks(self) -> tuple[RankPlan, ...]:
        """All ranks, stage by stage."""
        return tuple(rank for stage in self.stages for rank in stage.ranks)


@dataclass(frozen=True, slots=True)
class Decision:
    """What runs where. Equal decisions have equal hashes."""

    replicas: tuple[ReplicaPlan, ...]
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        used = Counter([rank.uuid for replica in self.replicas for rank in replica.ranks])
        used.update(self.unused)
        for uuid, count in used.items():
            _require(count == 1, f"replicas: card {uuid} is used {count} times; a card takes one rank")

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON, in hex."""
        return sha256(canonical(self).encode()).hexdigest()

    def groups(self) -> Iterator[tuple[str, ReplicaPlan]]:
        """Replicas with their group names: the role's initial and a count, such as u0, p0, d1."""
        seen: Counter[str] = Counter()
        for replica in self.replicas:
            yield f"{replica.role[0]}{seen[replica.role]}", replica
            seen[replica.role] += 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted value with the range that its uncertain inputs allow."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Binding:
    """What limits a choice: a code, and a sentence for people."""

    code: BindingCode
    text: str


@dataclass(frozen=True, slots=True)
class RankReport:
    """One rank as planned. Bytes by item; ``q_heads`` after and ``raw_q_heads`` before alignment to kv groups;
    ``tokens`` is what its own memory could hold, ``binds`` marks the rank that limits the pool."""

    uuid: str
    product: str
    q_heads: int
    raw_q_heads: int
    kv_heads: int
    mlp_columns: int
    expert_columns: int
    vocab_rows: int
    gdn_key_heads: int
    memory: Mapping[str, int]
    weight_bytes: int
    kv_bytes: int
    tokens: int
    binds: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the plan is as it is. ``near_miss``: changes that would each make an infeasible plan feasible. ``baselines``:
    pool tokens of other splits of the same model on the same cards."""

    binding: tuple[Binding, ...] = ()
    rejected: tuple[str, ...] = ()
    near_miss: tuple[str, ...] = ()
    baselines: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    ranks: tuple[RankReport, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan. ``inputs_hash`` covers everything the planner saw; an infeasible plan has no replicas."""

    inputs_hash: str
    verdict: Verdict
    decision: Decision
    predicted: Mapping[str, Estimate] = field(default_factory=dict)
    explain: Explanation = field(default_factory=Explanation)
    planner_version: str = PLANNER_VERSION

    def __post_init__(self) -> None:
        hexadecimal = re.fullmatch(r"[0-9a-f]{64}", self.inputs_hash)
        _require(bool(hexadecimal), f"inputs_hash: {self.inputs_hash!r} is no SHA-256 in hex")
        placed = bool(self.decision.replicas)
        _require(placed == (self.verdict == "feasible"), f"verdict: {self.verdict} contradicts decision.replicas")

    @property
    def plan_hash(self) -> str:
        return self.decision.hash

    def group(self, name: str = "") -> ReplicaPlan:
        """The replica called ``name``, or the only one. PlanError lists the names if there is no such one."""
        groups = dict(self.decision.groups())
        if not name and len(groups) == 1:
            return next(iter(groups.values()))
        if name not in groups:
            known = ", ".join(groups) or "none, the plan is infeasible"
            raise PlanError(f"group: {name!r} is not in the plan; groups: {known}")
        return groups[name]

    def to_json(self) -> str:
        """The document with sorted keys, indented for people."""
        return json.dumps({**to_plain(self), "plan_hash": self.plan_hash}, sort_keys=True, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan and check its hash and invariants. PlanError names the field at fault."""
        try:
            document = parse(text)
            if not isinstance(document, dict):
                raise JsonError("document: must be an object")
            stated = decode(str, document.pop("plan_hash", None), "plan_hash")
            plan = decode(cls, document)
        except JsonError as error:
            raise PlanError(str(error)) from error
        if plan.planner_version != PLANNER_VERSION:
            raise PlanError(
                f"planner_version: {plan.planner_version!r} is not {PLANNER_VERSION!r}; plan again with this version"
            )
        if stated != plan.plan_hash:
            raise PlanError(
                f"plan_hash: {stated} is stated but the decision's hash is {plan.plan_hash}; the file was changed"
            )
        return plan


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise PlanError(fault)


def _check_vector(family: str, counts: tuple[int, ...], units: int, world: int) -> None:
    if units == 0:
        _require(not counts, f"vectors.{family}: {list(counts)} for a family without units")
        return
    _require(len(counts) == world, f"vectors.{family}: {len(counts)} entries for {world} ranks")
    _require(min(counts) >= 1, f"vectors.{family}: {list(counts)} leaves a rank without units")
    _require(sum(counts) == units, f"vectors.{family}: {list(counts)} sums to {sum(counts)}, not to {units} units")


def _check_tokens(counts: tuple[int, ...], world: int) -> None:
    if counts:
        _require(len(counts) == world, f"vectors.kv_tokens: {len(counts)} entries for {world} ranks")
        _require(min(counts) >= 1, f"vectors.kv_tokens: {list(counts)} leaves a rank without tokens")
        _require(sum(counts) <= MAX_STRIPE, f"vectors.kv_tokens: sums to {sum(counts)}, the most is {MAX_STRIPE}")
