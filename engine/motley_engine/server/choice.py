"""One sequence being answered: ids become text, stop strings end it, logprobs find their place in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from motley_engine.messages import FinishReason, TokenLogprob, Update
from motley_engine.server.resolve import SequenceRequest
from motley_engine.server.stop import StopMatcher
from motley_engine.tokenizer import Detokenizer, Tokenizer


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a choice ended: 'stop' (``matched`` = id or string), 'length', 'abort' or 'error' (``message``)."""

    kind: str
    matched: int | str | None = None
    message: str = ""


class ScoredToken(NamedTuple):
    """A token's logprobs and the offset of its text, in characters from the start of the answer."""

    logprob: TokenLogprob
    offset: int


class Delta(NamedTuple):
    """What one choice gained since it was last asked."""

    text: str
    scores: list[ScoredToken]
    finish: Finish | None


class Choice:
    """Consumes the updates of one sequence. ``index`` counts the sequences of the HTTP request."""

    def __init__(self, index: int, request: SequenceRequest, tokenizer: Tokenizer | None) -> None:
        self.index = index
        self.request = request
        self.output_ids: list[int] = []
        self.scores: list[ScoredToken] = []
        self.prompt_logprobs: list[TokenLogprob] = []
        self.cached_tokens = 0
        self.finish: Finish | None = None
        self._detokenizer: Detokenizer | None = None
        if tokenizer is not None:
            self._detokenizer = Detokenizer(tokenizer, request.skip_special_tokens, request.prompt_ids)
        self._stops = StopMatcher(request.stops, request.keep_stop) if request.stops else None
        self._released: list[str] = []
        self._length = 0
        self._taken_text = 0
        self._taken_scores = 0
        self._taken_tokens = 0

    @property
    def text(self) -> str:
        """All text released so far; it never changes, only grows."""
        return "".join(self._released)

    @property
    def pending_tokens(self) -> int:
        """Tokens received since ``take``."""
        return len(self.output_ids) - self._taken_tokens

    def feed(self, update: Update) -> None:
        """Take an update in. What comes after the end is dropped, be it in this update or a later one."""
        if self.finish is not None:
            return
        if update.cached_tokens is not None:
            self.cached_tokens = update.cached_tokens
        if update.prompt_logprobs:
            self.prompt_logprobs.extend(update.prompt_logprobs)
        self._feed_tokens(update)
        if update.finish is not None and self.finish is None:
            self._end(update.finish)

    def take(self) -> Delta:
        """Text and logprobs since the last call."""
        text = "".join(self._released[self._taken_text :])
        scores = self.scores[self._taken_scores :]
        self._taken_text = len(self._released)
        self._taken_scores = len(self.scores)
        self._taken_tokens = len(self.output_ids)
        return Delta(text, scores, self.finish)

    def _feed_tokens(self, update: Update) -> None:
        ids = update.token_ids
        trimmed = len(ids) - 1 if self._ends_by_token(update) and not self.request.keep_stop else len(ids)
        for position, token in enumerate(ids):
            self.output_ids.append(token)
            if update.logprobs is not None:
                self.scores.append(ScoredToken(update.logprobs[position], self._length))
            if position < trimmed and self._detokenizer is not None:
                self._release(self._detokenizer.add((token,)))
                if self.finish is not None:
                    return

    def _release(self, piece: str) -> None:
        """Pass new text through the stop strings and count it."""
        self._length += len(piece)
        if self._stops is not None:
            piece = self._stops.push(piece, len(self.output_ids) >= self.request.sampling.min_new_tokens)
            if self._stops.matched is not None:
                self.finish = Finish("stop", self._stops.matched)
        if piece:
            self._released.append(piece)

    def _end(self, reason: FinishReason) -> None:
        if self._detokenizer is not None:
            self._release(self._detokenizer.finish())
            if self.finish is not None:
                return
            if self._stops is not None and (held := self._stops.flush()):
                self._released.append(held)
        self.finish = Finish(reason.kind, reason.matched, reason.message)

    @staticmethod
    def _ends_by_token(update: Update) -> bool:
        return update.finish is not None and update.finish.kind == "stop" and update.finish.matched is not None
