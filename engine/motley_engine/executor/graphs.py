"""CUDA graphs of the decode step, one per batch bucket. Inputs are three static vectors; everything else is derived
inside the graph, so a replay costs one small copy and one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from motley_engine.executor.inputs import Tables
from motley_engine.executor.step import StepKind
from motley_engine.executor.wire import Frame
from motley_engine.models import Model


def buckets(largest: int) -> tuple[int, ...]:
    """Batch sizes to capture: 1, 2, 4, then every multiple of 8 up to ``largest``, which is always the last."""
    sizes = {size for size in (1, 2, 4, *range(8, largest, 8)) if size < largest}
    return (*sorted(sizes), largest)


@dataclass(slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    hidden: torch.Tensor


class DecodeGraphs:
    """Captured decode steps of a worker's model and tables, sharing one memory pool and one set of inputs."""

    def __init__(self, model: Model, tables: Tables, largest: int, max_context: int) -> None:
        self._model = model
        self._tables = tables
        self._largest = largest
        self._max_context = max_context
        device = tables.last_tokens.device
        # rows, kv_lens, tokens; unused places are padding: the sink row with kv length 0
        self._static = torch.zeros(3, largest, dtype=torch.int32, device=device)
        self._padding = torch.tensor([[tables.padding_row], [0], [0]], dtype=torch.int32, device=device)
        self._captured: dict[int, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()

    @torch.inference_mode()
    def capture(self, progress: Callable[[int, int], None]) -> None:
        """Capture every bucket, the largest first so that the others fit into its memory."""
        sizes = sorted(buckets(self._largest), reverse=True)
        for done, size in enumerate(sizes):
            self._captured[size] = self._capture(size)
            progress(done + 1, len(sizes))

    @torch.inference_mode()
    def capture_largest(self) -> None:
        """Capture the largest bucket alone, to learn what the graphs cost."""
        self._captured[self._largest] = self._capture(self._largest)

    def covers(self, frame: Frame) -> bool:
        return frame.kind is StepKind.DECODE and 0 < frame.count("rows") <= self._largest

    def run(self, payload: torch.Tensor, frame: Frame) -> torch.Tensor:
        """Replay ``frame``. The hidden states [bucket, hidden] are valid until the next replay."""
        count = frame.count("rows")
        size = next(size for size in sorted(self._captured) if size >= count)
        spans = frame.spans()
        self._static[:, :size] = self._padding
        for place, name in enumerate(("rows", "kv_lens", "tokens")):
            self._static[place, :count] = payload[spans[name]]
        captured = self._captured[size]
        captured.graph.replay()
        return captured.hidden

    def _forward(self, size: int) -> torch.Tensor:
        rows, kv_lens, tokens = self._static[:, :size].unbind(0)
        context = self._tables.decode_context(rows, kv_lens, self._max_context)
        return self._model.forward(self._tables.resolve(tokens), context)

    def _capture(self, size: int) -> _Captured:
        self._static[:, :size] = self._padding
        # the first run outside the graph compiles kernels and sets up libraries and communicators
        self._forward(size)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            hidden = self._forward(size)
        return _Captured(graph, hidden)
