"""Takes requests in: checks what needs the engine's geometry, bounds the queue, and aborts."""

from __future__ import annotations

import math
import random

import numpy as np

from motley_engine.config.schema import SchedulerSection
from motley_engine.executor.step import Geometry, IntArray
from motley_engine.messages import Abort, FinishReason, Generate, Refused
from motley_engine.sampling.params import SamplingParams
from motley_engine.scheduler.request import Request
from motley_engine.scheduler.roster import Roster

_SEEDS = 1 << 64


class InvalidRequestError(ValueError):
    """A request that can never be served; the message names the field and the fault."""


class Intake:
    """The door of the scheduler. Nothing that comes through it can end the loop."""

    def __init__(self, config: SchedulerSection, geometry: Geometry, roster: Roster, seed: int) -> None:
        self._config = config
        self._geometry = geometry
        self._roster = roster
        self._seeds = random.Random(seed)
        self._arrivals = 0
        self.draining = False

    def accept(self, message: Generate) -> Refused | None:
        """Queue a request, or say why not."""
        if self.draining:
            return Refused(rid=message.rid, code="draining", message="the engine is shutting down")
        waiting = len(self._roster.queue)
        if waiting >= self._config.max_queued_requests:
            retry = self._roster.counters.retry_after(waiting)
            full = f"{waiting} requests wait already (--max-queued-requests)"
            return Refused(rid=message.rid, code="queue_full", message=full, retry_after=retry)
        try:
            self._roster.enqueue(self._request(message))
        except InvalidRequestError as error:
            return Refused(rid=message.rid, code="invalid", message=str(error))
        return None

    def abort(self, message: Abort) -> None:
        """End one request, or all; an unknown one has ended already."""
        roster = self._roster
        chosen = [roster.live[message.rid]] if message.rid in roster.live else []
        if message.rid == "":
            chosen = list(roster.live.values())
        for request in chosen:
            why = "the request was aborted" if message.reason == "abort" else message.reason
            roster.end(request, None if message.reason == "stop" else FinishReason(kind="abort", message=why))

    def _request(self, message: Generate) -> Request:
        if not message.rid:
            raise InvalidRequestError("rid: the empty id stands for all requests; give each its own")
        if message.rid in self._roster.live:
            raise InvalidRequestError(f"rid: {message.rid!r} is the id of a request that still runs")
        prompt = self._prompt(message.input_ids)
        check_sampling(message.sampling, self._geometry.vocab_size)
        self._check_logprobs(message)
        self._arrivals += 1
        # every arrival draws, so one client's seed does not change another's numbers
        drawn = self._seeds.randrange(_SEEDS)
        seed = message.sampling.seed
        return Request(
            rid=message.rid,
            prompt=prompt,
            sampling=message.sampling,
            max_new=min(message.sampling.max_new_tokens, self._geometry.max_context - len(prompt)),
            seed=drawn if seed is None else seed % _SEEDS,
            arrival=self._arrivals,
            priority=message.priority if self._config.enable_priority_scheduling else 0,
            logprobs=message.logprobs,
        )

    def _prompt(self, ids: list[int]) -> IntArray:
        longest, vocab = self._geometry.max_context - 1, self._geometry.vocab_size
        if not ids:
            raise InvalidRequestError("input_ids: empty prompt; give at least one token")
        if len(ids) > longest:
            raise InvalidRequestError(
                f"input_ids: the prompt has {len(ids)} tokens, but the context of {longest + 1} tokens leaves room for "
                f"{longest} and one token of output; shorten the prompt"
            )
        check_ids("input_ids", ids, vocab)
        ledger = self._roster.ledger
        room = ledger.full.pool.total * ledger.page_size
        if ledger.full.pool.total and len(ids) > room:
            raise InvalidRequestError(
                f"input_ids: the prompt has {len(ids)} tokens, but the KV pool holds only {room}; shorten the prompt, "
                "or give the engine more memory"
            )
        return np.array(ids, np.int32)

    def _check_logprobs(self, message: Generate) -> None:
        options, vocab = message.logprobs, self._geometry.vocab_size
        if options is None:
            return
        if options.start < -1:
            raise InvalidRequestError(f"logprobs.start: {options.start} is below -1 (output tokens only)")
        if not 0 <= options.top <= vocab:
            raise InvalidRequestError(f"logprobs.top: {options.top} is not within 0 and the vocabulary of {vocab}")
        check_ids("logprobs.token_ids", options.token_ids, vocab)


def check_ids(name: str, ids: list[int] | tuple[int, ...], vocab: int) -> None:
    """Raises InvalidRequestError unless every id is in the vocabulary."""
    if ids and not (min(ids) >= 0 and max(ids) < vocab):
        wrong = next(token for token in ids if not 0 <= token < vocab)
        raise InvalidRequestError(f"{name}: {wrong} is not a token id; the vocabulary has {vocab} (0 to {vocab - 1})")


def check_sampling(params: SamplingParams, vocab: int) -> None:
    """Raises InvalidRequestError for values that no sampler can honour."""
    bias = params.logit_bias or {}
    rules = (
        ("max_new_tokens", params.max_new_tokens, params.max_new_tokens >= 0, "at least 0"),
        ("min_new_tokens", params.min_new_tokens, params.min_new_tokens >= 0, "at least 0"),
        ("temperature", params.temperature, 0 <= params.temperature < math.inf, "a number from 0"),
        ("top_k", params.top_k, params.top_k == -1 or params.top_k >= 1, "-1 or at least 1"),
        ("top_p", params.top_p, 0 < params.top_p <= 1, "above 0 and at most 1"),
        ("min_p", params.min_p, 0 <= params.min_p <= 1, "within 0 and 1"),
        ("repetition_penalty", params.repetition_penalty, 0 < params.repetition_penalty < math.inf, "above 0"),
        ("frequency_penalty", params.frequency_penalty, math.isfinite(params.frequency_penalty), "finite"),
        ("presence_penalty", params.presence_penalty, math.isfinite(params.presence_penalty), "finite"),
        ("logit_bias", list(bias.values()), all(math.isfinite(value) for value in bias.values()), "finite"),
    )
    for name, value, good, wanted in rules:
        if not good:
            raise InvalidRequestError(f"{name}: {value} is not {wanted}")
    check_ids("stop_token_ids", params.stop_token_ids, vocab)
    check_ids("logit_bias", tuple(bias), vocab)
