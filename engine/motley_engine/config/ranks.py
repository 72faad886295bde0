"""The rank flags as numbers: one place that knows how ``auto`` and lists are spelled."""

from __future__ import annotations

from dataclasses import dataclass

from motley_engine.config.errors import ConfigError
from motley_engine.config.flags import split_items
from motley_engine.config.schema import ParallelSection

Ratio = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankFlags:
    """Parsed rank flags of a start without a plan. An empty tuple means the flag was not given.

    ``world`` is the number of ranks. ``reserve`` has one entry, or one per rank.
    """

    world: int
    tp_ratio: Ratio
    tp_auto: bool
    mlp_ratio: Ratio
    moe_ratio: Ratio
    vocab_ratio: Ratio
    vocab_auto: bool
    reserve: Ratio

    @property
    def uneven(self) -> bool:
        """A base vector exists, so family vectors have something to override."""
        return self.tp_auto or bool(self.tp_ratio)


def parse_ratio(flag: str, text: str, minimum: int = 1) -> tuple[Ratio, bool]:
    """(list, automatic) of a ratio flag's text. ConfigError names the flag and the bad item."""
    if not text.strip():
        return (), False
    if text.strip() == "auto":
        return (), True
    numbers = []
    for item in split_items(flag, text):
        try:
            numbers.append(int(item))
        except ValueError:
            raise ConfigError(f"{flag}: {item!r} is no integer; give auto or one integer per rank") from None
        if numbers[-1] < minimum:
            raise ConfigError(f"{flag}: {item} is below {minimum}; give integers of at least {minimum}")
    return tuple(numbers), False


def parse_ranks(parallel: ParallelSection) -> RankFlags:
    """All rank flags as numbers; the world size is ``tp_size``, else the longest rank list, else 1."""
    tp_ratio, tp_auto = parse_ratio("--rank-tp-ratio", parallel.rank_tp_ratio)
    vocab_ratio, vocab_auto = parse_ratio("--rank-vocab-ratio", parallel.rank_vocab_ratio)
    reserve, _ = parse_ratio("--rank-auto-reserve-mib", parallel.rank_auto_reserve_mib, minimum=0)
    lists = (parallel.rank_gpu_id, tp_ratio, parallel.rank_mlp_ratio, parallel.rank_moe_ratio, vocab_ratio)
    implied = max(len(parallel.rank_gpu_memory_mib), *(len(items) for items in lists))
    return RankFlags(
        world=parallel.tp_size or implied or 1,
        tp_ratio=tp_ratio,
        tp_auto=tp_auto,
        mlp_ratio=parallel.rank_mlp_ratio,
        moe_ratio=parallel.rank_moe_ratio,
        vocab_ratio=vocab_ratio,
        vocab_auto=vocab_auto,
        reserve=reserve,
    )
