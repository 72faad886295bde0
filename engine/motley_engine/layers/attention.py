"""Self-attention of one rank: its query heads, the K/V heads they use, its pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from motley_engine.cache.pools import KVPools
from motley_engine.layers.build import Build, scaled
from motley_engine.layers.context import AttentionMeta, ForwardContext
from motley_engine.layers.linear import ColumnParallel, RowParallel
from motley_engine.layers.norm import RMSNorm
from motley_engine.layers.rotary import Rotary
from motley_engine.loader.checkpoint import Piece
from motley_kernels.kv_write import kv_write
from motley_kernels.paged_attention import HeadMap, PagedBatch, paged_attention
from motley_kernels.rope import rope


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """What all layers of one type share in a step."""

    cos: torch.Tensor
    sin: torch.Tensor
    slots: torch.Tensor
    batch: PagedBatch

    @classmethod
    def of(cls, ctx: ForwardContext, meta: AttentionMeta, rotary: Rotary) -> AttentionStep:
        cos, sin = rotary.angles(ctx.positions)
        batch = PagedBatch(meta.page_table, ctx.q_starts, ctx.kv_lens, ctx.decode, ctx.max_q, ctx.max_kv)
        return cls(cos, sin, meta.slots, batch)


class Attention:
    """Fused q|k|v projection, optional q/k norms, rotary embedding, K/V write, paged attention, output projection.

    ``name`` is the checkpoint prefix of layer ``index``'s attention. ``bind_cache`` must come before the first step.
    """

    def __init__(self, build: Build, index: int, name: str, *, qkv_bias: bool, o_bias: bool, qk_norm: bool) -> None:
        config, heads = build.config, build.partition.heads
        q, kv = heads.q_shard(build.rank), heads.kv_shard(build.rank)
        group = config.num_q_heads // config.num_kv_heads
        self._index = index
        self._backend = build.backend
        self._head_dim = config.head_dim
        self._heads = HeadMap(group, q.start - kv.start * group)
        self._scale = config.query_scale or config.head_dim**-0.5
        self._window = config.sliding_window if config.layer_types[index] == "sliding" else 0
        self._softcap = config.attention_softcap
        self._pools: tuple[torch.Tensor, torch.Tensor] | None = None

        q_features, kv_features = scaled(q, config.head_dim), scaled(kv, config.head_dim)
        parts = {f"{name}.q_proj": q_features, f"{name}.k_proj": kv_features, f"{name}.v_proj": kv_features}
        self._qkv = ColumnParallel(build, config.hidden_size, parts, qkv_bias)
        self._o = RowParallel(build, f"{name}.o_proj", q_features, config.hidden_size, o_bias)
        self._q_norm = RMSNorm(build, f"{name}.q_norm", config.head_dim) if qk_norm else None
        self._k_norm = RMSNorm(build, f"{name}.k_norm", config.head_dim) if qk_norm else None

    def bind_cache(self, pools: KVPools) -> None:
        self._pools = pools.layers[self._index]

    def __call__(self, x: torch.Tensor, step: AttentionStep) -> torch.Tensor:
        """[T, hidden] to [T, hidden], summed over the ranks; the tokens' K/V are in the pool afterwards."""
        if self._pools is None:
            raise RuntimeError(f"layer {self._index}: forward before bind_cache")
        parts = torch.split(self._qkv(x), self._qkv.sizes, dim=-1)
        q, k, v = (
            part.view(len(x), size // self._head_dim, self._head_dim)
            for part, size in zip(parts, self._qkv.sizes, strict=True)
        )
        if self._q_norm is not None and self._k_norm is not None:
            q, k = self._q_norm(q), self._k_norm(k)
        rope(q, k, step.cos, step.sin, backend=self._backend)
        kv_write(k, v, *self._pools, step.slots, backend=self._backend)
        out = paged_attention(
            q,
            *self._pools,
            step.batch,
            self._heads,
            scale=self._scale,
            window=self._window,
            softcap=self._softcap,
            backend=self._backend,
        )
        return self._o(out.flatten(1))

    def pieces(self) -> Iterator[Piece]:
        yield from self._qkv.pieces()
        yield from self._o.pieces()
        for norm in (self._q_norm, self._k_norm):
            if norm is not None:
                yield from norm.pieces()
