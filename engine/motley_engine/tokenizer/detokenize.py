"""Text of a growing id sequence, piece by piece, without decoding the whole sequence again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from motley_engine.tokenizer.wrapper import ByteStyle, Tokenizer

REPLACEMENT = "\ufffd"
CONTEXT = 4
"""Tokens kept before the new ones, so that a decoder sees what stands left of them (spaces, characters)."""
WINDOW = 16
"""Window length, in tokens, from which settled tokens are dropped."""


class Detokenizer:
    """Incremental decoder of one request. All deltas and ``finish`` together equal decoding all ids at once.

    Characters whose bytes are not complete are held back. ``context`` holds the ids before the first one (the prompt's
    last will do): the deltas then continue that text, e.g. with the space that a decoder strips at a text's start.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._window = [index for index in context[-WINDOW:] if self._shown(index)]
        self._sent = self._decode()
        if self._sent.endswith(REPLACEMENT):
            # the context ends inside a character; nothing can be continued from there
            self._window, self._sent = [], ""

    def add(self, ids: Iterable[int]) -> str:
        """Takes new ids and returns the text that is settled by them, often ''."""
        new = [index for index in ids if self._shown(index)]
        if not new:
            return ""
        self._window += new
        if self._window[-1] in self._tokenizer.byte_ids:
            # a run of single-byte tokens decodes as one, so none of it is settled before it ends
            return ""
        text = self._decode()
        settled = text if self._fallback else text.removesuffix(REPLACEMENT)
        delta = settled[len(self._sent) :]
        self._sent += delta
        if len(self._window) >= WINDOW and settled == text:
            self._trim()
        return delta

    def finish(self) -> str:
        """What was held back, with U+FFFD for incomplete characters."""
        text = self._decode()
        delta = text[len(self._sent) :]
        self._sent = text
        return delta

    def _shown(self, index: int) -> bool:
        """Ids outside the vocabulary have no text: they must not seem to end a run of bytes."""
        return index < self._tokenizer.vocab_size and index not in self._skipped

    @property
    def _fallback(self) -> bool:
        return self._tokenizer.byte_style is ByteStyle.FALLBACK

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special=False)

    def _trim(self) -> None:
        self._window = self._window[-CONTEXT:]
        self._sent = self._decode()
