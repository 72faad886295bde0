"""Times paged attention on a CUDA device: ``python -m motley_kernels.paged_attention.bench``.

Decode is bound by reading K and V: GB/s against a measured copy. Extend is bound by its matrix products: TFLOP/s
against a measured bf16 product. Inputs rotate through several pools, calls are replayed from a CUDA graph, and nothing
is reported unless the op's tests pass first. The last line is one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch
import triton

from motley_kernels.paged_attention import HeadMap, PagedBatch, paged_attention

# (query heads, kv heads, head size) as one rank of a known model sees them
MODELS = {"Qwen3-8B": (32, 8, 128), "Qwen3-0.6B": (16, 8, 128), "SmolLM2-135M": (9, 3, 64), "Gemma-3-270M": (4, 1, 256)}
# name: (q_len, kv_len) of every sequence
DECODES = {"1 x 1k": [(1, 1024)], "1 x 32k": [(1, 32768)], "64 x 1k": [(1, 1024)] * 64, "256 x 600": [(1, 600)] * 256}
EXTENDS = {
    "2k whole": [(2048, 2048)],
    "2k after 6k": [(2048, 8192)],
    "2k chunk + 63 decodes": [(2048, 2048)] + [(1, 1024)] * 63,
}
PAGE = 16
COPIES = 4
REPEATS = 20


def main() -> None:
    test = Path(__file__).with_name("test_paged_attention.py")
    options = ("-q", "-c", os.devnull, "--rootdir", test.parents[2])
    if subprocess.run([sys.executable, "-m", "pytest", *options, test]).returncode:
        sys.exit("the tests fail; no figures")
    copy, product = _peak_copy(), _peak_product()
    print(f"measured peaks: copy {copy:.0f} GB/s, bf16 product {product:.0f} TFLOP/s")
    rows = []
    for model, shape in MODELS.items():
        for name, lens in DECODES.items():
            low, median, high = _time(lens, *shape)
            rate = sum(kv for _, kv in lens) * shape[1] * shape[2] * 2 * 2 / median / 1e6
            rows.append(_row(model, f"decode {name}", (low, median, high), rate, "GB/s", rate / copy))
        for name, lens in EXTENDS.items():
            low, median, high = _time(lens, *shape)
            pairs = sum(q * kv - q * (q - 1) // 2 for q, kv in lens)
            rate = 4 * pairs * shape[0] * shape[2] / median / 1e9
            rows.append(_row(model, f"extend {name}", (low, median, high), rate, "TFLOP/s", rate / product))
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    versions = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    peaks = {"copy_gb_s": round(copy), "bf16_tflop_s": round(product)}
    print(json.dumps({"bench": "paged_attention", "commit": commit, **versions, **peaks, "rows": rows}))


def _row(model: str, case: str, ms: tuple[float, ...], rate: float, unit: str, share: float) -> dict[str, object]:
    low, median, high = ms
    spread = f"({low * 1e3:.1f} - {high * 1e3:.1f})"
    print(f"{model:14} {case:30} {median * 1e3:9.1f} us {spread:20} {rate:7.1f} {unit:8} {share:6.1%} of the peak")
    return {"model": model, "case": case, "us": round(median * 1e3, 1), unit: round(rate, 1), "share": round(share, 3)}


def _time(lens: list[tuple[int, int]], q_heads: int, kv_heads: int, size: int) -> tuple[float, float, float]:
    """20th percentile, median and 80th percentile of one call, in ms."""
    counts = [-(-kv // PAGE) for _, kv in lens]
    ends = list(accumulate(counts))
    order = (torch.randperm(ends[-1]) + 1).int()
    table = torch.zeros(len(lens), max(counts), dtype=torch.int32)
    for row, (end, count) in enumerate(zip(ends, counts, strict=True)):
        table[row, :count] = order[end - count : end]
    pools = [_random(2, ends[-1] + 1, PAGE, kv_heads, size) for _ in range(COPIES)]
    q = _random(sum(q for q, _ in lens), q_heads, size)
    batch = PagedBatch(
        page_table=table.cuda(),
        q_starts=torch.tensor([0, *accumulate(q for q, _ in lens)], dtype=torch.int32, device="cuda"),
        kv_lens=torch.tensor([kv for _, kv in lens], dtype=torch.int32, device="cuda"),
        decode=all(q == 1 for q, _ in lens),
        max_q=max(q for q, _ in lens),
        max_kv=max(kv for _, kv in lens),
    )

    def calls() -> None:
        for k, v in pools:
            paged_attention(q, k, v, batch, HeadMap(q_heads // kv_heads), scale=size**-0.5, backend="triton")

    return _replayed(calls, COPIES)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def _peak_copy() -> float:
    source = torch.ones(1 << 28, device="cuda")
    target = torch.empty_like(source)
    # a kernel: the copy engine behind copy_ is slower
    _, median, _ = _replayed(lambda: torch.neg(source, out=target), 1)
    return 2 * source.nbytes / median / 1e6


def _peak_product() -> float:
    a, b = _random(2, 8192, 8192)
    _, median, _ = _replayed(lambda: a @ b, 1)
    return float(2 * 8192**3 / median / 1e9)


def _replayed(calls: Callable[[], object], count: int) -> tuple[float, float, float]:
    """Percentiles of the time of one of the ``count`` calls in ``calls``, in ms, replayed from a graph."""
    calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    times = []
    for _ in range(REPEATS):
        start, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / count)
    times.sort()
    return times[REPEATS // 5], times[REPEATS // 2], times[-REPEATS // 5]


if __name__ == "__main__":
    main()
