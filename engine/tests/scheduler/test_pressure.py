"""What happens when rows, pages or patience run out: retraction, priorities, queue order."""

from __future__ import annotations

import pytest

from motley_engine.scheduler import policy
from motley_engine.scheduler.policy import Policy
from motley_engine.scheduler.queue import WaitingQueue
from motley_engine.scheduler.request import Request


def first_tokens(harness):
    """Ids in the order in which their first token came."""
    order = []
    for message in harness.script.sent:
        for update in getattr(message, "updates", ()):
            if update.token_ids and update.rid not in order:
                order.append(update.rid)
    return order


def last_tokens(harness):
    """Ids in the order in which they ended."""
    return [u.rid for m in harness.script.sent for u in getattr(m, "updates", ()) if u.finish is not None]


@pytest.mark.parametrize("serial", [False, True], ids=["overlap", "serial"])
def test_retraction_resumes_to_the_same_answer(lab, serial):
    config = lab.config(schedule_conservativeness=0.0, disable_overlap_schedule=serial)
    harness = lab.Harness(config, lab.geometry(full_pages=21))
    requests = [lab.generate(str(i), [i] * 8, max_new_tokens=40, temperature=1.0, seed=i) for i in range(3)]
    answers = harness.run([(1, request) for request in requests])
    for request in requests:
        harness.verify(request, answers[request.rid])
    assert harness.stats().retractions > 0
    assert last_tokens(harness)[0] == "0", "the oldest is never retracted"


def test_full_reservation_never_retracts(lab):
    harness = lab.Harness(lab.config(schedule_conservativeness=1.0), lab.geometry(full_pages=21))
    requests = [lab.generate(str(i), [i] * 8, max_new_tokens=40) for i in range(6)]
    answers = harness.run([(1, request) for request in requests])
    for request in requests:
        harness.verify(request, answers[request.rid])
    assert harness.stats().retractions == 0


def test_a_request_that_outgrows_the_whole_pool_ends_with_an_error(lab):
    harness = lab.Harness(lab.config(), lab.geometry(full_pages=6))
    small = lab.generate("small", [5, 6], max_new_tokens=3)
    answers = harness.run([(1, lab.generate("big", [1] * 8, max_new_tokens=100)), (2, small)])
    assert answers["big"].finish.kind == "error"
    assert "the KV pool holds 20 tokens" in answers["big"].finish.message
    # positions 0 to 19 hold K/V, and the token sampled from the last of them needs none
    assert len(answers["big"].tokens) == 13
    harness.verify(small, answers["small"])


def test_retracted_work_is_found_in_the_cache_again(lab):
    config = lab.config(schedule_conservativeness=0.0, enable_priority_scheduling=True, max_running_requests=1)
    harness = lab.Harness(config, lab.geometry())
    low = lab.generate("low", [1] * 21, max_new_tokens=20)
    high = lab.generate("high", [2] * 8, max_new_tokens=4, priority=50)
    answers = harness.run([(1, low), (8, high)])
    harness.verify(low, answers["low"])
    harness.verify(high, answers["high"])
    assert harness.stats().retractions == 1
    # the second prefill of "low" computes only what its last page lacks
    resumed = [plan for plan in harness.runner.plans if plan.kind.name == "EXTEND"][-1]
    assert resumed.q_lens.sum() <= 4
    assert answers["low"].cached == 0, "its own work is not a cached prompt"


def test_larger_priorities_go_first(lab):
    config = lab.config(enable_priority_scheduling=True, max_running_requests=1)
    harness = lab.Harness(config, lab.geometry())
    priorities = {"a": 0, "b": 5, "c": 5, "d": 9}
    harness.run([(1, lab.generate(rid, [ord(rid) % 90] * 4, priority=p)) for rid, p in priorities.items()])
    assert first_tokens(harness) == ["d", "b", "c", "a"]
    assert harness.stats().retractions == 0


def test_priorities_mean_nothing_unless_enabled(lab):
    harness = lab.Harness(lab.config(max_running_requests=1), lab.geometry())
    harness.run([(1, lab.generate(rid, [p + 1] * 4, priority=p)) for rid, p in (("a", 0), ("b", 50))])
    assert first_tokens(harness) == ["a", "b"]


@pytest.mark.parametrize(("priority", "retractions"), [(9, 0), (10, 1)])
def test_preemption_needs_the_threshold(lab, priority, retractions):
    config = lab.config(enable_priority_scheduling=True, max_running_requests=1)
    harness = lab.Harness(config, lab.geometry())
    low, high = lab.generate("low", [1] * 4, max_new_tokens=20), lab.generate("high", [2] * 4, priority=priority)
    answers = harness.run([(1, low), (5, high)])
    assert harness.stats().retractions == retractions
    assert last_tokens(harness)[0] == ("high" if retractions else "low")
    harness.verify(low, answers["low"])


def test_equal_priorities_never_preempt(lab):
    config = lab.config(
        enable_priority_scheduling=True, priority_scheduling_preemption_threshold=0, max_running_requests=1
    )
    harness = lab.Harness(config, lab.geometry())
    harness.run([(1, lab.generate("a", [1] * 4)), (3, lab.generate("b", [2] * 4))])
    assert harness.stats().retractions == 0


def test_nobody_is_preempted_for_a_request_that_would_still_not_fit(lab):
    config = lab.config(enable_priority_scheduling=True, schedule_conservativeness=0.0)
    harness = lab.Harness(config, lab.geometry(full_pages=21))
    equal = lab.generate("equal", [1] * 40, max_new_tokens=20, priority=50)
    small = lab.generate("small", [2] * 4, max_new_tokens=15)
    large = lab.generate("large", [3] * 60, max_new_tokens=4, priority=50)
    answers = harness.run([(1, equal), (1, small), (6, large)])
    assert harness.stats().retractions == 0
    for request in (equal, small, large):
        harness.verify(request, answers[request.rid])


def test_the_longest_cached_prefix_goes_first(lab):
    config = lab.config(schedule_policy="lpm", max_running_requests=1)
    harness = lab.Harness(config, lab.geometry())
    cold, warm = lab.generate("cold", [9] * 12), lab.generate("warm", [1] * 12)
    harness.run([(1, lab.generate("first", [1] * 12)), (2, cold), (2, warm)])
    assert first_tokens(harness) == ["first", "warm", "cold"]


def test_first_come_first_served(lab):
    config = lab.config(schedule_policy="fcfs", max_running_requests=1)
    harness = lab.Harness(config, lab.geometry())
    cold, warm = lab.generate("cold", [9] * 12), lab.generate("warm", [1] * 12)
    harness.run([(1, lab.generate("first", [1] * 12)), (2, cold), (2, warm)])
    assert first_tokens(harness) == ["first", "cold", "warm"]


class CountingCache:
    """Matches every other prompt, and counts how often it is asked."""

    version = 0

    def __init__(self):
        self.probes = 0

    def probe(self, tokens, limit):
        self.probes += 1
        return int(tokens[0]) % 2 * 16


def waiting(lab, count):
    queue = WaitingQueue()
    for i in range(count):
        message = lab.generate(str(i), [i] * 4)
        queue.add(Request(str(i), lab.ints(message.input_ids), message.sampling, 8, 0, arrival=i))
    return queue


def test_long_queues_fall_back_to_first_come(lab):
    cache = CountingCache()
    order = Policy("lpm", cache).order(waiting(lab, policy.LONGEST_MATCHED_QUEUE + 1), step=0)
    assert [request.arrival for request in order] == list(range(policy.LONGEST_MATCHED_QUEUE + 1))
    assert cache.probes == 0


def test_an_order_is_kept_until_queue_or_cache_changes(lab):
    cache, queue = CountingCache(), waiting(lab, 4)
    lpm = Policy("lpm", cache)
    assert [request.arrival for request in lpm.order(queue, 0)] == [1, 3, 0, 2]
    lpm.order(queue, 0)
    assert cache.probes == 4
    cache.version = 1
    lpm.order(queue, 0)
    assert cache.probes == 8


def test_nobody_is_passed_over_for_ever(lab):
    order = Policy("lpm", CountingCache()).order(waiting(lab, 4), step=policy.PATIENCE + 1)
    assert [request.arrival for request in order] == [0, 1, 2, 3]
