"""Turns the results of a step into updates for the server, and ends requests that are complete."""

from __future__ import annotations

from motley_engine.executor.step import IntArray, Logprobs, StepResult
from motley_engine.messages import TokenLogprob
from motley_engine.scheduler.batch import Scored, Step
from motley_engine.scheduler.request import Phase, Request
from motley_engine.scheduler.roster import Roster


class Settler:
    """Hands sampled tokens and logprobs to their requests. What a step computed for a request that has ended since (an
    overrun, an abort) is dropped."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def settle(self, step: Step, result: StepResult) -> None:
        """Take over one step's results, in the order of its plan."""
        if step.scored:
            _take_scores(step.scored, result.scores)
        ids = result.token_ids.tolist()
        for index, (request, token) in enumerate(zip(step.sampled, ids, strict=True)):
            if request.phase is not Phase.DONE:
                self._take_token(request, token, _entries(request, result.logprobs, index, token))

    def _take_token(self, request: Request, token: int, logprobs: list[TokenLogprob] | None) -> None:
        roster = self._roster
        finish = request.accept(token)
        tokens = [token] if request.max_new else []
        roster.counters.generated_tokens += len(tokens)
        roster.updates.append(request.update(tokens, finish, logprobs if tokens else None))
        if finish is not None:
            roster.counters.finished += 1
            roster.close(request)


def _entries(request: Request, logprobs: Logprobs | None, index: int, token: int) -> list[TokenLogprob] | None:
    options = request.logprobs
    if options is None:
        return None
    assert logprobs is not None, "the executor left out the logprobs that the plan asked for"
    return [_entry(logprobs, index, token, options.top, options.token_ids)]


def _take_scores(scored: list[Scored], scores: Logprobs | None) -> None:
    assert scores is not None, "the executor left out the prompt logprobs that the plan asked for"
    index = 0
    for part in scored:
        request, options = part.request, part.request.logprobs
        assert options is not None, "scores are computed only where asked for"
        assert request.scores is not None, "scores are kept where asked for"
        for token in part.request.prompt[part.start : part.stop].tolist():
            request.scores.append(_entry(scores, index, token, options.top, options.token_ids))
            index += 1


def _entry(logprobs: Logprobs, index: int, token: int, top: int, asked: tuple[int, ...]) -> TokenLogprob:
    return TokenLogprob(
        float(logprobs.chosen[index]),
        token,
        _pairs(logprobs.top_values[index, :top].tolist(), logprobs.top_ids[index, :top]) if top else (),
        tuple(zip(logprobs.asked[index].tolist(), asked, strict=True)) if asked else (),
    )


def _pairs(values: list[float], ids: IntArray) -> tuple[tuple[float, int], ...]:
    return tuple(zip(values, ids.tolist(), strict=True))
