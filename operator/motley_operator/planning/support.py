"""What an object may ask that this version, or a single machine, does not do: refusals and notes, never silence."""

from __future__ import annotations

from collections.abc import Iterator

from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.read import InvalidObjectError
from motley_operator.api.rules import Fault
from motley_operator.render.arguments import argument_faults


def require_supported(service: InferenceService) -> None:
    """Raise InvalidObjectError for everything that would change what is served and cannot be done."""
    faults = [*argument_faults(service), *_unsupported(service)]
    if faults:
        raise InvalidObjectError(service.metadata.name, faults)


def _unsupported(service: InferenceService) -> Iterator[Fault]:
    spec = service.spec
    if spec.model.adapters:
        yield Fault("spec.model.adapters", "this version serves no adapters; remove them")
    if spec.networking.tls.mode != "Disabled":
        yield Fault("spec.networking.tls", "this version serves plain HTTP only; terminate TLS in front of it")
    for index, group in enumerate(spec.topology.groups):
        if group.role != "Unified":
            yield Fault(f"spec.topology.groups[{index}].role", f"{group.role} is not built yet; use Unified")


def require_runnable_here(service: InferenceService) -> None:
    """Raise InvalidObjectError for objects that ask for nothing to run."""
    if service.spec.paused:
        raise InvalidObjectError(service.metadata.name, [Fault("spec.paused", "is true, so there is nothing to run")])
    if service.spec.replicas == 0:
        raise InvalidObjectError(service.metadata.name, [Fault("spec.replicas", "is 0, so there is nothing to run")])


def local_notes(service: InferenceService, pretend: bool) -> list[str]:
    """Fields that a single machine does not act on, each with what happens instead."""
    spec = service.spec
    pod = spec.pod_template.spec if spec.pod_template else {}
    asked = {
        f"spec.replicas: {spec.replicas} asked for, one machine runs one": spec.replicas > 1,
        "spec.scaling: nothing is scaled": spec.scaling is not None,
        "spec.networking.ingress: no Ingress, the endpoint is on localhost": spec.networking.ingress is not None,
        "spec.networking.gateway: no HTTPRoute, the endpoint is on localhost": spec.networking.gateway is not None,
        "spec.topology.slo: latency is not planned yet": spec.topology.slo is not None,
        "spec.topology.objective: plans fit memory only so far": spec.topology.objective != "Throughput",
        "spec.placement.gpuSelector: CPU budgets stand in for GPUs": pretend
        and spec.placement.gpu_selector is not None,
        "spec.engine.image: the motley that runs `motley up` serves": spec.engine.image is not None,
        "spec.engine.resources: not enforced": bool(spec.engine.resources.requests or spec.engine.resources.limits),
        "spec.podTemplate: only the engine container runs": len(pod.get("containers") or ()) > 1
        or bool(pod.get("initContainers")),
    }
    return [note for note, holds in asked.items() if holds]
