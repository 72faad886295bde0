"""Conflicts that the settings alone reveal, before a device or a model is looked at.

Each message names the flag, the value, the fault and the way out. All faults are reported together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from motley_engine.config.errors import ConfigError, raise_all
from motley_engine.config.flags import Flag, all_flags
from motley_engine.config.ranks import RankFlags, parse_ranks
from motley_engine.config.schema import EngineConfig, ParallelSection
from motley_engine.sampling.params import SamplingParams

FIXED_BY_PLAN = (
    "tp_size",
    "rank_gpu_id",
    "rank_gpu_memory_mib",
    "rank_tp_ratio",
    "rank_auto_reserve_mib",
    "rank_mlp_ratio",
    "rank_moe_ratio",
    "rank_vocab_ratio",
)
"""Flags of the parallel section that a plan decides; giving both would make two sources for one setting."""

SAMPLING_KEYS = frozenset(SamplingParams.__struct_fields__) | {
    "stop",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
}

MAX_PAGE = 256


def check(config: EngineConfig) -> None:
    """Raises one ConfigError with every conflict found."""
    raise_all((*_model(config), *_ranks(config), *_memory(config), *_scheduler(config), *_rest(config)))


def read_api_key(value: str) -> str:
    """The key itself: the value, or the first line of FILE for ``@FILE``. ConfigError if unreadable or empty."""
    if not value.startswith("@"):
        return value
    path = Path(value[1:])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key: cannot read {path}: {error}; give the path of a text file after @") from None
    if not lines or not lines[0].strip():
        raise ConfigError(f"--api-key: {path} has no key in its first line; write the key there")
    return lines[0].strip()


def _given(config: EngineConfig, name: str) -> bool:
    """The user set the field, whatever the value."""
    return any(
        name in part.model_fields_set for part in (getattr(config, section) for section in type(config).model_fields)
    )


def _flag_of(name: str) -> Flag:
    return next(flag for flag in all_flags() if flag.field == name)


def _model(config: EngineConfig) -> Iterator[str]:
    model = config.model
    if not model.model_path:
        yield "--model-path: not given; name a model, e.g. hf://org/name, a directory or a .gguf file"
    if model.chat_template and not Path(model.chat_template).is_file():
        yield f"--chat-template: no file {model.chat_template!r}; give the path of a Jinja template"
    if model.preferred_sampling_params:
        yield from _sampling_defaults(model.preferred_sampling_params)


def _sampling_defaults(text: str) -> Iterator[str]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        yield f'--preferred-sampling-params: not valid JSON: {error}; give an object such as {{"temperature": 0.7}}'
        return
    if not isinstance(values, dict):
        yield f'--preferred-sampling-params: {text} is not an object; give one such as {{"temperature": 0.7}}'
        return
    for key in sorted(set(values) - SAMPLING_KEYS):
        yield f"--preferred-sampling-params: unknown key {key!r}; known: {', '.join(sorted(SAMPLING_KEYS))}"


def _ranks(config: EngineConfig) -> Iterator[str]:
    parallel = config.parallel
    if parallel.plan:
        yield from _with_plan(config)
        return
    if parallel.group:
        yield f"--group: {parallel.group!r} names a replica of a plan, but no --plan is given; give it or drop --group"
    try:
        ranks = parse_ranks(parallel)
    except ConfigError as error:
        yield from error.messages
        return
    yield from _lengths(parallel, ranks)
    yield from _placement(config, ranks)
    yield from _ratios(parallel, ranks)


def _with_plan(config: EngineConfig) -> Iterator[str]:
    parallel = config.parallel
    if not Path(parallel.plan).is_file():
        yield f"--plan: no file {parallel.plan!r}; write one with motley plan --output FILE"
    for name in FIXED_BY_PLAN:
        if _given(config, name) and getattr(parallel, name) != _flag_of(name).default:
            yield f"--plan: also sets what {_flag_of(name).name} sets; drop {_flag_of(name).name} or the plan"
    if config.memory.mem_fraction_static is not None:
        yield "--plan: its ranks have budgets in bytes; drop --mem-fraction-static or the plan"


def _lengths(parallel: ParallelSection, ranks: RankFlags) -> Iterator[str]:
    lists = {
        "--rank-gpu-id": (len(parallel.rank_gpu_id), "one GPU per rank"),
        "--rank-gpu-memory-mib": (len(parallel.rank_gpu_memory_mib), "one value for all ranks, or one per rank"),
        "--rank-tp-ratio": (len(ranks.tp_ratio), "one weight per rank"),
        "--rank-auto-reserve-mib": (len(ranks.reserve), "one value for all ranks, or one per rank"),
        "--rank-mlp-ratio": (len(ranks.mlp_ratio), "one weight per rank"),
        "--rank-moe-ratio": (len(ranks.moe_ratio), "one weight per rank"),
        "--rank-vocab-ratio": (len(ranks.vocab_ratio), "one weight per rank"),
    }
    scalars = {"--rank-gpu-memory-mib", "--rank-auto-reserve-mib"}
    source = f"--tp-size {ranks.world}" if parallel.tp_size else f"{ranks.world} ranks (the longest rank list)"
    for flag, (length, what) in lists.items():
        if length in (0, ranks.world) or (length == 1 and flag in scalars):
            continue
        yield f"{flag}: {length} {'entry' if length == 1 else 'entries'} for {source}; give {what}"


def _placement(config: EngineConfig, ranks: RankFlags) -> Iterator[str]:
    parallel = config.parallel
    gpus, budgets = parallel.rank_gpu_id, parallel.rank_gpu_memory_mib
    if gpus and parallel.device == "cpu":
        yield "--rank-gpu-id: names GPUs, but --device is cpu; drop one of them"
    for gpu in gpus:
        if gpu.startswith("-"):
            yield f"--rank-gpu-id: {gpu} is negative; give a CUDA index or a GPU UUID"
    yield from _repeats(gpus)
    for budget in budgets:
        if budget <= 0:
            yield f"--rank-gpu-memory-mib: {budget} is not positive; give the MiB a rank may use in all"
    if budgets and config.memory.mem_fraction_static is not None:
        yield "--rank-gpu-memory-mib: absolute budgets exclude --mem-fraction-static; drop one of them"
    if budgets and not gpus and parallel.device == "cuda":
        yield "--rank-gpu-memory-mib: needs --rank-gpu-id to say whose budgets these are; give one GPU per rank"
    if len(set(budgets)) > 1 and not ranks.uneven:
        yield (
            "--rank-gpu-memory-mib: unequal budgets with an even split would leave memory unused; "
            "add --rank-tp-ratio auto or give one value"
        )
    if gpus and not budgets and not ranks.tp_auto:
        yield "--rank-gpu-id: needs --rank-gpu-memory-mib or --rank-tp-ratio auto; give one of them"


def _repeats(gpus: tuple[str, ...]) -> Iterator[str]:
    for gpu in dict.fromkeys(gpus):
        holders = [str(rank) for rank, name in enumerate(gpus) if name == gpu]
        if len(holders) > 1:
            yield co_location(gpu, holders)


def co_location(gpu: str, ranks: list[str]) -> str:
    """Why two ranks on one GPU are refused, and the way out."""
    return (
        f"--rank-gpu-id: ranks {','.join(ranks)} share GPU {gpu}; co-located ranks need NCCL 2.30.7 or newer with "
        "NCCL_MULTI_RANK_GPU_ENABLE=1 and a running MPS daemon, and are not configured here; give each rank its own GPU"
    )


def _ratios(parallel: ParallelSection, ranks: RankFlags) -> Iterator[str]:
    if ranks.tp_ratio and len(set(ranks.tp_ratio)) == 1:
        yield f"--rank-tp-ratio: {parallel.rank_tp_ratio} is an even split; drop the flag"
    if ranks.tp_auto and parallel.device == "cuda" and not parallel.rank_gpu_id:
        yield "--rank-tp-ratio: auto needs --rank-gpu-id to know the cards; give one GPU per rank"
    if ranks.tp_auto and parallel.device == "cpu" and not parallel.rank_gpu_memory_mib:
        yield "--rank-tp-ratio: auto on CPU needs --rank-gpu-memory-mib as pretend budgets; give one per rank"
    if ranks.reserve and not ranks.tp_auto:
        yield "--rank-auto-reserve-mib: only used by --rank-tp-ratio auto; drop it or set the ratio to auto"
    families = {
        "--rank-mlp-ratio": bool(ranks.mlp_ratio),
        "--rank-moe-ratio": bool(ranks.moe_ratio),
        "--rank-vocab-ratio": bool(ranks.vocab_ratio) or ranks.vocab_auto,
    }
    for flag, given in families.items():
        if given and not ranks.uneven:
            yield f"{flag}: needs a base plan; give --rank-tp-ratio too"
    for flag, vector in (("--rank-mlp-ratio", ranks.mlp_ratio), ("--rank-moe-ratio", ranks.moe_ratio)):
        for weight in vector:
            if weight < 1:
                yield f"{flag}: {weight} is below 1; give positive integers"


def _memory(config: EngineConfig) -> Iterator[str]:
    memory, context = config.memory, config.model.context_length
    page = memory.page_size
    if not (1 <= page <= MAX_PAGE) or page & (page - 1):
        yield f"--page-size: {page} is not a power of two from 1 to {MAX_PAGE}; the default is 16"
    if memory.mem_fraction_static is not None and config.parallel.device == "cpu":
        yield "--mem-fraction-static: is a share of a card's memory, but --device is cpu; use --host-memory-fraction"
    pool = memory.max_total_tokens
    if pool is not None and pool < page:
        yield f"--max-total-tokens: {pool} is less than one page of --page-size {page}; raise it"
    if pool is not None and context is not None and pool < context:
        yield f"--max-total-tokens: {pool} is less than --context-length {context}; raise it or lower the context"


def _scheduler(config: EngineConfig) -> Iterator[str]:
    scheduler, page = config.scheduler, config.memory.page_size
    chunk = scheduler.chunked_prefill_size
    if chunk != -1 and chunk < max(page, 1):
        yield f"--chunked-prefill-size: {chunk} is neither -1 nor at least one page of --page-size {page}; raise it"
    if scheduler.disable_radix_cache and _given(config, "schedule_policy") and scheduler.schedule_policy == "lpm":
        yield "--schedule-policy: lpm orders by cached prefix, but --disable-radix-cache is set; use fcfs or drop one"
    if _given(config, "priority_scheduling_preemption_threshold") and not scheduler.enable_priority_scheduling:
        yield (
            "--priority-scheduling-preemption-threshold: priorities are off; "
            "add --enable-priority-scheduling or drop it"
        )


def _rest(config: EngineConfig) -> Iterator[str]:
    runtime = config.runtime
    if runtime.disable_cuda_graph and _given(config, "cuda_graph_max_bs"):
        yield "--cuda-graph-max-bs: --disable-cuda-graph leaves nothing to capture; drop one of them"
    if runtime.attention_backend == "triton" and config.parallel.device == "cpu":
        yield "--attention-backend: triton runs on cuda, but --device is cpu; use torch"
    if config.server.api_key:
        try:
            read_api_key(config.server.api_key)
        except ConfigError as error:
            yield from error.messages
