"""What a service asks of the memory model: its own fields, and the extra flags that change sizes."""

from __future__ import annotations

from motley_operator.api.document import InputError
from motley_operator.api.inferenceservice import InferenceService
from motley_planner.memory import Device, Serving
from motley_planner.model_facts import ModelFacts

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# on CPU everything is computed in float32, on GPUs in half precision, unless the object says otherwise
DEFAULT_DTYPE: dict[Device, str] = {"cpu": "float32", "cuda": "bfloat16"}
MAX_GRAPH_TOKENS = 256
WHOLE_PROMPTS = -1


def serving_of(service: InferenceService, facts: ModelFacts, device: Device) -> Serving:
    """Sizes with which the engine of ``service`` runs on ``device``. InputError for a flag with no number."""
    model = service.spec.model
    flags = _values(service)
    dtype = model.dtype.lower() if model.dtype != "Auto" else DEFAULT_DTYPE[device]
    size = ELEMENT_BYTES[dtype]
    defaults = Serving()
    running = _number(flags, "--max-running-requests", defaults.max_running)
    longest = model.max_model_length or facts.max_position
    chunk = _number(flags, "--chunked-prefill-size", defaults.chunk)
    return Serving(
        context_length=model.max_model_length,
        max_running=running,
        page_size=_number(flags, "--page-size", defaults.page_size),
        chunk=longest if chunk == WHOLE_PROMPTS else min(chunk, longest),
        overlap="--disable-overlap-schedule" not in flags,
        graph_tokens=_graph_tokens(flags, running) if device == "cuda" else 0,
        weight_size=size,
        kv_size=ELEMENT_BYTES.get(flags.get("--kv-cache-dtype", ""), size),
        activation_size=size,
    )


def _graph_tokens(flags: dict[str, str], running: int) -> int:
    if "--disable-cuda-graph" in flags:
        return 0
    return min(running, _number(flags, "--cuda-graph-max-bs", MAX_GRAPH_TOKENS))


def _values(service: InferenceService) -> dict[str, str]:
    parted = (argument.partition("=") for argument in service.spec.engine.extra_args)
    return {flag: value for flag, _, value in parted}


def _number(flags: dict[str, str], flag: str, default: int) -> int:
    text = flags.get(flag)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise InputError(f"spec.engine.extraArgs: {flag}={text} needs a whole number") from None
