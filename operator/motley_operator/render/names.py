"""Names and labels of everything that belongs to a service.

Names have at most 52 characters: the StatefulSet controller adds 11 for its own label, and labels end at 63.
"""

from __future__ import annotations

import hashlib

from motley_operator.api.inferenceservice import GROUP
from motley_operator.render.hashing import SHORT

MAX_NAME = 52
DIGEST = 6
MANAGER = "motley"

SERVICE_LABEL = f"{GROUP}/service"
ROLE_LABEL = f"{GROUP}/role"
GROUP_LABEL = f"{GROUP}/group"
SLOT_LABEL = f"{GROUP}/slot"
REVISION_LABEL = f"{GROUP}/revision"
GENERATION_LABEL = f"{GROUP}/generation"


def plan_name(base: str, generation: str) -> str:
    """ConfigMap that holds the plan of a generation."""
    return _joined(base, generation, "plan")


def group_name(base: str, generation: str, group: str) -> str:
    """Headless Service of a group."""
    return _joined(base, generation, group)


def slot_name(base: str, generation: str, group: str, slot: int) -> str:
    """StatefulSet of one slot; its only pod is called the same with ``-0`` behind."""
    return _joined(base, generation, group, str(slot))


def _joined(base: str, generation: str, *rest: str) -> str:
    parts = [base, generation[:SHORT], *rest]
    whole = "-".join(parts)
    if len(whole) <= MAX_NAME:
        return whole
    digest = hashlib.sha256("/".join([base, generation, *rest]).encode()).hexdigest()[:DIGEST]
    tail = "-".join([digest, *parts[1:]])
    return f"{base[: MAX_NAME - len(tail) - 1].rstrip('-')}-{tail}"


def service_labels(service: str) -> dict[str, str]:
    """Labels of every object of a service."""
    return {
        "app.kubernetes.io/name": "motley",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": "engine",
        "app.kubernetes.io/managed-by": MANAGER,
        "app.kubernetes.io/part-of": "motley",
        SERVICE_LABEL: service,
    }


def group_labels(service: str, role: str, group: str, revision: str, generation: str) -> dict[str, str]:
    """Labels of the objects of one group."""
    return service_labels(service) | {
        ROLE_LABEL: role.lower(),
        GROUP_LABEL: group,
        REVISION_LABEL: revision[:SHORT],
        GENERATION_LABEL: generation[:SHORT],
    }


def slot_labels(group: dict[str, str], slot: int) -> dict[str, str]:
    """Labels of the objects of one slot."""
    return group | {SLOT_LABEL: str(slot)}


def slot_selector(labels: dict[str, str]) -> dict[str, str]:
    """Selector of a slot's pod: our own keys only, since other tools own some of the common ones."""
    return {key: labels[key] for key in (SERVICE_LABEL, GROUP_LABEL, SLOT_LABEL, GENERATION_LABEL)}
