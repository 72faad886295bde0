"""Paged attention in Triton.

Decode: one program per sequence, K/V head and split of the keys, then a merge. Extend: one program per tile of queries
and K/V head, walking the keys once. Grids depend on tensor shapes only, so that both can be captured in a CUDA graph;
programs without work leave at once.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

from motley_kernels.paged_attention.batch import HeadMap, PagedBatch

_LOG2E = 1.4426950408889634
_MAX_SPLITS = 64
# keys under which another split costs more than it hides
_MIN_SPLIT_KEYS = 256


@triton.jit
def _attend_block(
    b_q, b_m, b_l, b_o, p_k, p_v, p_table_row, i_kv, b_position, key, high, scale, window, softcap,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax: keys [key, key + BLOCK_N) against the rows of b_q."""
    o_n = key + tl.arange(0, BLOCK_N)
    o_d = tl.arange(0, BLOCK_D)
    in_range = o_n < high
    b_page = tl.load(p_table_row + o_n // PAGE, mask=in_range, other=0).to(tl.int64)
    o_slot = ((b_page * PAGE + o_n % PAGE) * KV_HEADS + i_kv) * D
    b_k = tl.load(p_k + o_slot[None, :] + o_d[:, None], mask=in_range[None, :] & (o_d < D)[:, None], other=0.0)
    b_s = tl.dot(b_q, b_k.to(b_q.dtype), input_precision="ieee") * scale
    if CAPPED:
        # softcap * tanh(s / softcap) * log2(e); scale carries 1 / softcap here and no log2(e)
        b_s = softcap * (1.0 - 2.0 / (tl.exp(2.0 * b_s) + 1.0))
    visible = in_range[None, :] & (o_n[None, :] <= b_position[:, None])
    if WINDOWED:
        visible = visible & (o_n[None, :] > b_position[:, None] - window)
    b_s = tl.where(visible, b_s, float("-inf"))

    b_m_new = tl.maximum(b_m, tl.max(b_s, axis=1))
    # a row that has seen no key yet keeps -inf; shift by 0 there, -inf - -inf is not a number
    b_shift = tl.where(b_m_new == float("-inf"), 0.0, b_m_new)
    b_p = tl.exp2(b_s - b_shift[:, None])
    b_decay = tl.exp2(b_m - b_shift)
    b_v = tl.load(p_v + o_slot[:, None] + o_d[None, :], mask=in_range[:, None] & (o_d < D)[None, :], other=0.0)
    b_o = b_o * b_decay[:, None]
    b_o = tl.dot(b_p.to(b_q.dtype), b_v.to(b_q.dtype), b_o, input_precision="ieee")
    return b_m_new, b_l * b_decay + tl.sum(b_p, axis=1), b_o


@triton.jit
def _decode_kernel(
    p_q, p_k, p_v, p_o, p_lse, p_table, p_kv_lens, stride_q_token, stride_q_head, stride_table,
    scale, window, softcap,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, OFFSET: tl.constexpr, SPLITS: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    i_b = tl.program_id(0).to(tl.int64)
    i_kv = tl.program_id(1)
    i_split = tl.program_id(2)
    kv_len = tl.load(p_kv_lens + i_b)
    o_h = tl.arange(0, BLOCK_H)
    o_d = tl.arange(0, BLOCK_D)
    i_h = i_kv * GROUP - OFFSET + o_h
    rows = (o_h < GROUP) & (i_h >= 0) & (i_h < Q_HEADS)
    mask = rows[:, None] & (o_d < D)[None, :]

    low = 0
    if WINDOWED:
        low = tl.maximum(kv_len - window, 0)
    share = tl.cdiv(tl.cdiv(kv_len - low, SPLITS), BLOCK_N) * BLOCK_N
    start = low + i_split * share
    high = tl.minimum(start + share, kv_len)

    p_q += i_b * stride_q_token
    b_q = tl.load(p_q + (i_h * stride_q_head)[:, None] + o_d[None, :], mask=mask, other=0.0)
    b_position = tl.zeros([BLOCK_H], tl.int32) + (kv_len - 1)
    b_m = tl.full([BLOCK_H], float("-inf"), tl.float32)
    b_l = tl.zeros([BLOCK_H], tl.float32)
    b_o = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for key in range(start, high, BLOCK_N):
        b_m, b_l, b_o = _attend_block(
            b_q, b_m, b_l, b_o, p_k, p_v, p_table + i_b * stride_table, i_kv, b_position, key, high,
            scale, window, softcap, KV_HEADS, D, PAGE, BLOCK_N, BLOCK_D, WINDOWED, CAPPED,
        )  # fmt: skip
    b_o = b_o / tl.where(b_l > 0.0, b_l, 1.0)[:, None]
    o_out = (i_b * Q_HEADS + i_h) * SPLITS + i_split
    width = D
    if SPLITS > 1:
        # the merge passes over parts without keys, by their lse of -inf
        width = tl.where(start < high, D, 0)
        tl.store(p_lse + o_out, b_m + tl.log2(tl.where(b_l > 0.0, b_l, 1.0)), mask=rows)
    mask = rows[:, None] & (o_d < width)[None, :]
    tl.store(p_o + (o_out * D)[:, None] + o_d[None, :], b_o.to(p_o.dtype.element_ty), mask=mask)


@triton.jit
def _merge_kernel(
    p_parts, p_lse, p_o, SPLITS: tl.constexpr, BLOCK_S: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    o_s = tl.arange(0, BLOCK_S)
    o_d = tl.arange(0, BLOCK_D)
    b_lse = tl.load(p_lse + i_row * SPLITS + o_s, mask=o_s < SPLITS, other=float("-inf"))
    b_max = tl.max(b_lse, axis=0)
    b_weight = tl.exp2(b_lse - tl.where(b_max == float("-inf"), 0.0, b_max))
    mask = (b_weight > 0.0)[:, None] & (o_d < D)[None, :]
    b_parts = tl.load(p_parts + ((i_row * SPLITS + o_s) * D)[:, None] + o_d[None, :], mask=mask, other=0.0)
    b_total = tl.sum(b_weight, axis=0)
    b_o = tl.sum(b_parts * b_weight[:, None], axis=0) / tl.where(b_total > 0.0, b_total, 1.0)
    tl.store(p_o + i_row * D + o_d, b_o.to(p_o.dtype.element_ty), mask=o_d < D)


@triton.jit(do_not_specialize=["sequences"])
def _extend_kernel(
    p_q, p_k, p_v, p_o, p_table, p_q_starts, p_kv_lens, sequences, stride_q_token, stride_q_head, stride_table,
    scale, window, softcap,
    Q_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, OFFSET: tl.constexpr,
    D: tl.constexpr, PAGE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    # tiles of sequence b start at q_starts[b] // BLOCK_Q + b: increasing, and room enough for a ragged last tile
    i_tile = tl.program_id(0)
    i_kv = tl.program_id(1)
    left = 0
    right = sequences
    while left < right:
        middle = (left + right) // 2
        if tl.load(p_q_starts + middle) // BLOCK_Q + middle <= i_tile:
            left = middle + 1
        else:
            right = middle
    i_b = tl.cast(left - 1, tl.int64)
    q_start = tl.load(p_q_starts + i_b)
    q_len = tl.load(p_q_starts + i_b + 1) - q_start
    first = (i_tile - (q_start // BLOCK_Q + left - 1)) * BLOCK_Q
    if first >= q_len:
        return
    kv_len = tl.load(p_kv_lens + i_b)

    # a row is one query head of one token; the heads of a group lie side by side and share the keys
    o_m = tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    i_q = first + o_m // GROUP
    i_h = i_kv * GROUP - OFFSET + o_m % GROUP
    rows = (o_m < BLOCK_Q * GROUP) & (i_q < q_len) & (i_h >= 0) & (i_h < Q_HEADS)
    mask = rows[:, None] & (o_d < D)[None, :]
    i_t = (q_start + i_q).to(tl.int64)
    b_q = tl.load(p_q + (i_t * stride_q_token + i_h * stride_q_head)[:, None] + o_d[None, :], mask=mask, other=0.0)
    b_position = kv_len - q_len + i_q

    low = 0
    if WINDOWED:
        low = tl.maximum(kv_len - q_len + first - window + 1, 0)
    high = tl.minimum(kv_len - q_len + first + BLOCK_Q, kv_len)
    b_m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    b_l = tl.zeros([BLOCK_M], tl.float32)
    b_o = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for key in range(low, high, BLOCK_N):
        b_m, b_l, b_o = _attend_block(
            b_q, b_m, b_l, b_o, p_k, p_v, p_table + i_b * stride_table, i_kv, b_position, key, high,
            scale, window, softcap, KV_HEADS, D, PAGE, BLOCK_N, BLOCK_D, WINDOWED, CAPPED,
        )  # fmt: skip
    b_o = b_o / tl.where(b_l > 0.0, b_l, 1.0)[:, None]
    tl.store(p_o + ((i_t * Q_HEADS + i_h) * D)[:, None] + o_d[None, :], b_o.to(p_o.dtype.element_ty), mask=mask)


def paged_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    batch: PagedBatch,
    heads: HeadMap,
    scale: float,
    window: int,
    softcap: float,
    splits: int | None = None,
) -> torch.Tensor:
    """``splits`` overrides the number of key splits of a decode batch."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if q.numel() == 0:
        return out
    # scores leave the dot in the base of exp2; with a cap, tanh wants score / cap and the cap carries the base
    factors = (scale / softcap, window, softcap * _LOG2E) if softcap else (scale * _LOG2E, window, 0.0)
    shape = {
        "Q_HEADS": q.shape[1], "KV_HEADS": k_pool.shape[2], "GROUP": heads.group, "OFFSET": heads.offset,
        "D": q.shape[2], "PAGE": k_pool.shape[1], "BLOCK_D": max(16, triton.next_power_of_2(q.shape[2])),
        "WINDOWED": window > 0, "CAPPED": softcap > 0,
    }  # fmt: skip
    if batch.decode:
        _decode(q, k_pool, v_pool, batch, heads, factors, shape, out, splits)
    else:
        _extend(q, k_pool, v_pool, batch, heads, factors, shape, out)
    return out


def _decode(q, k_pool, v_pool, batch, heads, factors, shape, out, splits):
    sequences, q_heads, size = q.shape
    kv_heads = heads.kv_heads(q_heads)
    splits = splits or _splits(sequences * kv_heads, factors[1] or batch.max_kv, q.device)
    if splits == 1:
        parts, lse = out, None
    else:
        parts = torch.empty(sequences, q_heads, splits, size, dtype=torch.float32, device=q.device)
        lse = torch.empty(sequences, q_heads, splits, dtype=torch.float32, device=q.device)
    wide = shape["BLOCK_D"] >= 256
    _decode_kernel[(sequences, kv_heads, splits)](
        q, k_pool, v_pool, parts, lse, batch.page_table, batch.kv_lens, q.stride(0), q.stride(1),
        batch.page_table.stride(0), *factors, SPLITS=splits, BLOCK_H=max(16, triton.next_power_of_2(heads.group)),
        BLOCK_N=32 if wide else 64, num_warps=4, num_stages=2 if wide else 3, **shape,
    )  # fmt: skip
    if lse is not None:
        _merge_kernel[(sequences * q_heads,)](
            parts, lse, out, SPLITS=splits, BLOCK_S=triton.next_power_of_2(splits), D=size, BLOCK_D=shape["BLOCK_D"]
        )


def _extend(q, k_pool, v_pool, batch, heads, factors, shape, out):
    wide = shape["BLOCK_D"] >= 256
    block_m = max(64 if wide else 128, triton.next_power_of_2(heads.group))
    block_q = block_m // heads.group
    sequences = len(batch.kv_lens)
    _extend_kernel[(len(q) // block_q + sequences, heads.kv_heads(q.shape[1]))](
        q, k_pool, v_pool, out, batch.page_table, batch.q_starts, batch.kv_lens, sequences, q.stride(0), q.stride(1),
        batch.page_table.stride(0), *factors, BLOCK_Q=block_q, BLOCK_M=block_m, BLOCK_N=32 if wide else 64,
        num_warps=8, num_stages=2, **shape,
    )  # fmt: skip


def _splits(programs: int, max_kv: int, device: torch.device) -> int:
    """Splits that give every multiprocessor two programs, unless the keys run out first."""
    wanted = -(-2 * _multiprocessors(device) // programs)
    return max(1, min(wanted, -(-max_kv // _MIN_SPLIT_KEYS), _MAX_SPLITS))


@cache
def _multiprocessors(device: torch.device) -> int:
    # the interpreter has none; any number will do there
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 16
