"""A tiny kubelet for one machine: the pods of rendered manifests become processes.

Knows manifests and processes; nothing of plans, models or objects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motley_operator.api.document import InputError
from motley_operator.local.environment import LOOPBACK, container_environment, expand, process_environment
from motley_operator.local.mounts import PathMap, SecretStore, lay_out_volumes, mounted_paths
from motley_operator.local.pod import PodTiming
from motley_operator.local.probe import Finding, Probe, look
from motley_operator.local.process import ChildProcess, Container

JSON = dict[str, Any]
ENGINE = "engine"
IMAGE_HOME = "/home/motley"
CACHE_VOLUME = "model-cache"
ENTRY_POINT = (sys.executable, "-m", "motley")


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine gives to every pod: secrets, the user's home, a place for volumes, and the entry point that
    stands for the image's ``motley``."""

    node: str
    home: Path
    volumes: Path
    secrets: SecretStore
    entry_point: tuple[str, ...] = ENTRY_POINT


@dataclass(frozen=True, slots=True)
class LocalPod:
    """A pod ready to start."""

    name: str
    port: int
    command: tuple[str, ...]
    environment: dict[str, str]
    timing: PodTiming

    async def start(self, sink: Callable[[str], None]) -> Container:
        """Run the engine container; ``sink`` gets its lines."""
        return await ChildProcess.start(self.command, self.environment, sink)

    async def look(self, probe: Probe) -> Finding:
        """One probe of the running container."""
        return await look(LOOPBACK, self.port, probe)


def local_pods(manifests: list[JSON], machine: Machine) -> list[LocalPod]:
    """The pods of every StatefulSet among ``manifests``, their volumes laid out. Raises InputError."""
    config_maps = {item["metadata"]["name"]: item for item in manifests if item["kind"] == "ConfigMap"}
    sets = [item for item in manifests if item["kind"] == "StatefulSet"]
    return [_pod(item, config_maps, machine) for item in sets]


def _pod(stateful_set: JSON, config_maps: Mapping[str, JSON], machine: Machine) -> LocalPod:
    template = stateful_set["spec"]["template"]
    name = f"{stateful_set['metadata']['name']}-0"
    metadata = {**template["metadata"], "name": name, "namespace": stateful_set["metadata"]["namespace"]}
    spec = template["spec"]
    container = next(item for item in spec["containers"] if item["name"] == ENGINE)
    persistent = {CACHE_VOLUME: machine.home / ".cache"} if _is_scratch(spec, CACHE_VOLUME) else {}
    directories = lay_out_volumes(spec, config_maps, machine.secrets, machine.volumes / name, persistent)
    paths = PathMap((*mounted_paths(container, directories), (IMAGE_HOME, machine.home)))
    variables = container_environment(container, metadata, machine.node, config_maps, machine.secrets)
    arguments = [*container.get("command", ()), *container.get("args", ())]
    words = [paths.local(expand(word, variables)) for word in arguments]
    if not words:
        raise InputError(f"pod {name}: its engine container has no command")
    command = (*machine.entry_point, *words[1:]) if words[0] == "motley" else tuple(words)
    return LocalPod(
        name=name,
        port=container["ports"][0]["containerPort"],
        command=command,
        environment=process_environment(variables, paths),
        timing=_timing(container, spec),
    )


def _is_scratch(spec: JSON, name: str) -> bool:
    """Whether a volume is an emptyDir, which on one machine may as well be the user's own cache."""
    return any(volume["name"] == name and "emptyDir" in volume for volume in spec.get("volumes", ()))


def _timing(container: JSON, spec: JSON) -> PodTiming:
    grace = spec["terminationGracePeriodSeconds"]
    # no load balancer has to learn that the pod leaves, so the time before the stop signal is skipped
    pause = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    return PodTiming(
        startup=Probe.from_manifest(container["startupProbe"]),
        liveness=Probe.from_manifest(container["livenessProbe"]),
        grace_seconds=grace - pause,
    )
