"""Random load on the real scheduler, every answer compared with direct generation; ownership is audited every step."""

from __future__ import annotations

import random

import pytest

from motley_engine.messages import Abort, LogprobOptions

SHAPES = {
    "page1": {"page_size": 1, "full_pages": 200},
    "page4": {"page_size": 4, "full_pages": 51},
    "page16": {"page_size": 16, "full_pages": 17},
    "roomy": {"page_size": 4, "full_pages": 1000},
    "window": {"page_size": 4, "full_pages": 51, "window_pages": 31, "window": 10},
    "window-page1": {"page_size": 1, "full_pages": 200, "window_pages": 101, "window": 7},
    "window-page16": {"page_size": 16, "full_pages": 17, "window_pages": 25, "window": 16},
    "window-short": {"page_size": 4, "full_pages": 1000, "window_pages": 6, "window": 13},
    "window-only": {"page_size": 4, "full_pages": 0, "window_pages": 31, "window": 10},
}


def layers(shape):
    if not shape.get("window"):
        return ("full", "full")
    return ("sliding", "full") if shape["full_pages"] else ("sliding", "sliding")


def random_request(lab, rng, number, vocab, longest):
    """Prompts share prefixes often; every feature of a request turns up."""
    stem = [rng.randrange(4) for _ in range(rng.choice((0, 0, 5, 16, 33)))]
    if rng.random() < 0.5:
        stem = [(7 * i) % vocab for i in range(rng.choice((8, 24, 60)))]
    ids = (stem + [rng.randrange(vocab) for _ in range(rng.randrange(1, 40))])[:longest]
    changes = {
        "max_new_tokens": rng.choice((0, 1, 2, 5, 12, 40, 500)),
        "stop_token_ids": tuple(rng.sample(range(vocab), rng.choice((0, 1, 4)))),
        "min_new_tokens": rng.choice((0, 0, 3)),
        "priority": rng.choice((0, 0, 5, 20)),
    }
    if rng.random() < 0.4:
        changes |= {"temperature": 0.7, "seed": rng.randrange(1 << 63)}
    if rng.random() < 0.2:
        changes |= {"presence_penalty": 0.5} if rng.random() < 0.5 else {"logit_bias": {3: -1.0}}
    if rng.random() < 0.2:
        changes["logprobs"] = LogprobOptions(
            start=rng.choice((-1, 0, 1, 7, 1000)), top=rng.randrange(3), token_ids=(5, 6) if rng.random() < 0.5 else ()
        )
    return lab.generate(f"r{number}", ids, **changes)


def load(lab, rng, count, geometry):
    """Messages over time, aborts among them; also the requests by id."""
    messages, requests, aborted = [], {}, set()
    for number in range(count):
        tick = rng.randrange(1, 3 * count)
        request = random_request(lab, rng, number, geometry.vocab_size, geometry.max_context - 1)
        requests[request.rid] = request
        messages.append((tick, request))
        if rng.random() < 0.15:
            aborted.add(request.rid)
            messages.append((tick + rng.randrange(1, 30), Abort(rid=request.rid)))
    messages.sort(key=lambda pair: pair[0])
    return messages, requests, aborted


def check(harness, answers, requests, aborted):
    assert set(answers) == set(requests), "every request is answered"
    for rid, answer in answers.items():
        if answer.finish.kind == "abort":
            assert rid in aborted
            expected = harness.expected(requests[rid])
            assert answer.tokens == expected.tokens[: len(answer.tokens)]
        else:
            harness.verify(requests[rid], answer)
    stats = harness.stats()
    assert (stats.running, stats.waiting, stats.leaked_pages) == (0, 0, 0)
    assert stats.pages_free + stats.pages_cached == stats.pages_total
    return stats


def random_config(lab, rng, **changes):
    return lab.config(
        chunked_prefill_size=rng.choice((-1, 1, 7, 32)),
        schedule_policy=rng.choice(("fcfs", "lpm")),
        schedule_conservativeness=rng.choice((0.0, 0.3, 1.0)),
        enable_priority_scheduling=rng.random() < 0.5,
        disable_radix_cache=rng.random() < 0.2,
        **changes,
    )


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "serial"])
@pytest.mark.parametrize("name", SHAPES)
def test_answers_equal_direct_generation_under_random_load(lab, name, overlap):
    shape = SHAPES[name]
    for seed in range(3):
        rng = random.Random(f"{name}-{seed}")
        geometry = lab.geometry(**shape, max_running=rng.choice((1, 3, 8)))
        # the audit takes most of the time, and wrong answers tell as well
        config = random_config(lab, rng, disable_overlap_schedule=not overlap, check_invariants=seed == 0)
        harness = lab.Harness(config, geometry, layers(shape), timeouts=lambda rng=rng: rng.random() < 0.05)
        messages, requests, aborted = load(lab, rng, 60 if seed else 25, geometry)
        stats = check(harness, harness.run(messages), requests, aborted)
        assert harness.runner.deepest == (2 if overlap else 1)
        if config.schedule_conservativeness == 1.0 and not config.enable_priority_scheduling:
            assert stats.retractions == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_answers_stay_right_through_two_thousand_requests(lab, name):
    rng = random.Random(name)
    geometry = lab.geometry(**SHAPES[name], max_running=8)
    config = random_config(lab, rng, check_invariants=False, max_queued_requests=5000)
    harness = lab.Harness(config, geometry, layers(SHAPES[name]), timeouts=lambda: rng.random() < 0.02)
    messages, requests, aborted = load(lab, rng, 2000, geometry)
    check(harness, harness.run(messages), requests, aborted)
