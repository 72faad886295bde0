"""Paged attention in torch, quick enough to serve on a CPU.

Sequences with one new token are gathered into padded batches of similar length; longer ones run one by one in tiles of
queries, so that no mask grows with the square of a chunk. All index arithmetic is done once per step and pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from motley_kernels.paged_attention.batch import HeadMap, PagedBatch

_QUERY_TILE = 256
# a padded batch holds lengths from n to about 1.25 n and at most this many keys, which bounds its scratch memory
_PADDING = 1.25
_PADDING_KEYS = 32
_BATCH_KEYS = 65536


@dataclass(frozen=True, slots=True)
class _Single:
    """Sequences with one new token: ``tokens`` [b], ``slots`` [b * keys], additive ``mask`` [b, 1, 1, keys] or None."""

    tokens: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A sequence with several new tokens: ``tokens`` of the step, the position of the first, and the keys' slots from
    position ``key_start`` on."""

    tokens: slice
    position: int
    key_start: int
    slots: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Plan:
    singles: list[_Single]
    chunks: list[_Chunk]
    empty: list[slice]


def paged_attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    batch: PagedBatch,
    heads: HeadMap,
    scale: float,
    window: int,
    softcap: float,
) -> torch.Tensor:
    page_size = k_pool.shape[1]
    plan = batch.plans.get((page_size, window))
    if plan is None:
        plan = batch.plans[page_size, window] = _plan(batch, page_size, window)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if heads.uniform(q.shape[1]):
        used = heads.kv_heads(q.shape[1])
        _run(plan, q, k_pool[:, :, :used], v_pool[:, :, :used], window, scale, softcap, out)
        return out
    for head in range(heads.kv_heads(q.shape[1])):
        start, stop = heads.queries(head, q.shape[1])
        if start >= stop:
            continue
        pools = k_pool[:, :, head : head + 1], v_pool[:, :, head : head + 1]
        _run(plan, q[:, start:stop], *pools, window, scale, softcap, out[:, start:stop])
    return out


def _plan(batch: PagedBatch, page_size: int, window: int) -> _Plan:
    starts, kv_lens = batch.q_starts.tolist(), batch.kv_lens.tolist()
    singles: list[tuple[int, int]] = []
    plan = _Plan([], [], [])
    for row, kv_len in enumerate(kv_lens):
        q_len = starts[row + 1] - starts[row]
        tokens = slice(starts[row], starts[row + 1])
        if q_len == 0:
            continue
        if kv_len == 0:
            plan.empty.append(tokens)
        elif q_len == 1:
            singles.append((min(kv_len, window or kv_len), row))
        else:
            position = kv_len - q_len
            key_start = max(0, position + 1 - window) if window else 0
            positions = torch.arange(key_start, kv_len, device=batch.kv_lens.device)
            slots = _slots(batch.page_table[row : row + 1], positions[None], page_size)
            plan.chunks.append(_Chunk(tokens, position, key_start, slots))
    plan.singles.extend(_single(batch, rows, keys, page_size) for rows, keys in _similar(singles))
    return plan


def _similar(lengths: list[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Split (visible keys, row) pairs into lists of rows of similar length and their key counts."""
    groups: list[tuple[list[int], list[int]]] = []
    for count, row in sorted(lengths):
        rows, keys = groups[-1] if groups else ([], [])
        if not rows or count > keys[0] * _PADDING + _PADDING_KEYS or count * (len(rows) + 1) > _BATCH_KEYS:
            rows, keys = [], []
            groups.append((rows, keys))
        rows.append(row)
        keys.append(count)
    return groups


def _single(batch: PagedBatch, rows: list[int], keys: list[int], page_size: int) -> _Single:
    device = batch.kv_lens.device
    index = torch.tensor(rows, device=device)
    counts = torch.tensor(keys, device=device)[:, None]
    steps = torch.arange(keys[-1], device=device)[None]
    # padding repeats the sequence's last key, so that nothing unseen is ever read
    positions = batch.kv_lens[index].long()[:, None] - counts + torch.minimum(steps, counts - 1)
    mask = None
    if keys[0] != keys[-1]:
        mask = torch.zeros(len(rows), 1, 1, keys[-1], device=device)
        mask.masked_fill_((steps >= counts)[:, None, None], float("-inf"))
    return _Single(batch.q_starts[index].long(), _slots(batch.page_table[index], positions, page_size), mask)


def _slots(page_table: torch.Tensor, positions: torch.Tensor, page_size: int) -> torch.Tensor:
    """Flat slots of ``positions`` [b, keys] under ``page_table`` [b, columns], row after row."""
    pages = page_table.long().gather(1, positions // page_size)
    return (pages * page_size + positions % page_size).flatten()


def _run(
    plan: _Plan,
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    window: int,
    scale: float,
    softcap: float,
    out: torch.Tensor,
) -> None:
    """Attention of uniform heads into ``out`` [T, Hq, D]."""
    (_, q_heads, size), kv_heads = q.shape, k_pool.shape[2]
    group = q_heads // kv_heads
    for tokens in plan.empty:
        out[tokens] = 0.0
    for single in plan.singles:
        count = len(single.tokens)
        k, v = (_gather(pool, single.slots, q.dtype).view(count, -1, kv_heads, size) for pool in (k_pool, v_pool))
        # the heads of a group stand where queries stand: they share their keys
        queries = q[single.tokens].view(count, kv_heads, group, size)
        mask = None if single.mask is None else single.mask.to(q.dtype)
        result = _attend(queries, k.transpose(1, 2), v.transpose(1, 2), mask, scale, softcap)
        out[single.tokens] = result.reshape(count, q_heads, size)
    for chunk in plan.chunks:
        k, v = (_gather(pool, chunk.slots, q.dtype).transpose(0, 1)[:, None] for pool in (k_pool, v_pool))
        queries = q[chunk.tokens].view(-1, kv_heads, group, size).permute(1, 2, 0, 3)
        into = out[chunk.tokens].view(-1, kv_heads, group, size).permute(1, 2, 0, 3)
        _attend_chunk(chunk, queries, k, v, window, scale, softcap, into)


def _gather(pool: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Keys or values [len(slots), heads, D]."""
    # two-dimensional rows are copied about twice as fast
    rows = pool.flatten(0, 1).flatten(1).index_select(0, slots)
    return rows.view(-1, *pool.shape[2:]).to(dtype)


def _attend_chunk(
    chunk: _Chunk,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    window: int,
    scale: float,
    softcap: float,
    out: torch.Tensor,
) -> None:
    """Causal attention of ``q`` [Hkv, group, Q, D] over ``k``, ``v`` [Hkv, 1, keys, D] from ``chunk.key_start`` on."""
    group, count = q.shape[1], q.shape[2]
    for first in range(0, count, _QUERY_TILE):
        last = min(first + _QUERY_TILE, count)
        positions = torch.arange(chunk.position + first, chunk.position + last, device=q.device)
        low = max(chunk.key_start, chunk.position + first + 1 - window) if window else 0
        high = chunk.position + last
        keys = torch.arange(low, high, device=q.device)
        hidden = keys[None] > positions[:, None]
        if window:
            hidden |= keys[None] <= positions[:, None] - window
        mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device).masked_fill_(hidden, float("-inf"))
        span = slice(low - chunk.key_start, high - chunk.key_start)
        shared_k, shared_v = (x[:, :, span].expand(-1, group, -1, -1) for x in (k, v))
        out[:, :, first:last] = _attend(q[:, :, first:last], shared_k, shared_v, mask, scale, softcap)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scale: float, softcap: float
) -> torch.Tensor:
    """Attention over the last two dimensions with an additive mask; softmax in float32."""
    if not softcap:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    scores = q.float() @ k.float().transpose(-1, -2) * scale
    scores = softcap * torch.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    return (scores.softmax(-1) @ v.float()).to(q.dtype)
