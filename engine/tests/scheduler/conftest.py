"""A model that shows every bookkeeping mistake in its answers, and a harness that runs the real scheduler on it.

The fake model has two attention layers over paged pools, as real ones have: a layer writes a value for every new token,
then each query sums what it sees through the page tables, position by position, and that sum decides the value of the
next layer and in the end the next token. A wrong page, a page overwritten too early, a hole in a window, a token at the
wrong place or in the wrong order changes every number after it. ``direct`` computes the same without pages, batches or
caches.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from motley_engine.config.schema import SchedulerSection
from motley_engine.executor.step import (
    Geometry,
    Logprobs,
    PageUpdate,
    RowSampling,
    SamplingPlan,
    StepKind,
    StepPlan,
    StepResult,
)
from motley_engine.messages import (
    Batch,
    FinishReason,
    Generate,
    Inspect,
    LogprobOptions,
    Refused,
    Shutdown,
    Stats,
    TokenLogprob,
    ToScheduler,
    ToServer,
)
from motley_engine.sampling.params import SamplingParams
from motley_engine.scheduler.loop import Scheduler
from motley_engine.scheduler.randomness import uniform

Values = npt.NDArray[np.uint64]

MULTIPLIER = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
LONGEST = 4096
PLACES = (np.arange(1, LONGEST + 1, dtype=np.uint64) * np.uint64(0xD6E8FEB86659FD93)) | np.uint64(1)


def mix(values: Values, salt: int) -> Values:
    z = (values ^ np.uint64(salt * MULTIPLIER & WORD)) * np.uint64(MULTIPLIER)
    return z ^ (z >> np.uint64(29))


def attend(values: Values, first: int, queries: npt.NDArray[np.int64], window: int) -> Values:
    """For each query position, the sum of what it sees; ``values[i]`` stands at position ``first + i``."""
    places = np.arange(first, first + len(values))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values * PLACES[places], dtype=np.uint64)))
    lowest = np.maximum(queries - window + 1, 0) if window else np.zeros_like(queries)
    return sums[queries + 1 - first] - sums[np.maximum(lowest, first) - first]


def pick(hidden: int, state: int, temperature: float, number: float, blocked: Iterable[int], vocab: int) -> int:
    """The fake sampler: one token from the last hidden value."""
    word = hidden ^ (state * MULTIPLIER & WORD)
    if temperature > 0:
        word ^= int(number * 2**24) * MULTIPLIER & WORD
    token, forbidden = (word >> 7) % vocab, set(blocked)
    while token in forbidden:
        token = (token + 1) % vocab
    return token


def logprob(hidden: int, token: int) -> float:
    return -float((hidden ^ token * MULTIPLIER & WORD) % 1000) / 64


def entry(hidden: int, token: int, options: LogprobOptions, vocab: int) -> TokenLogprob:
    top = [(hidden + k) % vocab for k in range(options.top)]
    return TokenLogprob(
        logprob(hidden, token),
        token,
        tuple((logprob(hidden, t), t) for t in top),
        tuple((logprob(hidden, t), t) for t in options.token_ids),
    )


def hidden_values(tokens: npt.NDArray[np.uint64], layers: tuple[str, ...], window: int) -> Values:
    """The fake model without pages: the last hidden value at every position."""
    values = mix(tokens, 1)
    for layer, kind in enumerate(layers):
        queries = np.arange(len(tokens))
        values = mix(values ^ attend(values, 0, queries, window if kind == "sliding" else 0), layer + 2)
    return values


@dataclass
class Expected:
    tokens: list[int]
    finish: FinishReason
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob] | None = None


def direct(message: Generate, geometry: Geometry, layers: tuple[str, ...]) -> Expected:
    """What a request must answer, computed alone and without any cache."""
    params, options, vocab = message.sampling, message.logprobs, geometry.vocab_size
    tokens, entries = list(message.input_ids), []
    prompt = len(tokens)
    limit = min(params.max_new_tokens, geometry.max_context - prompt)
    scores = _direct_scores(message, geometry, layers)
    while len(tokens) - prompt < limit:
        hidden = int(hidden_values(np.array(tokens, np.uint64), layers, geometry.window)[-1])
        count = len(tokens) - prompt
        number = uniform(np.array([params.seed or 0], np.uint64), np.array([count]))[0]
        stateful = params.penalised or bool(params.logit_bias)
        state = sum(t * (i + 1) for i, t in enumerate(tokens)) if stateful else 0
        blocked = params.stop_token_ids if count < params.min_new_tokens else ()
        token = pick(hidden, state, params.temperature, float(number), blocked, vocab)
        tokens.append(token)
        if options:
            entries.append(entry(hidden, token, options, vocab))
        if token in params.stop_token_ids and count >= params.min_new_tokens:
            return Expected(tokens[prompt:], FinishReason(kind="stop", matched=token), entries or None, scores)
    return Expected(tokens[prompt:], FinishReason(kind="length"), entries or None, scores)


def _direct_scores(message: Generate, geometry: Geometry, layers: tuple[str, ...]) -> list[TokenLogprob] | None:
    options = message.logprobs
    if options is None or options.start < 0:
        return None
    hidden = hidden_values(np.array(message.input_ids, np.uint64), layers, geometry.window)
    scores = [TokenLogprob(None, message.input_ids[0])] if options.start == 0 else []
    for position in range(max(options.start, 1), len(message.input_ids)):
        scores.append(entry(int(hidden[position - 1]), message.input_ids[position], options, geometry.vocab_size))
    return scores


class Table:
    """One page table and the paged values of the layers that use it."""

    def __init__(self, geometry: Geometry, pages: int, layers: int) -> None:
        columns = -(-geometry.max_context // geometry.page_size)
        self.page_size = geometry.page_size
        self.pages = np.zeros((geometry.max_running, columns), np.int64)
        rng = np.random.default_rng(7)
        # garbage everywhere, so that a slot read before it is written changes the answer
        self.values = [rng.integers(0, WORD, (pages, geometry.page_size), np.uint64) for _ in range(layers)]

    def apply(self, update: PageUpdate, holes: bool) -> None:
        places = list(zip(update.rows.tolist(), update.columns.tolist(), strict=True))
        assert len(set(places)) == len(places), "a plan sets one place of the page table twice"
        assert holes or (update.pages > 0).all(), "a full page cannot be dropped"
        self.pages[update.rows, update.columns] = update.pages

    def slots(self, row: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        pages = self.pages[row, positions // self.page_size]
        assert (pages > 0).all(), "a position without a page is used"
        return pages * self.page_size + positions % self.page_size


class FakeModel:
    """Runs step plans strictly in order on paged pools."""

    def __init__(self, geometry: Geometry, layers: tuple[str, ...]) -> None:
        self.geometry = geometry
        self.layers = layers
        self.tables = {
            "full": Table(geometry, geometry.full_pages, len(layers)),
            "sliding": Table(geometry, geometry.window_pages, len(layers)),
        }
        self.last = np.zeros(geometry.max_running, np.int64)
        self.states: dict[int, list[int]] = {}
        self.seq = 0

    def execute(self, plan: StepPlan, sampling: SamplingPlan | None) -> StepResult:
        assert plan.seq == self.seq + 1, "plans are numbered in order"
        self.seq = plan.seq
        if plan.kind in (StepKind.FLUSH, StepKind.STOP):
            return StepResult(plan.seq, np.empty(0, np.int32))
        self._check(plan)
        self.tables["full"].apply(plan.full, holes=False)
        self.tables["sliding"].apply(plan.window, holes=True)
        hidden = self._forward(plan)
        ids = self._sample(plan, sampling, hidden)
        return StepResult(plan.seq, ids, *self._logprobs(plan, sampling, hidden, ids))

    def _check(self, plan: StepPlan) -> None:
        assert len(set(plan.rows.tolist())) == len(plan.rows) > 0, "a row appears once in a step"
        assert plan.q_lens.sum() == len(plan.tokens)
        assert (plan.q_lens > 0).all()
        assert plan.kv_lens.max() <= self.geometry.max_context
        if plan.kind is StepKind.DECODE:
            assert (plan.q_lens == 1).all()
            assert (plan.sample == np.arange(len(plan.rows))).all()
        for array in (plan.rows, plan.q_lens, plan.kv_lens, plan.tokens, plan.sample, plan.score):
            assert array.dtype == np.int32, "flat arrays are int32"

    def _forward(self, plan: StepPlan) -> Values:
        tokens = plan.tokens.astype(np.int64)
        tokens = np.where(tokens < 0, self.last[np.maximum(-1 - tokens, 0)], tokens).astype(np.uint64)
        ends = np.cumsum(plan.q_lens)
        positions = [np.arange(kv - q, kv) for q, kv in zip(plan.q_lens, plan.kv_lens, strict=True)]
        values = mix(tokens, 1)
        for layer, kind in enumerate(self.layers):
            table, window = self.tables[kind], self.geometry.window if kind == "sliding" else 0
            pool = table.values[layer].reshape(-1)
            slots = np.concatenate([table.slots(r, p) for r, p in zip(plan.rows, positions, strict=True)])
            assert len(np.unique(slots)) == len(slots), "two tokens are written to one slot"
            pool[slots] = values
            seen = np.empty_like(values)
            for row, queries, end in zip(plan.rows, positions, ends, strict=True):
                first = max(int(queries[0]) - window + 1, 0) if window else 0
                visible = pool[table.slots(row, np.arange(first, queries[-1] + 1))]
                seen[end - len(queries) : end] = attend(visible, first, queries, window)
            values = mix(values ^ seen, layer + 2)
        return values

    def _sample(self, plan: StepPlan, sampling: SamplingPlan | None, hidden: Values) -> npt.NDArray[np.int32]:
        if sampling is None:
            assert not len(plan.sample)
            return np.empty(0, np.int32)
        self._set_states(sampling.new_rows)
        last, rows = np.cumsum(plan.q_lens)[plan.sample] - 1, plan.rows[plan.sample].tolist()
        blocked = sampling.blocked.tolist()
        for i, (row, at) in enumerate(zip(rows, last.tolist(), strict=True)):
            seen = self.states.get(row, []) if sampling.state[i] else []
            token = pick(
                int(hidden[at]),
                sum(t * (k + 1) for k, t in enumerate(seen)),
                float(sampling.temperature[i]),
                float(sampling.uniform[i]),
                [t for j, t in blocked if j == i],
                self.geometry.vocab_size,
            )
            self.last[row] = token
            seen.append(token)
        return self.last[rows].astype(np.int32)

    def _set_states(self, new_rows: list[RowSampling]) -> None:
        for new in new_rows:
            self.states[new.row] = new.prompt.tolist() + new.output.tolist()

    def _logprobs(
        self, plan: StepPlan, sampling: SamplingPlan | None, hidden: Values, ids: npt.NDArray[np.int32]
    ) -> tuple[Logprobs | None, Logprobs | None]:
        if sampling is None:
            return None, None
        last = np.cumsum(plan.q_lens)[plan.sample] - 1
        chosen = scores = None
        if (sampling.top_logprobs >= 0).any():
            chosen = self._table(hidden[last], ids, sampling.top_logprobs, sampling.asked)
        if len(plan.score):
            scores = self._table(hidden[plan.score], sampling.score_targets, sampling.score_top, sampling.score_asked)
        return chosen, scores

    def _table(
        self,
        hidden: Values,
        ids: npt.NDArray[np.int32],
        top: npt.NDArray[np.int32],
        asked: dict[int, npt.NDArray[np.int32]],
    ) -> Logprobs:
        widest = max(int(top.max()), 0)
        words = [int(word) for word in hidden]
        top_ids = np.array([[(w + k) % self.geometry.vocab_size for k in range(widest)] for w in words], np.int32)
        top_ids = top_ids.reshape(len(words), widest)
        return Logprobs(
            np.array([logprob(w, t) for w, t in zip(words, ids.tolist(), strict=True)], np.float32),
            np.array(
                [[logprob(w, t) for t in row] for w, row in zip(words, top_ids.tolist(), strict=True)], np.float32
            ).reshape(len(words), widest),
            top_ids,
            {i: np.array([logprob(words[i], t) for t in want.tolist()], np.float32) for i, want in asked.items()},
        )


class FakeRunner:
    """Executes as late as it may: a step runs when its result is asked for, so plans must not change after submit."""

    def __init__(self, model: FakeModel, timeouts: Callable[[], bool] = lambda: False) -> None:
        self.model = model
        self.plans: list[StepPlan] = []
        self.waiting: deque[FakePending] = deque()
        self.timeouts = timeouts
        self.deepest = 0

    def submit(self, plan: StepPlan, sampling: SamplingPlan | None) -> FakePending:
        pending = FakePending(self, plan, sampling)
        self.plans.append(plan)
        self.waiting.append(pending)
        self.deepest = max(self.deepest, len(self.waiting))
        return pending


@dataclass
class FakePending:
    runner: FakeRunner
    plan: StepPlan
    sampling: SamplingPlan | None

    def result(self, timeout: float) -> StepResult:
        assert timeout > 0, "every wait is bounded and positive"
        if self.runner.timeouts():
            raise TimeoutError
        assert self.runner.waiting.popleft() is self, "results are taken in order"
        return self.runner.model.execute(self.plan, self.sampling)


@dataclass
class Script:
    """Mailbox that plays messages at given ticks (turns of the loop) and shuts down after the last answer."""

    messages: list[tuple[int, ToScheduler]]
    sent: list[ToServer] = field(default_factory=list)
    tick: int = 0
    open: set[str] = field(default_factory=set)
    now: float = 0.0
    quiet: int = 0
    on_send: Callable[[ToServer], list[ToScheduler]] = lambda message: []
    replies: list[ToScheduler] = field(default_factory=list)

    def receive(self) -> list[ToScheduler]:
        self.tick += 1
        self.now += 0.01
        assert self.tick < 200_000, f"no end in sight; open: {sorted(self.open)[:5]}"
        due = [message for tick, message in self.messages if tick <= self.tick] + self.replies
        self.messages = [(tick, message) for tick, message in self.messages if tick > self.tick]
        self.replies = []
        self.open |= {message.rid for message in due if isinstance(message, Generate)}
        if not self.messages and not self.open and not due:
            self.quiet += 1
            return [Inspect(call=1)] if self.quiet == 2 else [Shutdown()] if self.quiet > 2 else []
        return due

    def wait(self, timeout: float) -> bool:
        assert 0 <= timeout <= 1.0, "the loop never waits long"
        self.now += timeout
        return True

    def send(self, message: ToServer) -> None:
        self.sent.append(message)
        if isinstance(message, Batch):
            assert message.updates, "an empty batch is noise"
            self.open -= {update.rid for update in message.updates if update.finish is not None}
        elif isinstance(message, Refused):
            self.open.discard(message.rid)
        self.replies += self.on_send(message)

    def clock(self) -> float:
        self.now += 0.0001
        return self.now


@dataclass
class Answer:
    """All that was said about one request."""

    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    cached: int | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] | None = None
    updates: int = 0


class Harness:
    """The real scheduler over the fake model; ``run`` plays messages to the end and collects the answers."""

    def __init__(
        self,
        config: SchedulerSection,
        geometry: Geometry,
        layers: tuple[str, ...] = ("full", "full"),
        timeouts: Callable[[], bool] = lambda: False,
        seed: int = 0,
    ) -> None:
        self.geometry = geometry
        self.layers = layers
        self.runner = FakeRunner(FakeModel(geometry, layers), timeouts)
        self.script = Script([])
        self.scheduler = Scheduler(
            config, geometry, self.runner, self.script, lambda: self.script.clock(), watchdog=60.0, seed=seed
        )

    def run(
        self,
        messages: Iterable[tuple[int, ToScheduler]],
        on_send: Callable[[ToServer], list[ToScheduler]] = lambda message: [],
    ) -> dict[str, Answer]:
        self.script.messages = list(messages)
        self.script.on_send = on_send
        self.scheduler.run()
        return self.answers()

    def answers(self) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        for message in self.script.sent:
            for update in message.updates if isinstance(message, Batch) else ():
                answer = answers.setdefault(update.rid, Answer())
                assert answer.finish is None, "nothing follows the last update"
                answer.updates += 1
                answer.tokens += update.token_ids
                answer.finish = update.finish
                answer.logprobs += update.logprobs or []
                if answer.updates == 1:
                    answer.cached, answer.prompt_logprobs = update.cached_tokens, update.prompt_logprobs
                else:
                    assert update.cached_tokens is None
                    assert update.prompt_logprobs is None
        return answers

    def sent(self, kind: type) -> list:
        return [message for message in self.script.sent if isinstance(message, kind)]

    def stats(self) -> Stats:
        return self.sent(Stats)[-1]

    def expected(self, message: Generate) -> Expected:
        return direct(message, self.geometry, self.layers)

    def verify(self, message: Generate, answer: Answer) -> None:
        """The answer is exactly what direct generation says."""
        expected = self.expected(message)
        assert answer.tokens == expected.tokens, message.rid
        assert answer.finish == expected.finish, message.rid
        assert (answer.logprobs or None) == expected.logprobs, message.rid
        assert answer.prompt_logprobs == expected.prompt_logprobs, message.rid


def geometry(**changes: int) -> Geometry:
    sizes = {
        "page_size": 4,
        "full_pages": 64,
        "window_pages": 0,
        "window": 0,
        "max_running": 8,
        "max_context": 128,
        "vocab_size": 97,
    }
    return Geometry(**{**sizes, **changes})


def config(**changes: object) -> SchedulerSection:
    return SchedulerSection(**{"check_invariants": True, "max_running_requests": 8, **changes})


def generate(rid: str, ids: list[int], **changes: object) -> Generate:
    """A greedy request; keywords go to the sampling parameters, or to the message where it has the field."""
    message = {key: changes.pop(key) for key in ("logprobs", "priority") if key in changes}
    sampling = SamplingParams(**{"max_new_tokens": 8, "temperature": 0.0, **changes})
    return Generate(rid=rid, input_ids=list(ids), sampling=sampling, **message)


def ints(values: Iterable[int]) -> npt.NDArray[np.int32]:
    return np.array(list(values), np.int32)


@pytest.fixture(scope="session")
def lab() -> ModuleType:
    """This module: Harness, geometry, config, generate."""
    return sys.modules[__name__]
