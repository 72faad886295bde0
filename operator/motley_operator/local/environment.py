"""Environment of a local pod: the container's variables with references resolved, over the user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from motley_operator.api.document import InputError
from motley_operator.local.mounts import PathMap, SecretStore

JSON = dict[str, Any]
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
LOOPBACK = "127.0.0.1"


def container_environment(
    container: JSON, metadata: JSON, node: str, config_maps: Mapping[str, JSON], secrets: SecretStore
) -> dict[str, str]:
    """Variables of ``container`` in order, references resolved and ``$(NAME)`` expanded as a kubelet does it."""
    facts = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", "default"),
        "spec.nodeName": node,
        "status.podIP": LOOPBACK,
        "status.hostIP": LOOPBACK,
    }
    resolved: dict[str, str] = {}
    for entry in container.get("env", ()):
        source = entry.get("valueFrom")
        if source is None:
            resolved[entry["name"]] = expand(entry.get("value", ""), resolved)
        else:
            resolved[entry["name"]] = _reference(entry["name"], source, facts, config_maps, secrets)
    return resolved


def process_environment(variables: Mapping[str, str], paths: PathMap) -> dict[str, str]:
    """Environment of the child process: the user's own, below the pod's variables with their paths rewritten.

    Plays the container runtime's part for GPUs: the cards that the pod may see become the cards that CUDA may see.
    """
    environment = dict(os.environ) | {name: paths.local(value) for name, value in variables.items()}
    if VISIBLE in variables:
        cards = variables[VISIBLE]
        environment[CUDA_VISIBLE] = "" if cards == "void" else cards
    return environment


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` for known names; ``$$`` is one dollar, unknown names stay as they are."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([-._a-zA-Z0-9]+)\)", replaced, text)


def _reference(
    name: str, source: JSON, facts: Mapping[str, str], config_maps: Mapping[str, JSON], secrets: SecretStore
) -> str:
    if "secretKeyRef" in source:
        return secrets.value(source["secretKeyRef"]["name"], source["secretKeyRef"]["key"])
    if "configMapKeyRef" in source:
        reference = source["configMapKeyRef"]
        data = config_maps.get(reference["name"], {}).get("data", {})
        if reference["key"] not in data:
            raise InputError(
                f"environment variable {name}: ConfigMap {reference['name']}, key {reference['key']} is not on this "
                f"machine; give the variable a plain value"
            )
        return str(data[reference["key"]])
    path = source["fieldRef"]["fieldPath"]
    if path not in facts:
        raise InputError(f"environment variable {name}: fieldPath {path} is not known on one machine")
    return facts[path]
