"""What the server needs of a tokenizer. The real one is ``motley_engine.tokenizer``; tests bring a byte-level one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Detokenizer(Protocol):
    """Turns ids that arrive one by one into text. Text once returned never changes."""

    def add(self, token_id: int) -> str:
        """The text that became certain with this id; '' while a character or word is incomplete."""
        ...

    def finish(self) -> str:
        """The text still held back, incomplete bytes as U+FFFD. Nothing may be added afterwards."""
        ...


class Tokenizer(Protocol):
    """Ids to text and back. Every method is thread-safe; ids lie in [0, model vocabulary)."""

    @property
    def has_chat_template(self) -> bool: ...

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Ids of ``text``; ``add_special_tokens`` adds what the model expects around plain text (BOS)."""
        ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str: ...

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes of one id as they appear inside a text; special tokens as their name; unused ids as b''."""
        ...

    def render_chat(self, messages: Sequence[Mapping[str, Any]], template_arguments: Mapping[str, Any]) -> str:
        """The chat template's output, the opening of the assistant's turn included.

        Raises ValueError with the template's own words when it refuses the messages.
        """
        ...

    def detokenizer(self, prompt_ids: Sequence[int], skip_special_tokens: bool) -> Detokenizer:
        """A detokenizer for what follows ``prompt_ids`` ([] = start of text)."""
        ...
