"""Where the model and its tokenizer are on this machine, and what to call the model."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from motley_engine.config.errors import ConfigError
from motley_engine.config.schema import ModelSection
from motley_planner.sources import ResolvedModel, SourceError, resolve_model

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


def locate_model(model: ModelSection) -> ResolvedModel:
    """The model's files, fetched if need be. ConfigError if they are not there, or not in the asked format."""
    needs_files = model.load_format != "dummy" or not model.skip_tokenizer_init
    try:
        found = resolve_model(model.model_path, weights=needs_files)
    except SourceError as error:
        raise ConfigError(f"--model-path: {error}") from error
    wanted = model.load_format
    if wanted == "dummy":
        return found
    if wanted not in ("auto", found.format):
        raise ConfigError(f"--load-format: {wanted}, but {found.path} holds {found.format}; drop the flag")
    if found.format == "config":
        raise ConfigError(
            f"--model-path: {found.path} has a config but no safetensors or GGUF weights; "
            "complete the download, or use --load-format dummy for random weights"
        )
    return found


def locate_tokenizer(model: ModelSection, source: ResolvedModel) -> Path | None:
    """Directory or .gguf file with the tokenizer; None if none is wanted. ConfigError if there is none."""
    if model.skip_tokenizer_init:
        return None
    path = _given(model.tokenizer_path) if model.tokenizer_path else source.path
    if path.is_dir() and not any((path / name).is_file() for name in TOKENIZER_FILES):
        flag = "--tokenizer-path" if model.tokenizer_path else "--model-path"
        raise ConfigError(
            f"{flag}: {path} has no tokenizer ({', '.join(TOKENIZER_FILES)}); "
            "name one with --tokenizer-path, or use --skip-tokenizer-init"
        )
    return path


def served_name(uri: str) -> str:
    """``org/name`` of a hub model, else the last part of the path without its ending."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme == "hf":
        organisation, _, remainder = rest.partition("/")
        return f"{organisation}/{remainder.partition('/')[0].partition('@')[0]}"
    path = PurePosixPath((rest if separator else uri).rstrip("/"))
    return path.name.removesuffix(".gguf") or uri


def _given(uri: str) -> Path:
    path = Path(uri).expanduser()
    if path.exists():
        return path
    try:
        return resolve_model(uri).path
    except SourceError as error:
        raise ConfigError(f"--tokenizer-path: {error}") from error
