"""Everything that belongs to a service, as manifests: object and placed groups in, dicts out.

Knows nothing of rollouts or of what exists already: it renders one generation of every group.
"""

from __future__ import annotations

from motley_operator.api.inferenceservice import API_VERSION, KIND, InferenceService
from motley_operator.render import names
from motley_operator.render.container import HTTP
from motley_operator.render.hashing import SHORT, generation_hash, revision_hash
from motley_operator.render.model import JSON, Group, Settings, Slot
from motley_operator.render.pod import PodIdentity, pod_template
from motley_planner.strict_json import to_plain

PLAN_KEY = "plan.json"


def render_service(service: InferenceService, groups: tuple[Group, ...], route: str, settings: Settings) -> list[JSON]:
    """All manifests in the order in which they are applied."""
    manifests = [service_account(service)]
    for group in groups:
        manifests += render_group(service, group, route, settings)
    return [*manifests, public_service(service)]


def render_group(service: InferenceService, group: Group, route: str, settings: Settings) -> list[JSON]:
    """Plan, headless Service and StatefulSets of one group."""
    revision = revision_hash(service)
    generation = generation_hash(revision, group.name, {"replica": to_plain(group.replica), "route": route})
    base = service.metadata.name
    labels = names.group_labels(base, group.role, group.name, revision, generation)
    plan = names.plan_name(base, generation)
    subdomain = names.group_name(base, generation, group.name)
    manifests = [
        _object("v1", "ConfigMap", service, plan, labels)
        | {"immutable": True, "data": {PLAN_KEY: group.plan.to_json()}},
        _headless(service, subdomain, labels),
    ]
    for slot in group.slots:
        name = names.slot_name(base, generation, group.name, slot.index)
        slot_labels = names.slot_labels(labels, slot.index)
        template = pod_template(service, group, slot, route, PodIdentity(slot_labels, plan), settings)
        manifests.append(_stateful_set(service, name, subdomain, slot_labels, template))
    return manifests


def service_account(service: InferenceService) -> JSON:
    """Identity of the pods; it has no rights."""
    labels = names.service_labels(service.metadata.name)
    account = _object("v1", "ServiceAccount", service, service.metadata.name, labels)
    return account | {"automountServiceAccountToken": False}


def public_service(service: InferenceService) -> JSON:
    """The Service that clients use: the leaders of Unified groups of the current revision."""
    public = service.spec.networking.service
    name = service.metadata.name
    selector = {
        names.SERVICE_LABEL: name,
        names.ROLE_LABEL: "unified",
        names.SLOT_LABEL: "0",
        names.REVISION_LABEL: revision_hash(service)[:SHORT],
    }
    manifest = _object("v1", "Service", service, name, names.service_labels(name))
    if public.annotations:
        manifest["metadata"]["annotations"] = dict(public.annotations)
    port = {"name": HTTP, "port": public.port, "targetPort": HTTP, "protocol": "TCP"}
    return manifest | {"spec": {"type": public.type, "selector": selector, "ports": [port]}}


def _headless(service: InferenceService, name: str, labels: dict[str, str]) -> JSON:
    keys = (names.SERVICE_LABEL, names.GROUP_LABEL, names.GENERATION_LABEL)
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {key: labels[key] for key in keys},
        "ports": [{"name": HTTP, "port": 80, "targetPort": HTTP, "protocol": "TCP"}],
    }
    return _object("v1", "Service", service, name, labels) | {"spec": spec}


def _stateful_set(service: InferenceService, name: str, subdomain: str, labels: dict[str, str], template: JSON) -> JSON:
    spec = {
        "replicas": 1,
        "serviceName": subdomain,
        # the operator owns the moment of replacement, and rank 0 waits for the others
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        "selector": {"matchLabels": names.slot_selector(labels)},
        "template": template,
    }
    return _object("apps/v1", "StatefulSet", service, name, labels) | {"spec": spec}


def _object(api_version: str, kind: str, service: InferenceService, name: str, labels: dict[str, str]) -> JSON:
    metadata: JSON = {"name": name, "namespace": service.metadata.namespace, "labels": dict(labels)}
    if service.metadata.uid:
        owner = {"apiVersion": API_VERSION, "kind": KIND, "name": service.metadata.name, "uid": service.metadata.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": False}]
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


__all__ = ["Group", "Settings", "Slot", "public_service", "render_group", "render_service", "service_account"]
