"""The engine's configuration: one typed tree. Field names are the flags (``--`` and dashes) and the YAML keys.

Flags, a YAML file (``--config``) and a plan (``--plan``) all end here; nothing else is read, no environment variable
overrides a field. Checks that need only this tree live in ``config.check``; defaults left None are resolved there or at
plan stage and shown by ``/get_server_info``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class ModelSection(Section):
    model_path: str = Field(
        "",
        description="Model URI or path: hf://org/name[@revision], file://PATH, package://PACKAGE/FILE, a directory or "
        "a .gguf file.",
    )
    tokenizer_path: str = Field("", description="Directory or file with the tokenizer; default: the model's own.")
    served_model_name: str = Field(
        "", description="Name in /v1/models and responses; default: derived from the model path."
    )
    chat_template: str = Field("", description="Path of a Jinja chat template that replaces the model's own.")
    load_format: Literal["auto", "safetensors", "gguf", "dummy"] = Field(
        "auto", description="Checkpoint format; dummy = random weights, the model path then only needs a config."
    )
    dtype: Dtype = Field(
        "auto",
        description="Type of weights and activations. auto: float32 on CPU, else the checkpoint's (float32 becomes "
        "bfloat16).",
    )
    context_length: int | None = Field(
        None,
        ge=1,
        description="Longest sequence in tokens, prompt and output together; default: the model's own limit.",
    )
    skip_tokenizer_init: bool = Field(
        False, description="Load no tokenizer: /generate then takes input_ids and returns output_ids only."
    )
    preferred_sampling_params: str = Field(
        "", description="JSON object of sampling defaults that come before the model's generation config."
    )
    random_seed: int = Field(
        0, ge=0, le=2**63 - 1, description="Seed of random weights and of requests that bring none."
    )


class ParallelSection(Section):
    device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="Where ranks run. auto: cuda if a card is visible, else cpu; printed at start."
    )
    tp_size: int | None = Field(
        None, ge=1, le=64, description="Ranks in the tensor-parallel group; default: length of the rank lists, else 1."
    )
    rank_gpu_id: tuple[str, ...] = Field(
        (), description="One GPU per rank: CUDA index or UUID (an unambiguous prefix will do)."
    )
    rank_gpu_memory_mib: tuple[int, ...] = Field(
        (), description="MiB each rank may use in all; one value serves every rank. On CPU: pretend budgets."
    )
    rank_tp_ratio: str = Field(
        "",
        description="auto, or one positive integer per rank: relative share of every unit-split dimension; default: "
        "even.",
    )
    rank_auto_reserve_mib: str = Field(
        "auto",
        description="auto, one integer, or one per rank: MiB kept off the card's total when the ratio is automatic.",
    )
    rank_mlp_ratio: tuple[int, ...] = Field((), description="Weights of the dense MLP family; default: the base ratio.")
    rank_moe_ratio: tuple[int, ...] = Field(
        (), description="Weights of the expert family; default: the base ratio. Needs a MoE model."
    )
    rank_vocab_ratio: str = Field(
        "", description="auto, or one integer per rank: embedding and LM head in units of 64 rows; default even."
    )
    plan: str = Field("", description="Plan JSON as written by motley plan; fixes the ranks and every vector.")
    group: str = Field("", description="Which replica of the plan this process runs; default: the only one.")


class MemorySection(Section):
    mem_fraction_static: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of a card's memory for weights and KV pool where no budget in MiB is given; default 0.9.",
    )
    max_total_tokens: int | None = Field(
        None, ge=1, description="Upper bound of the KV pool in tokens; default: what the budgets hold."
    )
    kv_cache_dtype: Dtype = Field("auto", description="Type of the KV cache; auto: the type of the activations.")
    page_size: int = Field(16, description="Tokens per KV page: a power of two from 1 to 256.")
    host_memory_fraction: float = Field(
        0.5, gt=0, lt=1, description="CPU ranks without budgets: share of the free host memory for all ranks together."
    )


class SchedulerSection(Section):
    max_running_requests: int = Field(64, ge=1, le=4096, description="Sequences in the running batch.")
    max_queued_requests: int = Field(
        1024, ge=1, description="Waiting requests beyond which new ones get 503 with Retry-After."
    )
    chunked_prefill_size: int = Field(
        2048, description="Prompt tokens computed per step, all requests together; -1 = whole prompts."
    )
    schedule_policy: Literal["fcfs", "lpm"] = Field(
        "lpm", description="Order of the waiting queue: first come, or longest prefix match."
    )
    schedule_conservativeness: float = Field(
        0.3,
        ge=0,
        le=1,
        description="Share of the running requests' remaining output that admission keeps free; 1 never retracts.",
    )
    enable_priority_scheduling: bool = Field(
        False, description="Larger priority first; running requests may be preempted for it."
    )
    priority_scheduling_preemption_threshold: int = Field(
        10, ge=0, description="How much larger a priority must be to preempt."
    )
    disable_radix_cache: bool = Field(False, description="No prefix reuse between requests.")
    disable_overlap_schedule: bool = Field(False, description="Schedule and compute one after the other (ablation).")
    check_invariants: bool = Field(False, description="Verify page ownership after every step (slow; tests).")


class ServerSection(Section):
    host: str = Field("127.0.0.1", description="Address to bind.")
    port: int = Field(30000, ge=0, le=65535, description="Port to bind; 0 takes a free one and prints it.")
    api_key: str = Field(
        "",
        description="Bearer token clients must send, or @FILE to read it from a file.",
        json_schema_extra={"secret": True},
    )
    stream_interval: int = Field(
        1, ge=1, le=64, description="Tokens per streamed event; the first token is never held back."
    )
    max_request_mib: int = Field(32, ge=1, le=1024, description="Largest request body in MiB.")
    enable_metrics: bool = Field(True, description="Serve Prometheus metrics at /metrics.")
    allow_auto_truncate: bool = Field(
        False, description="Cut prompts that exceed the context instead of refusing them."
    )
    drain_timeout: float = Field(
        30.0, ge=0, le=3600, description="Seconds that running requests get after SIGTERM or Ctrl-C."
    )


class RuntimeSection(Section):
    watchdog_timeout: float = Field(
        300.0, gt=0, description="Seconds one step may take before the replica ends with the reason."
    )
    heartbeat_timeout: float = Field(
        5.0, ge=1, le=8, description="Seconds a rank may stay silent before the replica ends."
    )
    start_timeout: float = Field(1800.0, gt=0, description="Seconds from start to ready.")
    load_threads: int = Field(4, ge=1, le=64, description="Threads that read and convert weights, per rank.")
    attention_backend: Literal["auto", "torch", "triton"] = Field(
        "auto", description="Attention kernels. auto: triton on cuda, torch on cpu."
    )
    cpu_collectives: Literal["shared", "gloo"] = Field(
        "shared",
        description="How CPU ranks combine results: shared memory (about 20 us for a small all-reduce), or gloo.",
    )
    disable_cuda_graph: bool = Field(False, description="Launch decode kernels one by one (ablation).")
    cuda_graph_max_bs: int = Field(256, ge=1, le=4096, description="Largest decode batch captured as a CUDA graph.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log detail.")
    debug_digest: bool = Field(
        False, description="Ranks compare step-plan digests before the first collective of a step."
    )


class EngineConfig(Section):
    """All settings of one engine replica."""

    model: ModelSection = ModelSection()
    parallel: ParallelSection = ParallelSection()
    memory: MemorySection = MemorySection()
    scheduler: SchedulerSection = SchedulerSection()
    server: ServerSection = ServerSection()
    runtime: RuntimeSection = RuntimeSection()
