"""The step loop, feature by feature: what goes into a step, and what is said to the server."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from motley_engine.cache.pages import OwnershipError
from motley_engine.executor.step import StepKind
from motley_engine.messages import (
    Abort,
    Drain,
    Drained,
    Flush,
    Flushed,
    Generate,
    Heartbeat,
    Inspect,
    LogprobOptions,
    Refused,
    Shutdown,
    Stats,
)
from motley_engine.sampling.params import SamplingParams
from motley_engine.scheduler.loop import StepStalledError

IDS = list(range(10, 30))


def kinds(harness):
    return [plan.kind.name for plan in harness.runner.plans]


def computed(harness):
    """New prompt tokens of every step."""
    return [int((plan.tokens >= 0).sum()) for plan in harness.runner.plans if plan.kind is StepKind.EXTEND]


@pytest.fixture(params=[False, True], ids=["overlap", "serial"])
def serial(request):
    return request.param


def test_one_request_is_one_prefill_and_one_step_per_token(lab, serial):
    harness = lab.Harness(lab.config(disable_overlap_schedule=serial), lab.geometry())
    request = lab.generate("a", IDS, max_new_tokens=5)
    answers = harness.run([(1, request)])
    harness.verify(request, answers["a"])
    assert kinds(harness) == ["EXTEND", *["DECODE"] * 4, "STOP"]
    assert answers["a"].cached == 0
    assert answers["a"].updates == 5


def test_overlap_runs_one_step_too_many_and_drops_its_token(lab, serial):
    harness = lab.Harness(lab.config(disable_overlap_schedule=serial), lab.geometry())
    third = harness.expected(lab.generate("a", IDS)).tokens[2]
    request = lab.generate("a", IDS, stop_token_ids=(third,))
    answers = harness.run([(1, request)])
    harness.verify(request, answers["a"])
    decodes = kinds(harness).count("DECODE")
    assert decodes == len(answers["a"].tokens) - 1 + (0 if serial else 1)
    assert harness.runner.deepest == (1 if serial else 2)


def test_prompts_are_computed_in_chunks_without_alignment(lab):
    harness = lab.Harness(lab.config(chunked_prefill_size=7), lab.geometry())
    request = lab.generate("a", IDS, max_new_tokens=1)
    harness.verify(request, harness.run([(1, request)])["a"])
    assert computed(harness) == [7, 7, 6]


def test_all_prefills_share_the_budget_of_a_step(lab):
    harness = lab.Harness(lab.config(chunked_prefill_size=16), lab.geometry())
    requests = [lab.generate(str(i), [i] * 6, max_new_tokens=1) for i in range(4)]
    answers = harness.run([(1, request) for request in requests])
    for request in requests:
        harness.verify(request, answers[request.rid])
    assert computed(harness) == [16, 8]
    assert [len(plan.rows) for plan in harness.runner.plans[:2]] == [3, 2]


def test_whole_prompts_are_computed_at_once_without_a_budget(lab):
    harness = lab.Harness(lab.config(chunked_prefill_size=-1), lab.geometry())
    harness.run([(1, lab.generate(str(i), [i] * 20, max_new_tokens=1)) for i in range(3)])
    assert computed(harness) == [60]


def test_decoding_goes_on_beside_prefill(lab):
    harness = lab.Harness(lab.config(chunked_prefill_size=4), lab.geometry())
    first, second = lab.generate("a", IDS[:4], max_new_tokens=20), lab.generate("b", IDS[:16], max_new_tokens=2)
    answers = harness.run([(1, first), (4, second)])
    harness.verify(first, answers["a"])
    harness.verify(second, answers["b"])
    mixed = [plan for plan in harness.runner.plans if plan.kind is StepKind.EXTEND and len(plan.rows) == 2]
    # four tokens of the second prompt are the first's, and cached
    assert [plan.q_lens.tolist() for plan in mixed] == [[1, 4], [1, 4], [1, 4]]


def test_a_prefix_is_reused_after_its_request_and_while_it_runs(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    requests = [lab.generate(rid, [*IDS, end], max_new_tokens=3) for rid, end in (("a", 1), ("b", 2), ("c", 3))]
    answers = harness.run([(1, requests[0]), (2, requests[1]), (30, requests[2])])
    for request in requests:
        harness.verify(request, answers[request.rid])
    assert [answers[rid].cached for rid in "abc"] == [0, 20, 20]


def test_a_prefix_is_shared_within_one_step(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    requests = [lab.generate(rid, IDS, max_new_tokens=3, temperature=1.0, seed=ord(rid)) for rid in "abcd"]
    answers = harness.run([(1, request) for request in requests])
    for request in requests:
        harness.verify(request, answers[request.rid])
    assert [answers[rid].cached for rid in "abcd"] == [0, 16, 16, 16]
    assert computed(harness) == [20 + 3 * 4]


def test_the_last_prompt_token_is_always_computed(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    again = lab.generate("b", IDS, max_new_tokens=1)
    answers = harness.run([(1, lab.generate("a", IDS, max_new_tokens=1)), (20, again)])
    harness.verify(again, answers["b"])
    assert answers["b"].cached == 16


def test_nothing_is_reused_without_the_radix_cache(lab):
    harness = lab.Harness(lab.config(disable_radix_cache=True), lab.geometry())
    answers = harness.run([(tick, lab.generate(str(tick), IDS)) for tick in (1, 30)])
    assert [answer.cached for answer in answers.values()] == [0, 0]
    assert harness.stats().pages_free == harness.stats().pages_total


def test_output_is_cut_at_the_context(lab):
    harness = lab.Harness(lab.config(), lab.geometry(max_context=24))
    request = lab.generate("a", IDS, max_new_tokens=1000)
    answer = harness.run([(1, request)])["a"]
    harness.verify(request, answer)
    assert (len(answer.tokens), answer.finish.kind) == (4, "length")


def test_no_token_is_generated_for_max_new_tokens_zero(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    request = lab.generate("a", IDS, max_new_tokens=0, logprobs=LogprobOptions(start=0, top=2))
    answer = harness.run([(1, request)])["a"]
    harness.verify(request, answer)
    assert len(answer.prompt_logprobs) == len(IDS)


def test_prompt_logprobs_are_computed_again_although_the_prompt_is_cached(lab):
    harness = lab.Harness(lab.config(chunked_prefill_size=6), lab.geometry())
    first = lab.generate("a", IDS)
    second = lab.generate("b", IDS, logprobs=LogprobOptions(start=9, top=3, token_ids=(4,)))
    answers = harness.run([(1, first), (30, second)])
    harness.verify(second, answers["b"])
    # position 9 is predicted at position 8, so only two whole pages of four may be reused
    assert answers["b"].cached == 8
    assert len(answers["b"].prompt_logprobs) == len(IDS) - 9


BAD = {
    "empty": ({"input_ids": []}, "input_ids: empty prompt"),
    "negative id": ({"input_ids": [1, -5]}, "input_ids: -5 is not a token id"),
    "id beyond the vocabulary": ({"input_ids": [97]}, "input_ids: 97 is not a token id"),
    "huge id": ({"input_ids": [1 << 70]}, "is not a token id"),
    "prompt as long as the context": ({"input_ids": [1] * 128}, "the context of 128 tokens leaves room for 127"),
    "prompt beyond the pool": ({"input_ids": [1] * 100}, "the KV pool holds only 80"),
    "stop id": ({"stop_token_ids": (97,)}, "stop_token_ids: 97"),
    "bias id": ({"logit_bias": {1000: 1.0}}, "logit_bias: 1000"),
    "bias value": ({"logit_bias": {1: float("nan")}}, "logit_bias"),
    "temperature": ({"temperature": float("nan")}, "temperature: nan"),
    "negative temperature": ({"temperature": -1.0}, "temperature: -1.0"),
    "top_p": ({"top_p": 0.0}, "top_p: 0.0"),
    "top_k": ({"top_k": 0}, "top_k: 0"),
    "min_p": ({"min_p": 2.0}, "min_p: 2.0"),
    "max_new_tokens": ({"max_new_tokens": -1}, "max_new_tokens: -1"),
    "repetition": ({"repetition_penalty": 0.0}, "repetition_penalty: 0.0"),
    "infinite penalty": ({"presence_penalty": float("inf")}, "presence_penalty: inf"),
    "logprob start": ({"logprobs": LogprobOptions(start=-2)}, "logprobs.start: -2"),
    "logprob top": ({"logprobs": LogprobOptions(top=98)}, "logprobs.top: 98"),
    "logprob ids": ({"logprobs": LogprobOptions(token_ids=(200,))}, "logprobs.token_ids: 200"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_served_is_refused_and_the_next_request_works(lab, name):
    changes, message = BAD[name]
    harness = lab.Harness(lab.config(), lab.geometry(full_pages=21))
    ids = changes.get("input_ids", IDS)
    bad = lab.generate("bad", ids, **{key: value for key, value in changes.items() if key != "input_ids"})
    good = lab.generate("good", IDS)
    answers = harness.run([(1, bad), (1, good)])
    (refusal,) = harness.sent(Refused)
    assert (refusal.rid, refusal.code) == ("bad", "invalid")
    assert message in refusal.message
    harness.verify(good, answers["good"])


def test_any_integer_is_a_seed(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    requests = [lab.generate(str(i), IDS, temperature=1.0, seed=s) for i, s in enumerate((-1, (1 << 64) - 1, 1 << 80))]
    answers = harness.run([(1, request) for request in requests])
    assert answers["0"].tokens == answers["1"].tokens
    assert all(answer.finish.kind == "length" for answer in answers.values())


def test_a_live_id_cannot_be_used_twice(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    request = lab.generate("a", IDS)
    answers = harness.run([(1, request), (2, lab.generate("a", [1, 2])), (30, lab.generate("a2", IDS))])
    assert harness.sent(Refused)[0].code == "invalid"
    harness.verify(request, answers["a"])


def test_the_empty_id_is_no_id(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    harness.run([(1, lab.generate("", IDS))])
    assert "rid: the empty id stands for all" in harness.sent(Refused)[0].message


def test_a_full_queue_refuses_with_a_time_to_retry(lab):
    harness = lab.Harness(lab.config(max_queued_requests=2, max_running_requests=1), lab.geometry())
    requests = [lab.generate(str(i), IDS) for i in range(4)]
    answers = harness.run([(1, request) for request in requests])
    refusals = harness.sent(Refused)
    assert [refusal.rid for refusal in refusals] == ["2", "3"]
    assert all(refusal.code == "queue_full" and 1 <= refusal.retry_after <= 60 for refusal in refusals)
    for request in requests[:2]:
        harness.verify(request, answers[request.rid])


@pytest.mark.parametrize("tick", range(2, 12))
def test_an_abort_frees_a_request_in_any_phase(lab, serial, tick):
    """Ticks cover waiting behind another, prefilling in chunks, and decoding, with and without a step in flight."""
    config = lab.config(max_running_requests=2, chunked_prefill_size=6, disable_overlap_schedule=serial)
    harness = lab.Harness(config, lab.geometry())
    requests = [lab.generate(rid, IDS, max_new_tokens=30) for rid in "abc"]
    answers = harness.run([*((1, request) for request in requests), *((tick, Abort(rid=rid)) for rid in "bc")])
    harness.verify(requests[0], answers["a"])
    for request in requests[1:]:
        answer = answers[request.rid]
        assert answer.finish.kind == "abort"
        assert answer.tokens == harness.expected(request).tokens[: len(answer.tokens)]
    assert harness.stats().aborted == 2


def test_aborting_the_empty_id_aborts_all(lab):
    harness = lab.Harness(lab.config(max_running_requests=2), lab.geometry())
    answers = harness.run([*((1, lab.generate(rid, IDS, max_new_tokens=50)) for rid in "abc"), (5, Abort(rid=""))])
    assert {answer.finish.kind for answer in answers.values()} == {"abort"}


def test_a_matched_stop_string_frees_the_request_in_silence(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    request = lab.generate("a", IDS, max_new_tokens=50)

    def on_send(message):
        if harness.script.tick == 6:
            harness.script.open.discard("a")
            return [Abort(rid="a", reason="stop")]
        return []

    answers = harness.run([(1, request)], on_send)
    assert answers["a"].finish is None
    assert harness.stats().finished == 1
    assert harness.stats().aborted == 0


def test_an_unknown_id_is_not_aborted(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    request = lab.generate("a", IDS)
    answers = harness.run([(1, request), (3, Abort(rid="gone"))])
    harness.verify(request, answers["a"])


def test_flush_forgets_all_prefixes_but_only_when_idle(lab, serial):
    harness = lab.Harness(lab.config(disable_overlap_schedule=serial), lab.geometry())
    requests = [lab.generate(rid, IDS) for rid in "ab"]
    answers = harness.run([(1, requests[0]), (3, Flush(call=7)), (40, Flush(call=8)), (41, requests[1])])
    flushed = [(reply.call, reply.ok) for reply in harness.sent(Flushed)]
    assert flushed == [(7, False), (8, True)]
    assert "1 requests run or wait" in harness.sent(Flushed)[0].message
    assert answers["b"].cached == 0
    harness.verify(requests[1], answers["b"])
    assert kinds(harness).count("FLUSH") == 1


def test_draining_finishes_what_runs_and_refuses_the_rest(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    request = lab.generate("a", IDS)
    answers = harness.run([(1, request), (3, Drain()), (4, lab.generate("late", IDS))])
    harness.verify(request, answers["a"])
    assert [refusal.code for refusal in harness.sent(Refused)] == ["draining"]
    assert len(harness.sent(Drained)) == 1
    last_batch = max(i for i, message in enumerate(harness.script.sent) if hasattr(message, "updates"))
    assert last_batch < harness.script.sent.index(Drained())


def test_shutdown_answers_open_requests_and_stops_the_ranks(lab, serial):
    harness = lab.Harness(lab.config(disable_overlap_schedule=serial, max_running_requests=1), lab.geometry())
    requests = [lab.generate(rid, IDS, max_new_tokens=50) for rid in "ab"]
    answers = harness.run([*((1, request) for request in requests), (6, Shutdown())])
    assert {answer.finish.kind for answer in answers.values()} == {"error"}
    assert kinds(harness)[-1] == "STOP"
    assert not harness.runner.waiting


def test_inspect_is_answered_at_once_and_stats_come_every_second(lab):
    harness = lab.Harness(lab.config(), lab.geometry())
    harness.run([(1, lab.generate("a", IDS, max_new_tokens=6)), (4, Inspect(call=9)), (600, Inspect(call=10))])
    (running,) = [stats for stats in harness.sent(Stats) if stats.call == 9]
    assert (running.running, running.waiting, running.prompt_tokens) == (1, 0, 20)
    regular = [stats for stats in harness.sent(Stats) if stats.call == -1]
    assert len(regular) == pytest.approx(harness.script.now, rel=0.1)
    last = harness.stats()
    assert (last.finished, last.generated_tokens, last.steps) == (1, 6, 6)
    assert last.step_seconds > 0


def test_a_step_that_never_ends_is_fatal_after_signs_of_life(lab):
    harness = lab.Harness(lab.config(), lab.geometry(), timeouts=lambda: True)
    with pytest.raises(StepStalledError, match=r"step 1 \(EXTEND, 1 sequences, 20 tokens\) did not end within 60 s"):
        harness.run([(1, lab.generate("a", IDS))])
    assert len(harness.sent(Heartbeat)) == 59


def test_the_error_of_a_step_ends_the_loop_with_it(lab):
    def fail():
        raise RuntimeError("CUDA error: device lost")

    harness = lab.Harness(lab.config(), lab.geometry(), timeouts=fail)
    with pytest.raises(RuntimeError, match="device lost"):
        harness.run([(1, lab.generate("a", IDS))])


def test_equal_inputs_make_equal_decisions(lab, serial):
    def plans():
        config = lab.config(disable_overlap_schedule=serial, chunked_prefill_size=9)
        harness = lab.Harness(config, lab.geometry(full_pages=20), seed=5)
        messages = [
            (i, lab.generate(str(i), [i % 3] * (5 + i), max_new_tokens=9, temperature=1.0)) for i in range(1, 12)
        ]
        answers = harness.run(messages)
        return harness.runner.plans, {rid: answer.tokens for rid, answer in answers.items()}

    (first, tokens), (second, again) = plans(), plans()
    assert tokens == again
    for one, other in zip(first, second, strict=True):
        for name in ("rows", "q_lens", "kv_lens", "tokens", "sample"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert np.array_equal(one.full.pages, other.full.pages)


def test_requests_without_a_seed_follow_the_configured_one(lab):
    def tokens(seed):
        harness = lab.Harness(lab.config(), lab.geometry(), seed=seed)
        return harness.run([(1, lab.generate("a", IDS, temperature=1.0))])["a"].tokens

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def leaky(lab, **changes):
    """A harness whose pool loses two pages before the loop starts."""
    harness = lab.Harness(lab.config(**changes), lab.geometry())
    harness.scheduler._ledger.full.pool.allocate(2)
    return harness


def test_a_leak_is_logged_and_counted_once_idle(lab, caplog):
    harness = leaky(lab, check_invariants=False)
    with caplog.at_level(logging.ERROR):
        harness.run([(1, lab.generate("a", IDS))])
    assert harness.stats().leaked_pages == 2
    assert [record.message for record in caplog.records] == ["leak: 2 pages and 0 rows are held by no request"]


def test_a_leak_is_fatal_under_invariant_checks(lab):
    with pytest.raises(OwnershipError):
        leaky(lab, check_invariants=True).run([(1, lab.generate("a", IDS))])


def test_messages_with_defaults_are_served(lab):
    harness = lab.Harness(lab.config(), lab.geometry(max_context=40))
    request = Generate(rid="a", input_ids=[1, 2, 3], sampling=SamplingParams(seed=3))
    harness.verify(request, harness.run([(1, request)])["a"])
