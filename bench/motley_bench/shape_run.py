"""``motley bench shape``: one model shape with random weights, served, checked against a reference, then loaded."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from motley_bench.agree import compare, random_prompts, score
from motley_bench.host import Serve
from motley_bench.serve import BenchOptions, bench, medians, table
from motley_bench.shapes import write_config


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """``flags`` start the server under test, ``reference_flags`` the one it must agree with (empty: no check)."""

    shape: str
    layers: int | None
    flags: tuple[str, ...]
    reference_flags: tuple[str, ...]
    limit: float
    load: BenchOptions | None


def _serve_flags(folder: Path, extra: Sequence[str]) -> list[str]:
    return ["--model-path", str(folder), "--load-format", "dummy", "--skip-tokenizer-init", *extra]


def main(options: ShapeOptions) -> int:
    """0 when the check agrees (or was not asked) and no request failed. No load is run after a failed check."""
    with tempfile.TemporaryDirectory(prefix="motley-shape-") as name:
        folder = Path(name)
        config = write_config(options.shape, folder, options.layers)
        vocab = int(config["vocab_size"])
        if options.reference_flags and not _agree(options, folder, vocab):
            return 1
        if options.load is None:
            return 0
        return _load(options, options.load, folder, vocab)


def _agree(options: ShapeOptions, folder: Path, vocab: int) -> bool:
    prompts = random_prompts(vocab, count=4, length=96, seed=1)
    probes = random_prompts(vocab, count=1, length=64, seed=2)[0]
    ours = score(_serve_flags(folder, options.flags), prompts, probes)
    truth = score(_serve_flags(folder, options.reference_flags), prompts, probes)
    agreement = compare(truth, ours)
    print(agreement.line(options.shape, options.limit), flush=True)
    return agreement.rms_ratio <= options.limit


def _load(options: ShapeOptions, load: BenchOptions, folder: Path, vocab: int) -> int:
    with Serve(_serve_flags(folder, options.flags)) as server:
        print(f"ready in {server.seconds:.1f} s", flush=True)
        rows = asyncio.run(bench(replace(load, targets=((options.shape, server.url, "generate"),), vocab_size=vocab)))
    summary = medians(rows)
    Console(width=140).print(table(summary))
    print(json.dumps({"bench": "shape", "shape": options.shape, "ready_seconds": server.seconds, "medians": summary}))
    return 1 if any(row["errors"] for row in summary) else 0
