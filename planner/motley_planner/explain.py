"""Why a plan is as it is: per-rank report, what binds, and the nearest changes that would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from motley_planner.candidate import Candidate, price
from motley_planner.memory import MIB, PRIORS, Serving, bytes_for, replica_memory
from motley_planner.plan import Binding, Estimate, Explanation, RankReport
from motley_planner.request import PlanRefusedError, PlanRequest

Move = Callable[[PlanRequest], PlanRequest]

TERMS = {
    "attention": "attention weights",
    "mlp": "MLP weights",
    "expert": "expert weights",
    "gdn": "linear-attention weights",
    "vocab": "embedding and LM head",
    "replicated": "replicated weights",
    "context": "the device context",
    "graphs": "captured graphs",
    "workspace": "attention workspace",
    "comm": "communication buffers",
    "activations": "activations",
    "state": "recurrent states",
}


def estimate_pool(candidate: Candidate) -> Estimate:
    """Pool tokens; the range lets the overhead priors be half or one and a half times what is assumed."""
    request = candidate.request
    device = request.cards[0].kind
    budgets = [budget * MIB for budget in candidate.budgets]

    def tokens(percent: int) -> float:
        overheads = PRIORS[device].scaled(percent)
        priced = replica_memory(request.facts, candidate.partition, request.serving, budgets, device, overheads)
        return float(priced.tokens)

    return Estimate(float(candidate.memory.tokens), tokens(150), tokens(50))


def explain(candidate: Candidate) -> Explanation:
    """The explanation of a feasible or infeasible candidate."""
    return Explanation(
        binding=(_binding(candidate),),
        near_miss=() if candidate.feasible else tuple(near_misses(candidate)),
        baselines=_baselines(candidate),
        warnings=(*candidate.notes, *_warnings(candidate)),
        ranks=_reports(candidate),
    )


def near_misses(candidate: Candidate) -> Iterator[str]:
    """Changes that were each tried and make the candidate feasible: more memory, then single changes of the request,
    or pairs of them where no single one does."""
    yield from _more_memory(candidate)
    request, serving = candidate.request, candidate.request.serving
    moves = dict(_moves(request))
    singles = [flag for flag, move in moves.items() if _fits(move(request))]
    yield from singles
    if not singles:
        for (one, first), (other, second) in combinations(moves.items(), 2):
            if _fits(second(first(request))):
                yield f"{one} with {other}"
    yield from _largest(
        request,
        "--context-length",
        serving.context_length or 0,
        lambda value: replace(serving, context_length=value),
    )
    yield from _largest(
        request, "--max-running-requests", serving.max_running, lambda value: replace(serving, max_running=value)
    )


def _moves(request: PlanRequest) -> Iterator[tuple[str, Move]]:
    """Flags that would lower what the poorest rank needs, with what each does to a request."""
    if request.world > 1 and request.ratio != "auto":
        yield "--rank-tp-ratio auto", lambda asked: replace(asked, ratio="auto")
    if request.world > 1 and request.vocab_ratio != "auto":
        # without a base plan there is nothing that the vocabulary could follow
        yield "--rank-vocab-ratio auto", lambda asked: replace(asked, vocab_ratio="auto" if asked.uneven else ())
    if request.serving.weight_size == 4:
        yield "--dtype bfloat16", _halved


def _halved(request: PlanRequest) -> PlanRequest:
    return replace(request, serving=replace(request.serving, weight_size=2, kv_size=2, activation_size=2))


def _more_memory(candidate: Candidate) -> Iterator[str]:
    """What every short rank lacks, and the size of card that has it."""
    request, wants = candidate.request, []
    for rank, memory in enumerate(candidate.memory.ranks):
        need = bytes_for(request.facts, request.serving, memory, request.serving.required_tokens)
        short = -(-(need - memory.budget) // MIB)
        card = request.cards[rank]
        if short > 0:
            budget = candidate.budgets[rank] + short
            too_small = (
                f", a card larger than its {card.total_mib}" if card.kind == "cuda" and budget > card.total_mib else ""
            )
            wants.append(f"{short} MiB more for rank {rank} ({card.uuid}{too_small})")
    if wants:
        yield " and ".join(wants)


def _largest(request: PlanRequest, flag: str, current: int, change: Callable[[int], Serving]) -> Iterator[str]:
    """The largest value below ``current`` that fits, by bisection (memory only shrinks with the value)."""

    def fits(value: int) -> bool:
        return _fits(replace(request, serving=change(value)))

    if current <= 1 or not fits(1):
        return
    low, high = 1, current
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    yield f"{flag} {low}"


def _fits(request: PlanRequest) -> bool:
    try:
        return price(request).feasible
    except PlanRefusedError:
        return False


def _binding(candidate: Candidate) -> Binding:
    memory, request = candidate.memory, candidate.request
    rank = memory.binding_rank
    card = request.cards[rank]
    where = f"rank {rank} ({card.uuid})"
    own = memory.ranks[rank]
    largest = f"its largest other item is {TERMS[memory.binding_term]}"
    if own.free < 0:
        over = (MIB - 1 - own.free) // MIB
        return Binding("memory", f"{where} lacks {over} MiB before any KV; {largest}")
    per_token = (own.full_token + own.window_token) / 1024
    return Binding(
        "memory",
        f"{where} limits the pool to {memory.tokens} tokens: {own.free // MIB} MiB for KV at {per_token:g} KiB per "
        f"token; {largest}",
    )


def _baselines(candidate: Candidate) -> dict[str, int]:
    """Pool of an even split on the same budgets, where that is another split."""
    request = candidate.request
    if not request.uneven or request.world == 1:
        return {}
    even = replace(request, ratio=None, mlp_ratio=(), moe_ratio=(), vocab_ratio=(), budgets_mib=candidate.budgets)
    try:
        return {"even": price(even).memory.tokens}
    except PlanRefusedError:
        return {}


def _warnings(candidate: Candidate) -> Iterator[str]:
    request, heads = candidate.request, candidate.partition.heads
    if heads.aligned:
        raw = [heads.q.unit * units for units in heads.raw]
        yield f"query heads {raw} were moved to {list(heads.q.sizes)} so that no rank straddles two kv heads"
    if request.uneven and request.world == request.facts.kv_heads and len(set(heads.q.counts)) == 1:
        yield f"as many kv heads as ranks ({request.world}): attention is even whatever the ratio"
    for rank, card in enumerate(request.cards):
        if candidate.budgets[rank] + card.used_mib > card.total_mib:
            yield (
                f"rank {rank}: others hold {card.used_mib} MiB of {card.uuid}, so its budget of "
                f"{candidate.budgets[rank]} MiB of {card.total_mib} is not free now"
            )


def _reports(candidate: Candidate) -> tuple[RankReport, ...]:
    request, partition, memory = candidate.request, candidate.partition, candidate.memory
    heads, gdn, experts = partition.heads, partition.gdn, partition.experts
    columns = partition.mlp if partition.mlp.total else partition.shared_experts
    return tuple(
        RankReport(
            uuid=card.uuid,
            product=card.product,
            q_heads=heads.q.sizes[rank],
            raw_q_heads=heads.q.unit * heads.raw[rank],
            kv_heads=heads.kv_shard(rank).size,
            mlp_columns=columns.sizes[rank] if columns else 0,
            expert_columns=experts.sizes[rank] if experts else 0,
            vocab_rows=partition.vocab.sizes[rank],
            gdn_key_heads=gdn.sizes[rank] if gdn else 0,
            memory=memory.ranks[rank].items(),
            weight_bytes=memory.ranks[rank].weights,
            kv_bytes=max(memory.ranks[rank].free, 0),
            tokens=memory.alone[rank].full,
            binds=rank == memory.binding_rank,
        )
        for rank, card in enumerate(request.cards)
    )
