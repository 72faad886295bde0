"""Hashes of intent. They see decisions only: never the operator's version, chart defaults or the order of keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from motley_operator.api.inferenceservice import InferenceService

SHORT = 8


def canonical_json(value: Any) -> str:
    """Compact JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_hash(value: Any) -> str:
    """SHA-256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def revision_hash(service: InferenceService) -> str:
    """Hash of the user's intent: every field of the spec that reaches a pod, and the restart token."""
    spec = service.spec
    networking = {
        "api_key_secret_ref": spec.networking.api_key_secret_ref,
        "tls": spec.networking.tls,
        "fabric": spec.networking.fabric,
        "interface_name": spec.networking.interface_name,
    }
    parts = {
        "model": spec.model,
        "engine": spec.engine,
        "placement": spec.placement,
        "drain": spec.drain,
        "pod_template": spec.pod_template,
        "restart": spec.restart,
        **networking,
    }
    plain = {name: _plain(part) for name, part in parts.items()}
    return content_hash({name: part for name, part in plain.items() if part})


def generation_hash(revision: str, group: str, plan_part: Mapping[str, Any]) -> str:
    """Hash of a revision and the part of the plan that concerns one unit: what its pods are made from."""
    return content_hash({"revision": revision, "group": group, "plan": plan_part})


def _plain(part: Any) -> Any:
    # defaults count as absent, so a field that a later version adds changes no hash
    return part.model_dump(mode="json", exclude_defaults=True) if hasattr(part, "model_dump") else part
