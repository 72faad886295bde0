"""Messages between the HTTP process and the scheduler. Tokens only: text never crosses this line."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from motley_engine.sampling.params import SamplingParams


class LogprobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request wants to know about probabilities.

    ``start`` is the first prompt position whose logprob is wanted; -1 = output tokens only. Logprobs are the
    log-softmax of the model's raw logits (before penalties, bias and temperature).
    """

    start: int = -1
    top: int = 0
    token_ids: tuple[int, ...] = ()


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One sequence to generate. ``rid`` is unique among live requests; the server makes it so."""

    rid: str
    input_ids: list[int]
    sampling: SamplingParams
    logprobs: LogprobOptions | None = None
    priority: int = 0


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End a request early. ``rid`` '' aborts all. ``reason`` 'stop' frees a request whose stop string matched: nobody
    waits for it any more, so no Finished follows. Any other reason is answered with a Finished of kind 'abort'."""

    rid: str
    reason: str = "abort"


class Flush(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Drop the prefix cache; refused while requests run or wait."""

    call: int


class Inspect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask for a Stats message at once."""

    call: int


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Accept nothing new; a Drained message follows when the last request has ended."""


class Shutdown(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End the replica's ranks in order, now."""


ToScheduler: TypeAlias = Generate | Abort | Flush | Inspect | Drain | Shutdown


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Logprob of one token with the most likely alternatives and the asked ids, each as (logprob, token id)."""

    logprob: float | None
    token_id: int
    top: tuple[tuple[float, int], ...] = ()
    asked: tuple[tuple[float, int], ...] = ()


class FinishReason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request ended. ``kind``: 'stop' (``matched`` = token id), 'length', 'abort' or 'error' (``message``)."""

    kind: str
    matched: int | None = None
    message: str = ""


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New tokens of one request, in order. The first update carries the prompt's facts; the last has ``finish``."""

    rid: str
    token_ids: list[int] = []
    finish: FinishReason | None = None
    cached_tokens: int | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All updates of one step in one message."""

    updates: list[Update]


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request that was never queued. ``code``: 'queue_full' (503, retry), 'draining' (503) or 'invalid' (400)."""

    rid: str
    code: str
    message: str
    retry_after: int = 1


class Flushed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    call: int
    ok: bool
    message: str


class Drained(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Stats(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Counters since start and gauges now. Sent every second and on Inspect (then ``call`` echoes the asker's number).

    Units: pages and tokens as named; ``step_seconds`` is the sum of wall time of all steps.
    """

    call: int = -1
    running: int = 0
    waiting: int = 0
    retractions: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    pages_total: int = 0
    pages_free: int = 0
    pages_cached: int = 0
    window_pages_total: int = 0
    window_pages_free: int = 0
    leaked_pages: int = 0


FromScheduler: TypeAlias = Batch | Refused | Flushed | Drained | Stats


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The scheduler loop is alive although it has nothing to say."""

    steps: int


ToServer: TypeAlias = Batch | Refused | Flushed | Drained | Stats | Heartbeat
