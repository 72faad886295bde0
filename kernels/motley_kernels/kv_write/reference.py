"""K/V scatter in plain torch."""

from __future__ import annotations

import torch


def kv_write(k: torch.Tensor, v: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, slots: torch.Tensor) -> None:
    for tokens, pool in ((k, k_pool), (v, v_pool)):
        pool.flatten(0, 1).index_copy_(0, slots, tokens.to(pool.dtype))
