"""The engine container: command, environment, mounts and probes."""

from __future__ import annotations

from motley_operator.api.base import parse_quantity
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.render.arguments import API_KEY_DIRECTORY, PLAN_PATH, POD_IP, serve_arguments
from motley_operator.render.model import JSON, Group, Settings
from motley_operator.render.routes import Grant
from motley_operator.render.routes.grant import VISIBLE_DEVICES

NAME = "engine"
HTTP = "http"
HOME = "/home/motley"
CACHE = f"{HOME}/.cache"
HEALTH_PATH = "/health"
PLAN_VOLUME, CACHE_VOLUME, SHM_VOLUME, KEY_VOLUME = "plan", "model-cache", "shm", "api-key"

STARTUP_PERIOD = 5
MIN_STARTUP_SECONDS = 600
READ_BYTES_PER_SECOND = 50 * 1000 * 1000
"""Slow enough for a network volume; the start may take this long before the pod counts as failed."""


def engine_container(service: InferenceService, group: Group, grant: Grant, settings: Settings) -> JSON:
    """The container that runs all ranks of one slot."""
    spec = service.spec
    container: JSON = {
        "name": NAME,
        "image": spec.engine.image or settings.image,
        "imagePullPolicy": spec.engine.image_pull_policy,
        "command": ["motley"],
        "args": serve_arguments(service, group.member, grant.device, settings.http_port),
        "env": _environment(service, grant),
        "ports": [{"name": HTTP, "containerPort": settings.http_port, "protocol": "TCP"}],
        "resources": _resources(service),
        "volumeMounts": _mounts(service),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]} | ({"add": ["IPC_LOCK"]} if spec.networking.fabric == "RDMA" else {}),
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.drain.pre_stop_seconds:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": spec.drain.pre_stop_seconds}}}
    return container | _probes(settings)


def startup_seconds(model_bytes: int) -> int:
    """How long a pod may take until it is healthy: reading the model slowly, and never less than ten minutes."""
    return max(MIN_STARTUP_SECONDS, -(-model_bytes // READ_BYTES_PER_SECOND))


def _probes(settings: Settings) -> JSON:
    get = {"httpGet": {"path": HEALTH_PATH, "port": HTTP}}
    attempts = -(-startup_seconds(settings.model_bytes) // STARTUP_PERIOD)
    return {
        "startupProbe": {**get, "periodSeconds": STARTUP_PERIOD, "timeoutSeconds": 5, "failureThreshold": attempts},
        "readinessProbe": {**get, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 2},
        # a stuck process only: load may make an answer late, so many late ones are forgiven
        "livenessProbe": {**get, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
    }


def _environment(service: InferenceService, grant: Grant) -> list[JSON]:
    downward = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        POD_IP: "status.podIP",
        "NODE_NAME": "spec.nodeName",
    }
    variables: list[JSON] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in downward.items()
    ]
    variables += [
        {"name": "HOME", "value": HOME},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
        {"name": VISIBLE_DEVICES, "value": grant.visible_devices},
    ]
    if service.spec.networking.interface_name:
        name = service.spec.networking.interface_name
        variables += [{"name": f"{library}_SOCKET_IFNAME", "value": name} for library in ("NCCL", "GLOO")]
    token = service.spec.model.token_secret_ref
    if token is not None:
        variables.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token.to_object()}})
    return [*variables, *(entry.to_object() for entry in service.spec.engine.env)]


def _mounts(service: InferenceService) -> list[JSON]:
    mounts: list[JSON] = [
        {"name": PLAN_VOLUME, "mountPath": PLAN_PATH.rsplit("/", 1)[0], "readOnly": True},
        {"name": CACHE_VOLUME, "mountPath": CACHE},
    ]
    if parse_quantity(service.spec.engine.shared_memory_size):
        mounts.append({"name": SHM_VOLUME, "mountPath": "/dev/shm"})
    if service.spec.networking.api_key_secret_ref is not None:
        mounts.append({"name": KEY_VOLUME, "mountPath": API_KEY_DIRECTORY, "readOnly": True})
    return mounts


def _resources(service: InferenceService) -> JSON:
    """Requests and limits; /dev/shm counts against a memory limit, so it is added on top."""
    shared = parse_quantity(service.spec.engine.shared_memory_size)
    resources: JSON = {}
    for kind in ("requests", "limits"):
        amounts = dict(getattr(service.spec.engine.resources, kind))
        if "memory" in amounts and shared:
            amounts["memory"] = str(parse_quantity(amounts["memory"]) + shared)
        if amounts:
            resources[kind] = amounts
    return resources
