"""Which card each rank runs on, and how much of it the rank may use. Looks at devices, never at a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from motley_engine.config.check import co_location
from motley_engine.config.errors import ConfigError
from motley_engine.config.ranks import RankFlags
from motley_engine.config.schema import EngineConfig
from motley_planner.inventory import Card, InventoryError, pretend_cards, resolve_cards
from motley_planner.nvml import local_node

DeviceKind = Literal["cuda", "cpu"]
ListCards = Callable[[], tuple[Card, ...]]

MIB = 1 << 20
DEFAULT_FRACTION = 0.9
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Placement:
    """Rank r runs on ``cards[r]``. ``budgets_mib`` has one value for all ranks or one per rank; empty: the planner
    takes what its reserve leaves of each card."""

    cards: tuple[Card, ...]
    budgets_mib: tuple[int, ...]

    @property
    def kind(self) -> DeviceKind:
        return self.cards[0].kind


def visible_cards() -> tuple[Card, ...]:
    """The cards that CUDA shows this process, in CUDA's order. InventoryError without a driver."""
    shown = [card for card in local_node().cards if card.cuda_index is not None]
    return tuple(sorted(shown, key=lambda card: card.cuda_index or 0))


def place(config: EngineConfig, ranks: RankFlags, list_cards: ListCards = visible_cards) -> Placement:
    """Cards and budgets of all ranks. ConfigError names the flag, and the cards present."""
    cards = cards_of(config, list_cards)
    return _on_cpu(config, ranks) if cards is None else _on_cuda(config, ranks, cards)


def cards_of(config: EngineConfig, list_cards: ListCards = visible_cards) -> tuple[Card, ...] | None:
    """The visible cards if the ranks run on cuda, None if they run on CPU."""
    wanted = config.parallel.device
    if wanted == "cpu":
        return None
    try:
        cards = list_cards()
    except InventoryError as error:
        if wanted == "cuda" or config.parallel.rank_gpu_id:
            raise ConfigError(f"--device: {error}") from error
        return None
    if not cards and wanted == "cuda":
        raise ConfigError("--device: cuda, but CUDA shows no card (see CUDA_VISIBLE_DEVICES); use cpu")
    return cards or None


def check_free(cards: Sequence[Card], budgets_mib: Sequence[int], flag: str) -> None:
    """ConfigError if a rank may use more than is free on its card."""
    for rank, (card, budget) in enumerate(zip(cards, budgets_mib, strict=True)):
        free = card.total_mib - card.used_mib
        if card.kind == "cuda" and budget > free:
            raise ConfigError(
                f"{flag}: rank {rank} may use {budget} MiB of {card.uuid}, but only {free} of its {card.total_mib} MiB "
                f"are free; end what else runs there or lower the budget"
            )


def _on_cuda(config: EngineConfig, ranks: RankFlags, cards: tuple[Card, ...]) -> Placement:
    names = config.parallel.rank_gpu_id
    if names:
        try:
            chosen = tuple(resolve_cards(names, cards, ranks.world))
        except InventoryError as error:
            raise ConfigError(str(error)) from error
        _refuse_sharing(chosen)
    else:
        present = ", ".join(str(card) for card in cards)
        if ranks.tp_auto:
            raise ConfigError(f"--rank-tp-ratio: auto needs --rank-gpu-id; give one GPU per rank; present: {present}")
        if config.parallel.rank_gpu_memory_mib:
            raise ConfigError(f"--rank-gpu-memory-mib: needs --rank-gpu-id; give one GPU per rank; present: {present}")
        if ranks.world > len(cards):
            raise ConfigError(f"--tp-size: {ranks.world} ranks need as many GPUs; lower it; present: {present}")
        chosen = cards[: ranks.world]
    return Placement(chosen, _card_budgets(config, ranks, chosen))


def _card_budgets(config: EngineConfig, ranks: RankFlags, cards: tuple[Card, ...]) -> tuple[int, ...]:
    given = config.parallel.rank_gpu_memory_mib
    if given or ranks.tp_auto:
        return given
    fraction = config.memory.mem_fraction_static or DEFAULT_FRACTION
    budgets = tuple(int(card.total_mib * fraction) for card in cards)
    # an even split fills no card further than the smallest one
    return budgets if ranks.uneven else (min(budgets),)


def _refuse_sharing(cards: Sequence[Card]) -> None:
    for uuid in dict.fromkeys(card.uuid for card in cards):
        holders = [str(rank) for rank, card in enumerate(cards) if card.uuid == uuid]
        if len(holders) > 1:
            raise ConfigError(co_location(uuid, holders))


def _on_cpu(config: EngineConfig, ranks: RankFlags) -> Placement:
    parallel, memory = config.parallel, config.memory
    if parallel.rank_gpu_id:
        raise ConfigError("--rank-gpu-id: names GPUs, but the ranks run on CPU; drop it or use --device cuda")
    if memory.mem_fraction_static is not None:
        raise ConfigError("--mem-fraction-static: is a share of a card's memory; on CPU use --host-memory-fraction")
    if ranks.tp_auto and not parallel.rank_gpu_memory_mib:
        raise ConfigError("--rank-tp-ratio: auto on CPU needs --rank-gpu-memory-mib as pretend budgets")
    if config.runtime.attention_backend == "triton":
        raise ConfigError("--attention-backend: triton runs on cuda, but the ranks run on CPU; use torch")
    given = parallel.rank_gpu_memory_mib
    budgets = (
        given * ranks.world if len(given) == 1 else given or _host_shares(memory.host_memory_fraction, ranks.world)
    )
    return Placement(pretend_cards(budgets), budgets)


def _host_shares(fraction: float, world: int) -> tuple[int, ...]:
    free = free_host_mib()
    share = int(free * fraction) // world
    if share < 1:
        raise ConfigError(
            f"--host-memory-fraction: {fraction} of {free} MiB free leaves nothing for {world} ranks; "
            "raise it or end what else runs here"
        )
    return (share,) * world


def free_host_mib(cgroup: Path = CGROUP) -> int:
    """Memory that new processes can get, in MiB: the host's, or what the container's limit leaves if that is less."""
    free = int(psutil.virtual_memory().available)
    limit, used = (_read_bytes(cgroup / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        free = min(free, max(limit - used, 0))
    return free // MIB


def _read_bytes(path: Path) -> int | None:
    """A cgroup file's number; None without such a file or limit."""
    if not path.is_file():
        return None
    text = path.read_text(encoding="ascii").strip()
    return int(text) if text.isdecimal() else None
