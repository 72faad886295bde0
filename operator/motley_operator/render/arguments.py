"""The flags of ``motley serve`` that an object stands for."""

from __future__ import annotations

from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.rules import Fault
from motley_operator.api.spec_topology import DrainSpec

PLAN_PATH = "/etc/motley/plan.json"
API_KEY_DIRECTORY = "/run/secrets/motley"
"""Not below the plan's mount, which is read-only and could not hold a mount point."""
MANAGED: dict[str, str] = {
    "--model-path": "spec.model.uri",
    "--model": "spec.model.uri",
    "--served-model-name": "spec.model.servedName",
    "--dtype": "spec.model.dtype",
    "--context-length": "spec.model.maxModelLength",
    "--plan": "spec.topology",
    "--group": "spec.topology",
    "--device": "spec.placement.allocation",
    "--tp-size": "spec.topology",
    "--tp": "spec.topology",
    "--rank-gpu-id": "spec.topology.groups",
    "--rank-gpu-memory-mib": "spec.topology.groups",
    "--rank-tp-ratio": "spec.topology.groups",
    "--rank-auto-reserve-mib": "spec.topology.groups",
    "--rank-mlp-ratio": "spec.topology.groups",
    "--rank-moe-ratio": "spec.topology.groups",
    "--rank-vocab-ratio": "spec.topology.groups",
    "--mem-fraction-static": "spec.topology",
    "--api-key": "spec.networking.apiKeySecretRef",
    "--drain-timeout": "spec.drain",
    "--host": "the pod's address",
    "--port": "spec.networking.service.port",
    "--config": "spec.engine.extraArgs itself",
}
"""Flags that the object decides, and where."""
_ENGINE_DTYPES = {"Float32": "float32", "BFloat16": "bfloat16", "Float16": "float16"}


def serve_arguments(service: InferenceService, member: str, device: str, http_port: int) -> list[str]:
    """Arguments of the engine container. ``member`` names the group inside the mounted plan."""
    model, drain = service.spec.model, service.spec.drain
    arguments = [
        "serve",
        f"--model-path={model_uri(service)}",
        f"--plan={PLAN_PATH}",
        f"--group={member}",
        f"--device={device}",
        f"--host=$({POD_IP})",
        f"--port={http_port}",
        f"--drain-timeout={drain_seconds(drain)}",
        f"--served-model-name={model.served_name or service.metadata.name}",
    ]
    if model.dtype != "Auto":
        arguments.append(f"--dtype={_ENGINE_DTYPES[model.dtype]}")
    if model.max_model_length is not None:
        arguments.append(f"--context-length={model.max_model_length}")
    secret = service.spec.networking.api_key_secret_ref
    if secret is not None:
        arguments.append(f"--api-key=@{API_KEY_DIRECTORY}/{secret.key}")
    return [*arguments, *service.spec.engine.extra_args]


POD_IP = "POD_IP"
"""Variable with the address that the engine binds."""


def drain_seconds(drain: DrainSpec) -> int:
    """Seconds that running requests get: the grace period without the pre-stop pause, and with some left to end in."""
    remaining = drain.termination_grace_period_seconds - drain.pre_stop_seconds
    return remaining - min(5, remaining // 4)


def model_uri(service: InferenceService) -> str:
    """The model's URI with its revision, as the engine takes it."""
    model = service.spec.model
    return f"{model.uri}@{model.revision}" if model.revision else model.uri


def argument_faults(service: InferenceService) -> list[Fault]:
    """Extra arguments that are no flags, or that the object decides elsewhere."""
    faults: list[Fault] = []
    for index, argument in enumerate(service.spec.engine.extra_args):
        path = f"spec.engine.extraArgs[{index}]"
        flag, separator, _ = argument.partition("=")
        if not flag.startswith("--"):
            faults.append(Fault(path, f"must be one --name=value or --name, found {argument!r}"))
        elif flag in MANAGED:
            faults.append(Fault(path, f"{flag} is decided by {MANAGED[flag]}; remove it here"))
        elif separator and not argument.partition("=")[2]:
            faults.append(Fault(path, f"{flag}= has no value"))
    revision, uri = service.spec.model.revision, service.spec.model.uri
    if revision and (not uri.startswith("hf://") or "@" in uri):
        faults.append(Fault("spec.model.revision", "needs an hf:// URI without @; put the revision in one place"))
    return faults
