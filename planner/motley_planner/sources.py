"""Model URIs to local files: paths, Python packages that ship weights, and the Hugging Face hub.

Knows nothing of checkpoint contents beyond file names. Packages are located, never imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from motley_planner.gguf_header import GGUFError
from motley_planner.model_facts import ModelError, ModelFacts, facts_from_gguf, facts_from_hf_config
from motley_planner.packages import find_packaged_file
from motley_planner.source_errors import SourceError

ModelFormat = Literal["gguf", "safetensors", "config"]

DEFAULT_CACHE = Path(".cache") / "motley"
"""Below the home directory."""
_HUB_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.jinja", "*.txt")
_HUB_CONFIG_PATTERNS = ("config.json",)
_MOUNTED = ("s3", "oci", "pvc")


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this machine. ``path`` is the .gguf file or the directory with ``config.json``; ``files`` are its
    weight files (none for format ``config``: only random weights can be loaded)."""

    uri: str
    path: Path
    format: ModelFormat
    files: tuple[Path, ...]


def resolve_model(uri: str, cache_dir: Path | None = None, weights: bool = True) -> ResolvedModel:
    """Find the model ``uri`` on this machine, fetching or assembling it first where the scheme asks for it.

    Schemes: a plain path, ``file://``, ``package://PACKAGE/FILE``, ``hf://org/name[@revision][/FILE]``. Without
    ``weights`` only what planning needs is fetched. ``cache_dir`` (default ``~/.cache/motley``) takes joined files.
    SourceError names the URI, the fault and the way out.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return _local(uri, Path(uri).expanduser())
    handlers: Mapping[str, Callable[[], ResolvedModel]] = {
        "file": lambda: _local(uri, _file_path(uri)),
        "package": lambda: _packaged(uri, rest, cache_dir or Path.home() / DEFAULT_CACHE),
        "hf": lambda: _hub(uri, rest, weights),
    }
    if scheme in _MOUNTED:
        raise SourceError(
            f"{uri}: {scheme}:// models are delivered by the cluster's volumes; on one machine download the model and "
            f"give its path, or use hf:// or package://"
        )
    if scheme not in handlers:
        raise SourceError(f"{uri}: unknown scheme {scheme}://; use a path, file://, package:// or hf://")
    return handlers[scheme]()


def model_facts(model: ResolvedModel) -> ModelFacts:
    """Sizes of a resolved model. ModelError or SourceError if they cannot be read."""
    if model.format == "gguf":
        try:
            return facts_from_gguf(model.path)
        except GGUFError as error:
            raise SourceError(str(error)) from error
    return facts_from_hf_config(read_config(model.path))


def read_config(directory: Path) -> dict[str, Any]:
    """``config.json`` of a checkpoint directory. SourceError if it is absent or no JSON object."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise SourceError(f"{path}: must hold a JSON object")
    return config


def _file_path(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise SourceError(f"{uri}: file:// needs an absolute path after three slashes: file:///models/NAME")
    return Path(unquote(parts.path))


def _local(uri: str, path: Path) -> ResolvedModel:
    if path.is_file():
        return _local_file(uri, path)
    if not path.is_dir():
        hint = f"; for the Hugging Face hub write hf://{uri}" if uri.count("/") == 1 and uri[0] not in "./~" else ""
        raise SourceError(f"{uri}: no such file or directory{hint}")
    tensors = tuple(sorted(path.glob("*.safetensors")))
    quantised = tuple(sorted(path.glob("*.gguf")))
    if not (path / "config.json").is_file():
        if len(quantised) == 1:
            return _local_file(uri, quantised[0])
        found = ", ".join(file.name for file in quantised) or "neither config.json nor a .gguf file"
        raise SourceError(f"{uri}: the directory has {found}; give a checkpoint directory or one .gguf file")
    return ResolvedModel(uri, path, "safetensors" if tensors else "config", tensors)


def _local_file(uri: str, path: Path) -> ResolvedModel:
    if path.suffix == ".gguf":
        return ResolvedModel(uri, path, "gguf", (path,))
    if path.name == "config.json":
        return ResolvedModel(uri, path.parent, "config", ())
    raise SourceError(f"{uri}: a model file must end in .gguf; for safetensors give the directory")


def _packaged(uri: str, rest: str, cache_dir: Path) -> ResolvedModel:
    package, _, name = rest.partition("/")
    return _local_file(uri, find_packaged_file(uri, package, name, cache_dir))


def _hub(uri: str, rest: str, weights: bool) -> ResolvedModel:
    """``org/name[@revision][/FILE]`` from the hub's cache or, where it is reachable, the hub."""
    organisation, _, remainder = rest.partition("/")
    name, _, file = remainder.partition("/")
    name, _, revision = name.partition("@")
    if not organisation or not name:
        raise SourceError(f"{uri}: must be hf://org/name[@revision] or hf://org/name[@revision]/FILE.gguf")
    repository = f"{organisation}/{name}"
    if file:
        path = _fetch(uri, repository, revision or None, (file,)) / file
        if not path.is_file():
            raise SourceError(f"{uri}: {repository} has no file {file}")
        return _local_file(uri, path)
    directory = _fetch(uri, repository, revision or None, _HUB_PATTERNS if weights else _HUB_CONFIG_PATTERNS)
    if not (directory / "config.json").is_file():
        raise SourceError(f"{uri}: the repository has no config.json; for GGUF name the file: hf://{rest}/FILE.gguf")
    return _local(uri, directory)


def _fetch(uri: str, repository: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    """The snapshot directory of a repository in the hub client's own cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns)))
    except HFValidationError as error:
        raise SourceError(f"{uri}: {repository!r} is no repository name of the hub; write hf://org/name") from error
    except GatedRepoError as error:
        raise SourceError(f"{uri}: access is gated; accept its licence on the hub and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise SourceError(f"{uri}: no revision {revision!r}; give a branch, tag or commit of {repository}") from error
    except RepositoryNotFoundError as error:
        raise SourceError(f"{uri}: no repository {repository}, or it is private (set HF_TOKEN)") from error
    except LocalEntryNotFoundError as error:
        raise SourceError(
            f"{uri}: the hub cannot be reached and the model is not in its cache; go online, or download the model and "
            f"give its path"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise SourceError(f"{uri}: download failed: {error}") from error


__all__ = ["ModelError", "ResolvedModel", "SourceError", "model_facts", "read_config", "resolve_model"]
