"""Prometheus metrics: histograms of requests measured here, counters and gauges from the scheduler's last Stats.

Plain lists instead of the library's own histograms: everything runs in one thread, and an observation per token must
cost next to nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from motley_engine.messages import Stats

CONTENT_TYPE = CONTENT_TYPE_LATEST

_FIRST_TOKEN = (0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75, 1, 2, 5, 10, 20, 40, 80, 160)
_PER_TOKEN = (0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2, 5)
_WHOLE = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_LENGTH = (1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)

_STAT_COUNTERS = (
    ("prompt_tokens", "Prompt tokens of admitted requests."),
    ("cached_tokens", "Prompt tokens found in the prefix cache."),
    ("generated_tokens", "Tokens generated."),
    ("retractions", "Running requests sent back to the queue because pages ran out."),
    ("steps", "Steps run by the executors."),
    ("step_seconds", "Wall time of all steps."),
)


class Histogram:
    """Counts of observations per upper bound, and their sum."""

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self._help = help_text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def family(self, model_name: str) -> HistogramMetricFamily:
        buckets, total = [], 0
        for bound, count in zip([*map(float, self._bounds), float("inf")], self._counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else repr(bound), float(total)))
        family = HistogramMetricFamily(self.name, self._help, labels=["model_name"])
        family.add_metric([model_name], buckets, self._sum)
        return family


class RequestMetrics:
    """What the HTTP process measures. A *request* is one sequence: each choice of each prompt counts."""

    def __init__(self) -> None:
        self.first_token = Histogram(
            "motley_time_to_first_token_seconds", "From the request's arrival to its first token.", _FIRST_TOKEN
        )
        self.inter_token = Histogram(
            "motley_inter_token_latency_seconds", "Between two tokens of a request, as received.", _PER_TOKEN
        )
        self.per_token = Histogram(
            "motley_time_per_output_token_seconds", "Mean time per token after a request's first.", _PER_TOKEN
        )
        self.whole = Histogram("motley_request_seconds", "From a request's arrival to its end.", _WHOLE)
        self.prompt_length = Histogram("motley_request_prompt_tokens", "Prompt length of a request.", _LENGTH)
        self.output_length = Histogram("motley_request_output_tokens", "Output length of a request.", _LENGTH)
        self.outcomes: Counter[str] = Counter()
        """Ended requests by outcome: stop, length, abort, error, refused, disconnect."""

    def families(self, model_name: str) -> Iterable[Metric]:
        histograms = (
            self.first_token,
            self.inter_token,
            self.per_token,
            self.whole,
            self.prompt_length,
            self.output_length,
        )
        for histogram in histograms:
            yield histogram.family(model_name)
        outcomes = CounterMetricFamily(
            "motley_requests", "Ended requests by outcome.", labels=["model_name", "outcome"]
        )
        for outcome, count in sorted(self.outcomes.items()):
            outcomes.add_metric([model_name, outcome], count)
        yield outcomes


class ServerCollector(Collector):
    """Joins request metrics with the scheduler's last counters at scrape time."""

    def __init__(
        self, model_name: str, requests: RequestMetrics, stats: Callable[[], Stats | None], up: Callable[[], bool]
    ) -> None:
        self._model_name = model_name
        self._requests = requests
        self._stats = stats
        self._up = up

    def collect(self) -> Iterable[Metric]:
        yield self._gauge("motley_up", "1 while requests are served.", float(self._up()))
        yield from self._requests.families(self._model_name)
        stats = self._stats()
        if stats is not None:
            yield from self._engine(stats)

    def _engine(self, stats: Stats) -> Iterable[Metric]:
        yield self._gauge("motley_requests_running", "Sequences in the running batch.", stats.running)
        yield self._gauge("motley_requests_waiting", "Sequences in the waiting queue.", stats.waiting)
        for name, help_text in _STAT_COUNTERS:
            counter = CounterMetricFamily(f"motley_{name}", help_text, labels=["model_name"])
            counter.add_metric([self._model_name], getattr(stats, name))
            yield counter
        hit_rate = stats.cached_tokens / stats.prompt_tokens if stats.prompt_tokens else 0.0
        yield self._gauge("motley_cache_hit_ratio", "Share of prompt tokens found in the prefix cache.", hit_rate)
        yield self._gauge("motley_leaked_pages", "Pages owned by nobody; anything but 0 is a bug.", stats.leaked_pages)
        pages = GaugeMetricFamily("motley_kv_pages", "KV pages by state.", labels=["model_name", "pool", "state"])
        for pool, state, value in (
            ("full", "total", stats.pages_total),
            ("full", "free", stats.pages_free),
            ("full", "cached", stats.pages_cached),
            ("window", "total", stats.window_pages_total),
            ("window", "free", stats.window_pages_free),
        ):
            pages.add_metric([self._model_name, pool, state], value)
        yield pages

    def _gauge(self, name: str, help_text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, help_text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family


def exposition(collector: ServerCollector) -> bytes:
    """The metrics page in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)
