"""``motley bench serve``: the load of a scenario against a running server, motley's or a peer's, in one call."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import statistics
import urllib.request
from typing import Any

from rich.console import Console
from rich.table import Table

from motley_bench.clients import Client, NativeClient, OpenAIClient
from motley_bench.load import prompts, run
from motley_bench.report import summarise
from motley_bench.scenarios import SCENARIOS, Scenario


@dataclasses.dataclass(frozen=True, slots=True)
class BenchOptions:
    """``targets`` are (label, base URL, api: 'generate' or 'openai'); runs are interleaved over them."""

    targets: tuple[tuple[str, str, str], ...]
    scenarios: tuple[str, ...]
    repeats: int
    seed: int
    vocab_size: int
    model: str
    timeout: float
    warm_up: bool
    scale: float


def scaled(scenario: Scenario, scale: float) -> Scenario:
    """The same shape with ``scale`` times the requests, at least one per stream."""
    return dataclasses.replace(scenario, requests=max(scenario.concurrency, round(scenario.requests * scale)))


def client_of(url: str, api: str, model: str) -> Client:
    if api == "generate":
        return NativeClient(url)
    if api == "openai":
        return OpenAIClient(url, model)
    raise ValueError(f"api {api!r}: use generate or openai")


def flush(url: str) -> None:
    """Empty the prefix cache so that every run starts cold; servers without the endpoint are measured as they are."""
    request = urllib.request.Request(f"{url}/flush_cache", method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()
    except urllib.error.HTTPError as error:
        Console(stderr=True).print(f"flush_cache at {url}: HTTP {error.code}; the cache stays as it is")


async def bench(options: BenchOptions) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in options.scenarios:
        scenario = scaled(SCENARIOS[name], options.scale)
        work = {label: prompts(scenario, options.vocab_size, options.seed) for label, _, _ in options.targets}
        for repeat in range(-1 if options.warm_up else 0, options.repeats):
            for label, url, api in options.targets:
                await asyncio.to_thread(flush, url)
                client = client_of(url, api, options.model)
                size = scenario if repeat >= 0 else dataclasses.replace(scenario, requests=scenario.concurrency)
                samples = await run(size, client, work[label], options.seed + repeat, options.timeout)
                if repeat >= 0:
                    rows.append({"target": label, "repeat": repeat, **summarise(scenario, samples)})
    return rows


def medians(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per (scenario, target): the median of each figure over the repeats."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["scenario"], row["target"]), []).append(row)
    out = []
    for (scenario, target), members in groups.items():
        good = [m for m in members if "seconds" in m]
        line: dict[str, Any] = {"scenario": scenario, "target": target, "errors": sum(m["errors"] for m in members)}
        line["first_error"] = next((m["first_error"] for m in members if m["first_error"]), "")
        if good:
            for key in ("output_tokens_per_second", "input_tokens_per_second", "cached_share"):
                line[key] = statistics.median(m[key] for m in good)
            for key in ("ttft_ms", "tpot_ms", "latency_ms"):
                for q in good[0][key]:
                    line[f"{key[:-3]}_{q}_ms"] = statistics.median(m[key][q] for m in good)
        out.append(line)
    return out


def table(rows: list[dict[str, Any]]) -> Table:
    out = Table("scenario", "target", "out tok/s", "in tok/s", "cached", "TTFT p50/p99 ms", "TPOT p50 ms", "errors")
    for row in rows:
        out.add_row(
            row["scenario"],
            row["target"],
            f"{row.get('output_tokens_per_second', 0):,.1f}",
            f"{row.get('input_tokens_per_second', 0):,.0f}",
            f"{row.get('cached_share', 0):.0%}",
            f"{row.get('ttft_p50_ms', 0):.1f} / {row.get('ttft_p99_ms', 0):.1f}",
            f"{row.get('tpot_p50_ms', 0):.2f}",
            f"{row['errors']} {row['first_error']}".strip(),
        )
    return out


def main(options: BenchOptions) -> int:
    """Print the table, then one JSON line with every run. 1 if any request failed."""
    rows = asyncio.run(bench(options))
    summary = medians(rows)
    Console().print(table(summary))
    print(json.dumps({"bench": "serve", "seed": options.seed, "medians": summary, "runs": rows}, sort_keys=True))
    return 1 if any(row["errors"] for row in summary) else 0
