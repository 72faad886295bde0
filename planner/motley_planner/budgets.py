"""Budgets of ranks in MiB, and the weights that follow from them."""

from __future__ import annotations

from collections import Counter

from motley_planner.partition import FamilyWeights, reduce_vector
from motley_planner.request import PlanRefusedError, PlanRequest, Ratio


def auto_reserve_mib(chunk: int, world: int, graph_tokens: int = 0, ranks_on_gpu: int = 1) -> int:
    """MiB kept off a card's total when budgets are automatic: context, prefill activations, group, decode graphs.

    ``512 + 1.5 * max(chunk, 2048) + world/8 * 1024 + 2 * graph_tokens * ranks_on_gpu``.
    """
    return 512 + 3 * max(chunk, 2048) // 2 + world * 1024 // 8 + 2 * graph_tokens * ranks_on_gpu


def rank_budgets(request: PlanRequest) -> Ratio:
    """MiB every rank may use in all: as given, or an equal part of what the reserve leaves of its card.

    PlanRefusedError if a reserve leaves nothing.
    """
    if request.budgets_mib:
        return request.budgets_mib * request.world if len(request.budgets_mib) == 1 else request.budgets_mib
    sharing = Counter(card.uuid for card in request.cards)
    budgets = []
    for card, reserve in zip(request.cards, _reserves(request, sharing), strict=True):
        budget = (card.total_mib - reserve) // sharing[card.uuid]
        if budget < 1:
            raise PlanRefusedError(
                [
                    f"--rank-auto-reserve-mib: {reserve} MiB leave no budget on {card.uuid}, which has "
                    f"{card.total_mib}; lower it, or give --rank-gpu-memory-mib"
                ]
            )
        budgets.append(budget)
    return tuple(budgets)


def _reserves(request: PlanRequest, sharing: Counter[str]) -> Ratio:
    """Reserve of every rank's card; co-located ranks take the largest of their card. Pretend cards keep nothing off."""
    serving, given = request.serving, request.reserve_mib
    if given == "auto":
        return tuple(
            auto_reserve_mib(serving.chunk, request.world, serving.graph_tokens, sharing[card.uuid])
            if card.kind == "cuda"
            else 0
            for card in request.cards
        )
    per_rank = given * request.world if len(given) == 1 else given
    largest: dict[str, int] = {}
    for card, reserve in zip(request.cards, per_rank, strict=True):
        largest[card.uuid] = max(reserve, largest.get(card.uuid, 0))
    return tuple(largest[card.uuid] for card in request.cards)


def family_weights(request: PlanRequest, budgets: Ratio) -> tuple[FamilyWeights, tuple[str, ...]]:
    """Weights of every family, and notes on what was decided for the user."""
    notes = []
    even = (1,) * request.world
    base = even if request.ratio is None else reduce_vector(budgets if request.ratio == "auto" else request.ratio)
    if request.ratio == "auto" and base == even and request.world > 1:
        notes.append(f"--rank-tp-ratio auto: all budgets are {budgets[0]} MiB, so the split is even")
    vocab = request.vocab_ratio
    if vocab == "auto":
        vocab = request.bandwidths or base
        if not request.bandwidths:
            notes.append("--rank-vocab-ratio auto: no bandwidth was measured, so the base ratio cuts the vocabulary")
    return FamilyWeights.of(base, request.mlp_ratio, request.moe_ratio, vocab), tuple(notes)
