"""Settles everything that can be known before a weight is read: model, cards, plan, partition, types, limits.

Done once, in the parent; the result is pickled to the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from motley_engine.config.architectures import generation_defaults, model_config
from motley_engine.config.check import check
from motley_engine.config.dtypes import SIZES, DtypeName, choose_dtype
from motley_engine.config.errors import ConfigError
from motley_engine.config.locate import locate_model, locate_tokenizer, served_name
from motley_engine.config.model import ModelConfig
from motley_engine.config.placement import DeviceKind, ListCards, Placement, check_free, place, visible_cards
from motley_engine.config.planned import planned_placement, read_plan
from motley_engine.config.ranks import RankFlags, parse_ranks
from motley_engine.config.schema import EngineConfig
from motley_planner.inventory import Card
from motley_planner.memory import Serving
from motley_planner.partition import ModelPartition, PartitionError, partition_model
from motley_planner.plan import Plan, ReplicaPlan
from motley_planner.request import PlanRefusedError, PlanRequest
from motley_planner.solve import plan_replica
from motley_planner.sources import ResolvedModel

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Resolved:
    """A replica ready to start. ``config`` has every default filled in that is known by now.

    Rank r runs on ``cards[r]`` with ``replica.ranks[r].budget_bytes`` in all. ``context_length`` is the longest
    sequence asked for; a pool that turns out smaller limits it further. ``generation`` holds the checkpoint's sampling
    defaults. ``tokenizer_path`` is None if the server runs without one.
    """

    config: EngineConfig
    model: ModelConfig
    source: ResolvedModel
    tokenizer_path: Path | None
    plan: Plan
    replica: ReplicaPlan
    partition: ModelPartition
    cards: tuple[Card, ...]
    device: DeviceKind
    dtype: torch.dtype
    kv_dtype: torch.dtype
    context_length: int
    serving: Serving
    generation: Mapping[str, Any]

    @property
    def world(self) -> int:
        return self.partition.world


def resolve(config: EngineConfig, list_cards: ListCards = visible_cards) -> Resolved:
    """Checks ``config``, finds model and cards, and plans the replica. ConfigError lists every fault of a stage."""
    check(config)
    source = locate_model(config.model)
    tokenizer = locate_tokenizer(config.model, source)
    model = model_config(source)
    context = _context_length(config, model)
    if config.parallel.plan:
        plan = read_plan(Path(config.parallel.plan))
        replica, placement = planned_placement(plan, config, model, list_cards)
        ranks = None
    else:
        ranks = parse_ranks(config.parallel)
        placement = place(config, ranks, list_cards)
    dtype = choose_dtype(config.model.dtype, source, placement.cards)
    kv_dtype = dtype if config.memory.kv_cache_dtype == "auto" else config.memory.kv_cache_dtype
    serving = _serving(config, placement.kind, context, dtype, kv_dtype)
    if ranks is not None:
        plan = _plan(config, ranks, placement, model, serving)
        replica = plan.group()
    budgets = [rank.budget_bytes // MIB for rank in replica.ranks]
    check_free(placement.cards, budgets, _budget_flag(config, placement.kind))
    return Resolved(
        config=_filled(config, source, placement, context, dtype, kv_dtype),
        model=model,
        source=source,
        tokenizer_path=tokenizer,
        plan=plan,
        replica=replica,
        partition=_partition(model, replica),
        cards=placement.cards,
        device=placement.kind,
        dtype=getattr(torch, dtype),
        kv_dtype=getattr(torch, kv_dtype),
        context_length=context,
        serving=serving,
        generation=generation_defaults(source),
    )


def _context_length(config: EngineConfig, model: ModelConfig) -> int:
    asked, pool = config.model.context_length, config.memory.max_total_tokens
    if asked is not None and asked > model.max_position:
        raise ConfigError(
            f"--context-length: {asked} exceeds the model's {model.max_position} positions; lower it, or use a "
            "checkpoint whose config scales its rope further"
        )
    return asked or min(model.max_position, pool or model.max_position)


def _serving(config: EngineConfig, kind: DeviceKind, context: int, dtype: DtypeName, kv_dtype: str) -> Serving:
    """What the memory model needs to know. A context that nobody asked for need not fit."""
    scheduler, runtime = config.scheduler, config.runtime
    graphs = kind == "cuda" and not runtime.disable_cuda_graph
    return Serving(
        context_length=config.model.context_length,
        max_running=scheduler.max_running_requests,
        page_size=config.memory.page_size,
        chunk=context if scheduler.chunked_prefill_size == -1 else min(scheduler.chunked_prefill_size, context),
        overlap=not scheduler.disable_overlap_schedule,
        graph_tokens=min(runtime.cuda_graph_max_bs, scheduler.max_running_requests) if graphs else 0,
        weight_size=SIZES[dtype],
        kv_size=SIZES[kv_dtype],
        activation_size=SIZES[dtype],
    )


def _plan(config: EngineConfig, ranks: RankFlags, placement: Placement, model: ModelConfig, serving: Serving) -> Plan:
    request = PlanRequest(
        facts=model.facts,
        cards=placement.cards,
        serving=serving,
        budgets_mib=placement.budgets_mib,
        ratio="auto" if ranks.tp_auto else ranks.tp_ratio or None,
        mlp_ratio=ranks.mlp_ratio,
        moe_ratio=ranks.moe_ratio,
        vocab_ratio="auto" if ranks.vocab_auto else ranks.vocab_ratio,
        reserve_mib=ranks.reserve or "auto",
    )
    try:
        plan = plan_replica(request)
    except PlanRefusedError as error:
        raise ConfigError(*error.messages) from error
    if plan.verdict == "infeasible":
        raise ConfigError(_shortfall(plan, _budget_flag(config, placement.kind)))
    return plan


def _shortfall(plan: Plan, flag: str) -> str:
    """What does not fit, and each single change that would make it fit."""
    reasons = "; ".join(binding.text for binding in plan.explain.binding)
    changes = "; or ".join(plan.explain.near_miss) or "use larger cards, more ranks or a smaller model"
    return f"{flag}: the model does not fit: {reasons}; {changes}"


def _budget_flag(config: EngineConfig, kind: DeviceKind) -> str:
    """The flag that decides how much a rank may use."""
    if config.parallel.plan:
        return "--plan"
    if config.parallel.rank_gpu_memory_mib:
        return "--rank-gpu-memory-mib"
    if kind == "cpu":
        return "--host-memory-fraction"
    automatic = config.parallel.rank_tp_ratio.strip() == "auto"
    return "--rank-auto-reserve-mib" if automatic else "--mem-fraction-static"


def _partition(model: ModelConfig, replica: ReplicaPlan) -> ModelPartition:
    try:
        return partition_model(model.facts, replica.stages[0].vectors)
    except PartitionError as error:
        raise ConfigError(f"--plan: does not fit the model: {error}; plan again for this model") from error


def _filled(
    config: EngineConfig, source: ResolvedModel, placement: Placement, context: int, dtype: str, kv_dtype: str
) -> EngineConfig:
    """The configuration as it is in force."""
    backend = config.runtime.attention_backend
    chosen = ("triton" if placement.kind == "cuda" else "torch") if backend == "auto" else backend
    load_format = config.model.load_format
    return config.model_copy(
        update={
            "model": config.model.model_copy(
                update={
                    "served_model_name": config.model.served_model_name or served_name(config.model.model_path),
                    "load_format": source.format if load_format == "auto" else load_format,
                    "dtype": dtype,
                    "context_length": context,
                }
            ),
            "parallel": config.parallel.model_copy(update={"device": placement.kind, "tp_size": len(placement.cards)}),
            "memory": config.memory.model_copy(update={"kv_cache_dtype": kv_dtype}),
            "runtime": config.runtime.model_copy(update={"attention_backend": chosen}),
        }
    )
