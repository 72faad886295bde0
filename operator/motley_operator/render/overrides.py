"""``spec.podTemplate``: the user's strategic-merge patch over the rendered pod, and what it may not do.

Maps are merged key by key; lists of objects that Kubernetes merges by a key are merged by that key; other lists are
replaced; null removes a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from motley_operator.api.document import InputError
from motley_operator.api.inferenceservice import PodTemplate
from motley_operator.render.model import JSON
from motley_operator.render.routes.grant import VISIBLE_DEVICES

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
MANAGED_LABELS = ("motley.dev/", "app.kubernetes.io/")
MANAGED_FIELDS = ("serviceAccountName", "automountServiceAccountToken", "nodeName", "terminationGracePeriodSeconds")
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
GPU_RESOURCE = "nvidia.com/gpu"


def apply_pod_template(template: JSON, patch: PodTemplate | None) -> JSON:
    """``template`` with the patch merged in. Raises InputError naming the path of what is refused."""
    if patch is None:
        return template
    for key in patch.metadata.labels:
        if key.startswith(MANAGED_LABELS):
            raise InputError(f"spec.podTemplate.metadata.labels: {key} is managed by motley; remove it")
    for path, fault in _refusals(patch.spec):
        raise InputError(f"spec.podTemplate.spec{path}: {fault}")
    labels = {**patch.metadata.labels, **template["metadata"]["labels"]}
    metadata: JSON = {**template["metadata"], "labels": labels}
    if patch.metadata.annotations:
        metadata["annotations"] = dict(patch.metadata.annotations)
    return {"metadata": metadata, "spec": merge(template["spec"], patch.spec)}


def merge(base: Any, patch: Any, key: str = "") -> Any:
    """Strategic merge of ``patch`` over ``base``; neither is changed. ``key`` is the field that holds them."""
    if isinstance(base, dict) and isinstance(patch, dict):
        names = [name for name in (*base, *patch) if name not in patch or patch[name] is not None]
        return {name: merge(base.get(name), patch[name], name) if name in patch else base[name] for name in names}
    identity = MERGE_KEYS.get(key)
    if isinstance(base, list) and isinstance(patch, list) and identity:
        return _merge_by(base, patch, identity)
    return patch


def _merge_by(base: list[JSON], patch: list[JSON], identity: str) -> list[JSON]:
    changes = {item.get(identity): item for item in patch}
    merged = [merge(item, changes.pop(item.get(identity))) if item.get(identity) in changes else item for item in base]
    return [*merged, *changes.values()]


def _refusals(spec: JSON) -> Iterator[tuple[str, str]]:
    for field in MANAGED_FIELDS:
        if field in spec:
            yield f".{field}", "is managed by motley; remove it"
    for field in HOST_FIELDS:
        if spec.get(field):
            yield f".{field}", "would leave the pod's isolation, which is refused"
    for index, volume in enumerate(_items(spec, "volumes")):
        if "hostPath" in volume:
            yield f".volumes[{index}].hostPath", "would reach into the node, which is refused"
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(_items(spec, kind)):
            yield from ((f".{kind}[{index}]{path}", fault) for path, fault in _container_refusals(container))


def _container_refusals(container: JSON) -> Iterator[tuple[str, str]]:
    security = container.get("securityContext") or {}
    if security.get("privileged"):
        yield ".securityContext.privileged", "is refused"
    if security.get("allowPrivilegeEscalation"):
        yield ".securityContext.allowPrivilegeEscalation", "is refused"
    if any(entry.get("name") == VISIBLE_DEVICES for entry in _items(container, "env")):
        yield ".env", f"{VISIBLE_DEVICES} is set by the allocation route; remove it"
    for kind in ("requests", "limits"):
        if GPU_RESOURCE in ((container.get("resources") or {}).get(kind) or {}):
            yield f".resources.{kind}", f"{GPU_RESOURCE} is asked for by the allocation route; remove it"


def _items(holder: JSON, key: str) -> list[JSON]:
    found = holder.get(key, [])
    found = [] if found is None else found
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InputError(f"spec.podTemplate.spec: {key} must be a list of mappings")
    return found
