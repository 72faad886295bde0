"""The pod template of one slot."""

from __future__ import annotations

from dataclasses import dataclass

from motley_operator.api.base import parse_quantity
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.render.container import (
    CACHE_VOLUME,
    KEY_VOLUME,
    PLAN_VOLUME,
    SHM_VOLUME,
    engine_container,
)
from motley_operator.render.model import JSON, Group, Settings, Slot
from motley_operator.render.overrides import apply_pod_template
from motley_operator.render.routes import ROUTES, SlotRequest

USER = 65532


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Labels of the pod, and the name of the ConfigMap with its plan."""

    labels: dict[str, str]
    plan: str


def pod_template(
    service: InferenceService, group: Group, slot: Slot, route: str, identity: PodIdentity, settings: Settings
) -> JSON:
    """Template of the slot's only pod. ``route`` is a key of ``ROUTES``.

    Raises InputError when the object's own pod template asks for what is not allowed.
    """
    placement, drain = service.spec.placement, service.spec.drain
    grant = ROUTES[route](SlotRequest(slot.node, slot.cards, placement.runtime_class_name))
    spec: JSON = {
        "serviceAccountName": service.metadata.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": drain.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [engine_container(service, group, grant, settings)],
        "volumes": _volumes(service, identity.plan),
        **grant.pod_spec,
    }
    tolerations = [*grant.tolerations, *(toleration.to_object() for toleration in placement.tolerations)]
    secrets = [reference.to_object() for reference in service.spec.engine.image_pull_secrets]
    optional = {"tolerations": tolerations, "imagePullSecrets": secrets, "nodeSelector": placement.node_selector}
    spec |= {key: value for key, value in optional.items() if value}
    template: JSON = {"metadata": {"labels": identity.labels}, "spec": spec}
    return apply_pod_template(template, service.spec.pod_template)


def _volumes(service: InferenceService, plan: str) -> list[JSON]:
    volumes: list[JSON] = [
        {"name": PLAN_VOLUME, "configMap": {"name": plan}},
        {"name": CACHE_VOLUME, **_cache(service)},
    ]
    if parse_quantity(service.spec.engine.shared_memory_size):
        memory = {"medium": "Memory", "sizeLimit": service.spec.engine.shared_memory_size}
        volumes.append({"name": SHM_VOLUME, "emptyDir": memory})
    secret = service.spec.networking.api_key_secret_ref
    if secret is not None:
        item = {"key": secret.key, "path": secret.key}
        source = {"secretName": secret.name, "items": [item], "defaultMode": 0o440}
        volumes.append({"name": KEY_VOLUME, "secret": source})
    return volumes


def _cache(service: InferenceService) -> JSON:
    cache = service.spec.model.cache
    if cache.type == "PVC":
        return {"persistentVolumeClaim": {"claimName": cache.claim_name}}
    if cache.type == "HostPath":
        return {"hostPath": {"path": cache.path, "type": "DirectoryOrCreate"}}
    if cache.type == "ImageVolume":
        return {"image": {"reference": service.spec.model.uri.removeprefix("oci://")}}
    return {"emptyDir": {"sizeLimit": cache.size_limit} if cache.size_limit else {}}
