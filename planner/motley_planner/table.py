"""Plans for people: a table with one line per rank, and one line for logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from motley_planner.plan import Plan, RankReport

_MIB = 1 << 20
Column = tuple[str, str, Callable[[RankReport], str]]

_HEADS: Column = ("q heads", "--rank-tp-ratio", lambda rank: _moved(rank.q_heads, rank.raw_q_heads))
_COLUMNS: tuple[Column, ...] = (
    _HEADS,
    ("kv heads", "--rank-tp-ratio", lambda rank: str(rank.kv_heads)),
    ("GDN heads", "--rank-tp-ratio", lambda rank: str(rank.gdn_key_heads)),
    ("MLP cols", "--rank-mlp-ratio", lambda rank: str(rank.mlp_columns)),
    ("expert cols", "--rank-moe-ratio", lambda rank: str(rank.expert_columns)),
    ("vocab rows", "--rank-vocab-ratio", lambda rank: str(rank.vocab_rows)),
)
_OPTIONAL = ("GDN heads", "MLP cols", "expert cols")
"""Columns left out where no rank has any."""


def plan_table(plan: Plan) -> RenderableType:
    """The plan's ranks, what binds, and its notes. MiB throughout; ``a (b)`` are heads after and before alignment."""
    ranks = plan.explain.ranks
    columns = [column for column in _COLUMNS if column[0] not in _OPTIONAL or _used(column, ranks)]
    table = Table(title=summary(plan), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("rank", justify="right")
    table.add_column("card")
    for name in (*(name for name, _, _ in columns), "weights", "other", "KV", "tokens"):
        table.add_column(name, justify="right", min_width=max(map(len, name.split())))
    for number, rank in enumerate(ranks):
        cells = [read(rank) for _, _, read in columns]
        table.add_row(
            f"{'* ' if rank.binds else ''}{number}",
            f"{rank.uuid} {rank.product}",
            *cells,
            _mib(rank.weight_bytes),
            _mib(sum(rank.memory.values()) - rank.weight_bytes),
            _mib(rank.kv_bytes),
            str(rank.tokens),
            style="bold" if rank.binds else "",
        )
    return Group(table, *(Text(line) for line in (_cures(columns), *_notes(plan))))


def summary(plan: Plan) -> str:
    """One line: verdict, ranks, pool and hash."""
    pool = plan.predicted.get("pool_tokens")
    tokens = f"{int(pool.value)} tokens ({int(pool.low)} to {int(pool.high)})" if pool else "unknown"
    heads = "+".join(str(rank.q_heads) for rank in plan.explain.ranks)
    noun = "rank" if len(plan.explain.ranks) == 1 else "ranks"
    return (
        f"{plan.verdict}: {len(plan.explain.ranks)} {noun}, query heads {heads}, KV pool {tokens}, "
        f"plan {plan.plan_hash[:12]}"
    )


def _cures(columns: Sequence[Column]) -> str:
    """Which flag moves which column."""
    flags: dict[str, list[str]] = {}
    for name, flag, _ in columns:
        flags.setdefault(flag, []).append(name)
    moves = "; ".join(f"{', '.join(names)}: {flag}" for flag, names in flags.items())
    return f"weights, other and KV in MiB. What moves a column: {moves}"


def _notes(plan: Plan) -> list[str]:
    lines = [f"* {binding.code}: {binding.text}" for binding in plan.explain.binding]
    lines += [f"an {name} split would hold {tokens} tokens" for name, tokens in sorted(plan.explain.baselines.items())]
    lines += [f"note: {warning}" for warning in plan.explain.warnings]
    if plan.explain.near_miss:
        lines.append("does not fit; each of these alone would do:")
        lines += [f"  {change}" for change in plan.explain.near_miss]
    return lines


def _used(column: Column, ranks: Sequence[RankReport]) -> bool:
    return any(column[2](rank) != "0" for rank in ranks)


def _moved(after: int, before: int) -> str:
    return str(after) if after == before else f"{after} ({before})"


def _mib(amount: int) -> str:
    return f"{amount / _MIB:,.0f}" if amount >= 10 * _MIB else f"{amount / _MIB:.1f}"
