"""Finds and loads the tokenizer of a model: a Hugging Face directory or a GGUF file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from motley_engine.tokenizer.gguf import VocabularyError, build, read_vocabulary
from motley_engine.tokenizer.template import ChatTemplateError
from motley_engine.tokenizer.wrapper import SpecialTokens, Tokenizer
from motley_planner.gguf_header import GGUFError, read_header

WAY_OUT = "name a Hugging Face directory with --tokenizer-path"


class TokenizerError(ValueError):
    """A tokenizer that cannot be loaded. The text names the path, the fault and the way out."""


def load_tokenizer(path: Path, chat_template: Path | None = None) -> Tokenizer:
    """The tokenizer at ``path``, a directory or a .gguf file; ``chat_template`` replaces its own template."""
    replacement = None if chat_template is None else _read_template(chat_template)
    load = _from_directory if path.is_dir() else _from_gguf
    try:
        return load(path, replacement)
    except ChatTemplateError as error:
        where = path if chat_template is None else chat_template
        raise TokenizerError(f"{where}: {error}; give another with --chat-template") from error


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"--chat-template: cannot read {path}: {error}; give a text file") from error


def _from_gguf(path: Path, template: str | None) -> Tokenizer:
    try:
        vocabulary = read_vocabulary(read_header(path))
        return build(vocabulary if template is None else replace(vocabulary, chat_template=template))
    except GGUFError as error:
        raise TokenizerError(f"{error}; {WAY_OUT}") from error
    except VocabularyError as error:
        raise TokenizerError(f"{path}: {error}; {WAY_OUT}") from error


def _from_directory(path: Path, template: str | None) -> Tokenizer:
    # importing transformers takes seconds, and GGUF files do without it
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise TokenizerError(f"{path}: no tokenizer that transformers can load: {error}; {WAY_OUT}") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise TokenizerError(f"{path}: {type(loaded).__name__} has no tokenizer.json form; {WAY_OUT}")
    special = SpecialTokens(loaded.bos_token, loaded.eos_token, loaded.unk_token, loaded.pad_token)
    return Tokenizer(backend, special, template or _one_template(loaded.chat_template))


def _one_template(template: str | dict[str, str] | None) -> str | None:
    """The default of several named templates."""
    return template.get("default") if isinstance(template, dict) else template
