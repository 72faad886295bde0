"""Plans one tensor-parallel replica. Same request, same bytes out."""

from __future__ import annotations

from hashlib import sha256

from motley_planner.candidate import Candidate, price
from motley_planner.explain import estimate_pool, explain
from motley_planner.memory import MIB
from motley_planner.plan import PLANNER_VERSION, Decision, Plan, RankPlan, ReplicaPlan, StagePlan, Units
from motley_planner.request import PlanRequest, check_request
from motley_planner.strict_json import canonical

_KERNELS = {"cuda": "triton", "cpu": "torch"}
_COMM = {"cuda": "nccl", "cpu": "gloo"}


def plan_replica(request: PlanRequest) -> Plan:
    """The plan of one replica on ``request.cards``; infeasible, with the nearest changes, if memory does not suffice.

    PlanRefusedError lists every conflict in the request, or the dimension that so many ranks cannot share.
    """
    check_request(request)
    candidate = price(request)
    decision = _decision(candidate) if candidate.feasible else _nothing(candidate)
    return Plan(
        inputs_hash=inputs_hash(request),
        verdict="feasible" if candidate.feasible else "infeasible",
        decision=decision,
        predicted={"pool_tokens": estimate_pool(candidate)},
        explain=explain(candidate),
    )


def inputs_hash(request: PlanRequest) -> str:
    """SHA-256 of everything a plan follows from: the request and the planner's version."""
    return sha256(f"{PLANNER_VERSION} {canonical(request)}".encode()).hexdigest()


def _nothing(candidate: Candidate) -> Decision:
    return Decision((), tuple(sorted({card.uuid for card in candidate.request.cards})))


def _decision(candidate: Candidate) -> Decision:
    request, kind = candidate.request, candidate.request.cards[0].kind
    vectors = candidate.partition.vectors
    ranks = tuple(
        RankPlan(card.uuid, budget * MIB, _KERNELS[kind])
        for card, budget in zip(request.cards, candidate.budgets, strict=True)
    )
    stage = StagePlan(
        layers=(0, request.facts.num_layers),
        ranks=ranks,
        vectors=vectors,
        units=Units(sum(vectors.attn), sum(vectors.mlp), sum(vectors.vocab), sum(vectors.gdn), sum(vectors.expert)),
    )
    replica = ReplicaPlan(
        role="unified",
        min_pool_tokens=request.serving.required_tokens,
        state_slots=request.serving.state_slots(request.facts),
        kv_mode="token" if vectors.kv_tokens else "head",
        comm=_COMM[kind] if request.world > 1 else "none",
        stages=(stage,),
    )
    return Decision((replica,))
