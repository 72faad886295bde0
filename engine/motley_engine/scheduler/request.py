"""One request inside the scheduler: what was asked, what is known so far, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from motley_engine.executor.step import IntArray
from motley_engine.messages import FinishReason, LogprobOptions, TokenLogprob, Update
from motley_engine.sampling.params import SamplingParams


class Phase(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Request:
    """Phases: WAITING -> RUNNING (holds a row and pages) -> DONE; retraction leads from RUNNING back to WAITING.

    ``arrival`` numbers requests in order. ``max_new`` is clipped to the context. ``context`` holds the tokens to
    prefill: the prompt, and after a retraction the output so far as well. ``score_next`` is the next prompt position
    whose logprob is still to be computed, ``len(prompt)`` when none is.
    """

    rid: str
    prompt: IntArray
    sampling: SamplingParams
    max_new: int
    seed: int
    arrival: int
    priority: int = 0
    logprobs: LogprobOptions | None = None
    output: list[int] = field(default_factory=list)
    phase: Phase = Phase.WAITING
    row: int = -1
    queued_at: int = 0
    cached_tokens: int | None = None
    scores: list[TokenLogprob] | None = None
    score_next: int = 0
    stop_ids: frozenset[int] = frozenset()
    context: IntArray = field(init=False)
    _introduced: bool = False

    def __post_init__(self) -> None:
        assert len(self.prompt) > 0, "a prompt has at least one token"
        assert self.max_new >= 0, "max_new cannot be negative"
        self.context = self.prompt
        self.stop_ids = frozenset(self.sampling.stop_token_ids)
        self._plan_scores()

    def _plan_scores(self) -> None:
        start = self.logprobs.start if self.logprobs else -1
        self.score_next = len(self.prompt)
        if start >= 0:
            # the first token follows nothing, so nothing predicted it
            self.scores = [TokenLogprob(None, int(self.prompt[0]))] if start == 0 else []
            self.score_next = min(max(start, 1), len(self.prompt))

    @property
    def match_limit(self) -> int:
        """How many tokens may come from the prefix cache: at least one is computed, and all that scores need."""
        limit = len(self.context) - 1
        return min(limit, self.score_next - 1) if self.score_next < len(self.prompt) else limit

    @property
    def has_state(self) -> bool:
        """Whether the sampler keeps state for this request (penalties or bias)."""
        return self.sampling.penalised or bool(self.sampling.logit_bias)

    @property
    def left(self) -> int:
        return self.max_new - len(self.output)

    def tokens(self) -> IntArray:
        """Prompt and output known so far."""
        return np.concatenate((self.prompt, np.asarray(self.output, np.int32))) if self.output else self.prompt

    def start(self, row: int, cached: int) -> None:
        assert self.phase is Phase.WAITING, "only a waiting request starts"
        assert row >= 0, "a running request has a row"
        assert 0 <= cached <= self.match_limit, "a prefix match may not cover tokens that must be computed"
        self.phase, self.row = Phase.RUNNING, row
        if self.cached_tokens is None:
            self.cached_tokens = cached

    def retract(self) -> None:
        """Back to the queue, with all output kept as tokens to prefill."""
        assert self.phase is Phase.RUNNING, "only a running request is retracted"
        self.phase, self.row = Phase.WAITING, -1
        self.context = self.tokens()

    def end(self) -> None:
        assert self.phase is not Phase.DONE, "a request ends once"
        self.phase, self.row = Phase.DONE, -1

    def accept(self, token: int) -> FinishReason | None:
        """Append a sampled token; the reason if it is the last one. A request with max_new 0 ends without a token."""
        assert self.phase is Phase.RUNNING, "only a running request accepts tokens"
        if self.max_new == 0:
            return FinishReason(kind="length")
        assert len(self.output) < self.max_new, "no token after the last"
        self.output.append(token)
        if token in self.stop_ids and len(self.output) > self.sampling.min_new_tokens:
            return FinishReason(kind="stop", matched=token)
        return FinishReason(kind="length") if len(self.output) == self.max_new else None

    def update(
        self, token_ids: list[int], finish: FinishReason | None, logprobs: list[TokenLogprob] | None = None
    ) -> Update:
        """What to tell the server; the prompt's facts go with the first update."""
        if self._introduced:
            return Update(rid=self.rid, token_ids=token_ids, finish=finish, logprobs=logprobs)
        self._introduced = True
        return Update(
            rid=self.rid,
            token_ids=token_ids,
            finish=finish,
            cached_tokens=self.cached_tokens,
            logprobs=logprobs,
            prompt_logprobs=self.scores,
        )
