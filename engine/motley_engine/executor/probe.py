"""One worst-case step on a throwaway pool: what a CUDA rank needs beside weights and KV pages."""

from __future__ import annotations

import gc

import numpy as np
import torch

from motley_engine.cache.pools import KVPools
from motley_engine.comm.collectives import Collectives
from motley_engine.config.resolve import Resolved
from motley_engine.executor.graphs import DecodeGraphs
from motley_engine.executor.memory import Measured
from motley_engine.executor.step import Geometry, SamplingPlan, StepKind, StepPlan
from motley_engine.executor.wire import pack
from motley_engine.executor.worker import Worker
from motley_engine.models import Model
from motley_engine.sampling.sampler import chunk_rows
from motley_planner.memory import MIB

# what the caching allocator may lose to fragmentation between the measured step and real ones
_MARGIN = 256 * MIB


def probe(
    model: Model, resolved: Resolved, rank: int, comm: Collectives, device: torch.device, before: int
) -> Measured:
    """Measure on ``device``, of which the allocator held ``before`` bytes when the model was built; every rank of the
    group calls this at the same time, since the step has collectives.

    Peaks are the allocator's reserved bytes, which include its rounding; ``work`` is what the card holds beyond the
    allocator's share and what others held before the start (context, communicators, libraries).
    """
    loaded = torch.cuda.memory_allocated(device)
    geometry = _throwaway(resolved)
    pools = KVPools.build(geometry, resolved.model, resolved.partition, rank, resolved.kv_dtype, device)
    worker = Worker(model, pools, geometry, comm, device)
    state = torch.cuda.memory_allocated(device) - loaded - pools.nbytes
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    idle = torch.cuda.memory_reserved(device)
    plan, sampling = worst_step(geometry, resolved.serving.chunk)
    worker.step(pack(plan), sampling if rank == 0 else None)
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device) - idle
    graphs = _graph_bytes(model, worker, resolved, device)
    others = resolved.cards[rank].used_mib * MIB
    free, total = torch.cuda.mem_get_info(device)
    work = max(0, total - free - others - torch.cuda.memory_reserved(device)) + _MARGIN
    del worker, pools
    gc.collect()
    torch.cuda.empty_cache()
    return Measured(weights=loaded - before, state=state, peak=peak, graphs=graphs, work=work)


def worst_step(geometry: Geometry, chunk: int) -> tuple[StepPlan, SamplingPlan]:
    """A full chunk of one sequence beside a decode token of every other row at full context, all sampled with filters,
    and as many scored prompt tokens as are handled at once. Every page is the sink."""
    rows = geometry.max_running
    q_lens = np.ones(rows, np.int32)
    q_lens[0] = chunk
    kv_lens = np.full(rows, geometry.max_context, np.int32)
    kv_lens[0] = chunk
    scored = min(chunk, chunk_rows(geometry.vocab_size))
    plan = StepPlan(
        seq=0,
        kind=StepKind.EXTEND,
        rows=np.arange(rows, dtype=np.int32),
        q_lens=q_lens,
        kv_lens=kv_lens,
        tokens=np.zeros(int(q_lens.sum()), np.int32),
        sample=np.arange(rows, dtype=np.int32),
        score=np.arange(scored, dtype=np.int32),
    )
    sampling = SamplingPlan(
        temperature=np.ones(rows, np.float32),
        top_k=np.full(rows, -1, np.int32),
        top_p=np.full(rows, 0.9, np.float32),
        min_p=np.zeros(rows, np.float32),
        uniform=np.full(rows, 0.5, np.float32),
        state=np.ones(rows, np.bool_),
        top_logprobs=np.full(rows, 20, np.int32),
        score_targets=np.zeros(scored, np.int32),
        score_top=np.full(scored, 20, np.int32),
    )
    return plan, sampling


def _throwaway(resolved: Resolved) -> Geometry:
    kinds = set(resolved.model.layer_types)
    return Geometry(
        page_size=resolved.serving.page_size,
        full_pages=2 if "full" in kinds else 0,
        window_pages=2 if "sliding" in kinds else 0,
        window=resolved.model.sliding_window,
        max_running=resolved.serving.max_running,
        max_context=resolved.context_length,
        vocab_size=resolved.model.vocab_size,
    )


def _graph_bytes(model: Model, worker: Worker, resolved: Resolved, device: torch.device) -> int:
    """What the largest decode graph keeps; the smaller ones are captured into its memory."""
    if not resolved.serving.graph_tokens:
        return 0
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    graphs = DecodeGraphs(model, worker.tables, resolved.serving.graph_tokens, resolved.context_length)
    graphs.capture_largest()
    torch.cuda.empty_cache()
    return max(0, free - torch.cuda.mem_get_info(device)[0])
