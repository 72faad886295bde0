"""Volumes of a pod as directories of this machine, and container paths rewritten to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motley_operator.api.document import InputError

JSON = dict[str, Any]


class SecretStore:
    """Values of Secrets given on the command line, by (name, key). Their text is never printed."""

    def __init__(self, values: Mapping[tuple[str, str], str]) -> None:
        self._values = dict(values)

    def value(self, name: str, key: str) -> str:
        """The value of ``key`` in Secret ``name``. Raises InputError when it was not given."""
        found = self._values.get((name, key))
        if found is None:
            raise InputError(
                f"Secret {name}, key {key}: not known on this machine; "
                f"give --secret {name}/{key}=env:VARIABLE or --secret {name}/{key}=file:PATH"
            )
        return found

    def keys(self, name: str) -> list[str]:
        """The keys given for Secret ``name``."""
        return [key for owner, key in self._values if owner == name]


@dataclass(frozen=True, slots=True)
class PathMap:
    """Container paths and the directories that stand for them."""

    roots: tuple[tuple[str, Path], ...]

    def local(self, text: str) -> str:
        """``text`` with every container path in it replaced; the longest mounted path wins."""
        if not self.roots:
            return text
        ordered = sorted(self.roots, key=lambda root: len(root[0]), reverse=True)
        targets = dict(ordered)
        choices = "|".join(re.escape(path) for path, _ in ordered)
        # a path begins where no other path is running, and ends at a separator
        pattern = rf"(?<![\w./-])({choices})(?=/|$|[\s,:;\"'])"
        return re.sub(pattern, lambda match: str(targets[match[1]]), text)


def lay_out_volumes(
    pod_spec: JSON, config_maps: Mapping[str, JSON], secrets: SecretStore, root: Path, persistent: Mapping[str, Path]
) -> dict[str, Path]:
    """Make a directory below ``root`` for every volume of a pod; ``persistent`` names volumes that keep their own.

    Memory-backed volumes are left out: /dev/shm is the machine's. Raises InputError for kinds that need a cluster.
    """
    directories: dict[str, Path] = {}
    for volume in pod_spec.get("volumes", ()):
        name = volume["name"]
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            continue
        if name in persistent:
            persistent[name].mkdir(parents=True, exist_ok=True)
            directories[name] = persistent[name]
        elif "hostPath" in volume:
            directories[name] = Path(volume["hostPath"]["path"])
        else:
            directories[name] = root / name
            directories[name].mkdir(parents=True)
            _fill(directories[name], volume, config_maps, secrets)
    return directories


def mounted_paths(container: JSON, directories: Mapping[str, Path]) -> tuple[tuple[str, Path], ...]:
    """(container path, directory) of every mount whose volume has a directory."""
    return tuple(
        (mount["mountPath"], directories[mount["name"]] / mount.get("subPath", ""))
        for mount in container.get("volumeMounts", ())
        if mount["name"] in directories
    )


def _fill(directory: Path, volume: JSON, config_maps: Mapping[str, JSON], secrets: SecretStore) -> None:
    if "configMap" in volume:
        name = volume["configMap"]["name"]
        if name not in config_maps:
            raise InputError(f"ConfigMap {name}: not part of the service, and this machine has no others")
        for key, text in config_maps[name]["data"].items():
            (directory / key).write_text(text, encoding="utf-8")
    elif "secret" in volume:
        _fill_secret(directory, volume["secret"], secrets)
    elif "emptyDir" not in volume:
        kind = next(key for key in volume if key != "name")
        raise InputError(
            f"volume {volume['name']}: {kind} needs a cluster; on one machine use cache type EmptyDir or HostPath"
        )


def _fill_secret(directory: Path, source: JSON, secrets: SecretStore) -> None:
    directory.chmod(0o700)
    name = source["secretName"]
    items = source.get("items") or [{"key": key, "path": key} for key in secrets.keys(name)]
    for item in items:
        path = directory / item["path"]
        path.touch(mode=0o600)
        path.write_text(secrets.value(name, item["key"]), encoding="utf-8")
