"""What a caller asks the planner for, and every refusal that needs no model arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from motley_planner.inventory import Card
from motley_planner.memory import Serving
from motley_planner.model_facts import ModelFacts

Ratio = tuple[int, ...]
Auto = Literal["auto"]


class PlanRefusedError(ValueError):
    """A request that cannot be planned. ``messages``: one ``--flag: fault; fix`` each."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = tuple(messages)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """One tensor-parallel replica: rank r runs on ``cards[r]``.

    ``budgets_mib``: MiB a rank may use in all, one value or one per rank; empty: what ``reserve_mib`` leaves of its
    card. ``ratio``: base weights, ``auto`` (by budget) or None (even). The family ratios replace it where given; the
    vocabulary is even unless given. ``bandwidths`` are measured GB/s per rank, for an automatic vocabulary ratio.
    """

    facts: ModelFacts
    cards: tuple[Card, ...]
    serving: Serving = field(default_factory=Serving)
    budgets_mib: Ratio = ()
    ratio: Ratio | Auto | None = None
    mlp_ratio: Ratio = ()
    moe_ratio: Ratio = ()
    vocab_ratio: Ratio | Auto = ()
    reserve_mib: Ratio | Auto = "auto"
    bandwidths: Ratio = ()

    @property
    def world(self) -> int:
        return len(self.cards)

    @property
    def uneven(self) -> bool:
        """A base vector exists, so family vectors have something to override."""
        return self.ratio is not None


def check_request(request: PlanRequest) -> None:
    """Raise one PlanRefusedError with every fault found."""
    if not request.cards:
        raise PlanRefusedError(["--rank-gpu-id: no rank has a card; give one GPU per rank, or CPU budgets"])
    messages = [*_placement(request), *_budgets(request), *_ratios(request), *_serving(request)]
    if messages:
        raise PlanRefusedError(messages)


def _placement(request: PlanRequest) -> Iterator[str]:
    if len({card.kind for card in request.cards}) > 1:
        yield "--device: ranks mix CPU and GPU; use one kind"
    for uuid in dict.fromkeys(card.uuid for card in request.cards):
        holders = [str(rank) for rank, card in enumerate(request.cards) if card.uuid == uuid]
        if len(holders) > 1:
            yield (
                f"--rank-gpu-id: ranks {','.join(holders)} share {uuid}; co-located ranks need NCCL 2.30.7 or newer "
                f"and a running MPS daemon and are not configured; give each rank its own GPU"
            )


def _budgets(request: PlanRequest) -> Iterator[str]:
    flag, budgets = "--rank-gpu-memory-mib", request.budgets_mib
    if not budgets:
        return
    if len(budgets) not in (1, request.world):
        yield f"{flag}: {_entries(budgets)} for --tp-size {request.world}; give one value, or one per rank"
        return
    for budget in budgets:
        if budget < 1:
            yield f"{flag}: {budget} is not positive; give the MiB a rank may use in all"
    if len(budgets) > 1 and not request.uneven and len(set(budgets)) > 1:
        yield f"{flag}: a list needs uneven shares; add --rank-tp-ratio auto, or give one value for all ranks"
    yield from _over_total(request, budgets * request.world if len(budgets) == 1 else budgets)


def _over_total(request: PlanRequest, budgets: Ratio) -> Iterator[str]:
    for card in dict.fromkeys(request.cards):
        ranks = [rank for rank, own in enumerate(request.cards) if own.uuid == card.uuid]
        asked = sum(budgets[rank] for rank in ranks)
        if asked > card.total_mib:
            verb = "ask" if len(ranks) > 1 else "asks"
            names = ",".join(map(str, ranks))
            yield (
                f"--rank-gpu-memory-mib: rank{'s' * (len(ranks) > 1)} {names} {verb} {asked} MiB of {card.uuid}, "
                f"which has {card.total_mib}; lower {'one of them' if len(ranks) > 1 else 'it'}"
            )


def _ratios(request: PlanRequest) -> Iterator[str]:
    if isinstance(request.ratio, tuple):
        yield from _vector("--rank-tp-ratio", request.ratio, request.world)
        if len(set(request.ratio)) == 1 and len(request.ratio) == request.world > 1:
            yield f"--rank-tp-ratio: {_listed(request.ratio)} is an even split; drop the flag"
    families = {
        "--rank-mlp-ratio": request.mlp_ratio,
        "--rank-moe-ratio": request.moe_ratio,
        "--rank-vocab-ratio": request.vocab_ratio,
    }
    for flag, ratio in families.items():
        if ratio and not request.uneven:
            yield f"{flag}: needs a base plan; give --rank-tp-ratio too"
        if isinstance(ratio, tuple) and ratio:
            yield from _vector(flag, ratio, request.world)
    if request.moe_ratio and request.facts.moe is None:
        yield f"--rank-moe-ratio: {request.facts.model_type} has no experts; drop the flag"
    yield from _reserve(request)


def _reserve(request: PlanRequest) -> Iterator[str]:
    flag, reserve = "--rank-auto-reserve-mib", request.reserve_mib
    if not isinstance(reserve, tuple):
        return
    if request.ratio != "auto":
        yield f"{flag}: only used by --rank-tp-ratio auto; drop it or set the ratio to auto"
    if len(reserve) not in (1, request.world):
        yield f"{flag}: {_entries(reserve)} for --tp-size {request.world}; give one value, or one per rank"
    for value in reserve:
        if value < 0:
            yield f"{flag}: {value} is negative; give the MiB to keep off the card's total"


def _vector(flag: str, ratio: Ratio, world: int) -> Iterator[str]:
    if len(ratio) != world:
        yield f"{flag}: {_entries(ratio)} for --tp-size {world}; give one weight per rank"
    for weight in ratio:
        if weight < 1:
            yield f"{flag}: {weight} is below 1; give positive integers"


def _serving(request: PlanRequest) -> Iterator[str]:
    serving, longest = request.serving, request.facts.max_position
    if serving.context_length is not None and serving.context_length > longest:
        yield f"--context-length: {serving.context_length} exceeds the model's {longest} positions; lower it"
    for flag, value in (
        ("--chunked-prefill-size", serving.chunk),
        ("--max-running-requests", serving.max_running),
        ("--page-size", serving.page_size),
    ):
        if value < 1:
            yield f"{flag}: {value} is below 1; give a positive integer"


def _entries(items: Ratio) -> str:
    return f"{len(items)} {'entry' if len(items) == 1 else 'entries'}"


def _listed(items: Ratio) -> str:
    return ",".join(map(str, items))
