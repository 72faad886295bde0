"""One split of a request's model over its cards, priced in memory."""

from __future__ import annotations

from dataclasses import dataclass

from motley_planner.budgets import family_weights, rank_budgets
from motley_planner.memory import MIB, ReplicaMemory, replica_memory
from motley_planner.partition import ModelPartition, PartitionError, split_model
from motley_planner.request import PlanRefusedError, PlanRequest, Ratio


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request with its budgets (MiB per rank), partition and memory. ``notes`` say what was decided for the user."""

    request: PlanRequest
    budgets: Ratio
    partition: ModelPartition
    memory: ReplicaMemory
    notes: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        """Everything fits every budget, and the pool holds what serving needs."""
        return self.memory.tokens >= self.request.serving.required_tokens


def price(request: PlanRequest) -> Candidate:
    """Split and price ``request`` as it stands. PlanRefusedError names the flag of a dimension that cannot be cut."""
    budgets = rank_budgets(request)
    weights, notes = family_weights(request, budgets)
    try:
        partition = split_model(request.facts, weights)
    except PartitionError as error:
        raise PlanRefusedError([f"{_flag_of(error)}: {error}"]) from error
    memory = replica_memory(
        request.facts,
        partition,
        request.serving,
        [budget * MIB for budget in budgets],
        request.cards[0].kind,
    )
    return Candidate(request, budgets, partition, memory, notes)


def _flag_of(error: PartitionError) -> str:
    return "--rank-vocab-ratio" if str(error).startswith("vocabulary") else "--tp-size"
