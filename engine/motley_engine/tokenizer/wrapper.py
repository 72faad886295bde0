"""The tokenizer the server sees: a ``tokenizers`` backend, the special tokens and the chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as Backend

from motley_engine.tokenizer.alphabet import BYTE_OF
from motley_engine.tokenizer.template import ChatTemplate, ChatTemplateError, Message


class ByteStyle(Enum):
    """How a vocabulary spells bytes that are no text of their own."""

    LEVEL = "byte-level"
    """Every token is spelled in 256 printable stand-ins for bytes."""
    FALLBACK = "fallback"
    """Tokens are text; single bytes are tokens such as ``<0x0A>``."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Named special tokens as text; None where the model has none."""

    bos: str | None = None
    eos: str | None = None
    unk: str | None = None
    pad: str | None = None

    def for_template(self) -> dict[str, str]:
        """The names that chat templates use."""
        named = {"bos_token": self.bos, "eos_token": self.eos, "unk_token": self.unk, "pad_token": self.pad}
        return {name: text for name, text in named.items() if text is not None}


class Tokenizer:
    """Encodes and decodes like transformers does with the same files. Safe to use from several threads.

    ChatTemplateError if ``chat_template`` is no valid Jinja.
    """

    def __init__(self, backend: Backend, special: SpecialTokens, chat_template: str | None = None) -> None:
        self.backend = backend
        self.special = special
        self._template = None if chat_template is None else ChatTemplate(chat_template)
        self.vocab_size = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._added = {index: token.content for index, token in added.items()}
        self.byte_style = _byte_style(backend)

    @property
    def chat_template(self) -> str | None:
        """The template's source."""
        return None if self._template is None else self._template.source

    @cached_property
    def bos_id(self) -> int | None:
        return self._id_of(self.special.bos)

    @cached_property
    def eos_id(self) -> int | None:
        return self._id_of(self.special.eos)

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        """Ids of the tokens that stand for one byte each (byte fallback only)."""
        if self.byte_style is not ByteStyle.FALLBACK:
            return frozenset()
        found = (self.backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return frozenset(index for index in found if index is not None)

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Ids of ``text``; special tokens spelled in the text become their ids.

        ``add_special`` adds what the model wants at the ends, e.g. its BOS.
        """
        ids: list[int] = self.backend.encode(text, add_special_tokens=add_special).ids
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ``ids``; bytes that form no character become U+FFFD. Ids outside the vocabulary add nothing."""
        text: str = self.backend.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def token_text(self, token_id: int) -> str:
        """One token as text, special or not; U+FFFD where its bytes are only part of a character."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Exact bytes that one token adds inside a text; empty for ids outside the vocabulary."""
        added = self._added.get(token_id)
        if added is not None:
            return added.encode()
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        if self.byte_style is ByteStyle.LEVEL and all(char in BYTE_OF for char in token):
            return bytes(BYTE_OF[char] for char in token)
        if token_id in self.byte_ids:
            return bytes([int(token[1:-1], 16)])
        return str(token).replace("▁", " ").encode() if self.byte_style is ByteStyle.FALLBACK else str(token).encode()

    def render_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt text of a chat. ``variables`` reach the template as they are (e.g. ``enable_thinking``).

        Raises ChatTemplateError if the model has no template or the template refuses the messages.
        """
        if self._template is None:
            raise ChatTemplateError(
                "this model has no chat template (it is probably a base model); use a text completion, or start the "
                "server with --chat-template FILE"
            )
        names = {**self.special.for_template(), **variables, "add_generation_prompt": add_generation_prompt}
        return self._template.render(messages, tools, names)

    def apply_chat_template(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None, **variables: Any
    ) -> list[int]:
        """Ids of a chat prompt. Keywords and errors as for ``render_chat``; the template writes BOS itself."""
        return self.encode(self.render_chat(messages, tools, **variables), add_special=False)

    def _id_of(self, token: str | None) -> int | None:
        index: int | None = None if token is None else self.backend.token_to_id(token)
        return index


def _byte_style(backend: Backend) -> ByteStyle:
    decoder = backend.decoder
    kinds = _types(json.loads(decoder.__getstate__())) if decoder is not None else set()
    if "ByteLevel" in kinds:
        return ByteStyle.LEVEL
    return ByteStyle.FALLBACK if "ByteFallback" in kinds else ByteStyle.NONE


def _types(state: Any) -> set[str]:
    """Every ``type`` in a decoder's state, which nests for sequences."""
    nested = [_types(item) for item in state.get("decoders", [])]
    return {str(state["type"])}.union(*nested)
