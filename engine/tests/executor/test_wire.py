"""Step plans over the wire: nothing is lost, and what does not fit together is refused by name."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from executor.tiny import ints
from hypothesis import given, settings
from hypothesis import strategies as st

from motley_engine.executor.step import PageUpdate, StepKind, StepPlan
from motley_engine.executor.wire import FIELDS, Frame, WireError, longest, pack, unpack


@st.composite
def plans(draw: st.DrawFn) -> StepPlan:
    number = st.integers(-(2**31), 2**31 - 1)

    def array(length: int) -> np.ndarray:
        return ints(draw(st.lists(number, min_size=length, max_size=length)))

    q_lens = ints(draw(st.lists(st.integers(1, 9), max_size=6)))
    updates = [draw(st.integers(0, 5)) for _ in range(2)]
    return StepPlan(
        seq=draw(st.integers(0, 2**40)),
        kind=draw(st.sampled_from(StepKind)),
        rows=array(len(q_lens)),
        q_lens=q_lens,
        kv_lens=array(len(q_lens)),
        tokens=array(int(q_lens.sum())),
        sample=array(draw(st.integers(0, len(q_lens)))),
        score=array(draw(st.integers(0, 9))),
        full=PageUpdate(*(array(updates[0]) for _ in range(3))),
        window=PageUpdate(*(array(updates[1]) for _ in range(3))),
    )


def record(frame: Frame) -> memoryview:
    return memoryview(b"".join(frame.parts()))


def values(frame: Frame) -> dict[str, list[int]]:
    return {name: frame.payload[span].tolist() for name, span in frame.spans().items()}


@given(plans())
@settings(deadline=None)
def test_a_plan_survives_the_wire(plan: StepPlan):
    got = unpack(record(pack(plan)), plan.seq)
    assert (got.seq, got.kind) == (plan.seq, plan.kind)
    for name in ("rows", "q_lens", "kv_lens", "tokens", "sample", "score"):
        assert values(got)[name] == getattr(plan, name).tolist()
    for pool in ("full", "window"):
        for part in fields(PageUpdate):
            assert values(got)[f"{pool}_{part.name}"] == getattr(getattr(plan, pool), part.name).tolist()
    assert got.max_q == max(plan.q_lens.tolist(), default=0)
    assert got.digest == pack(plan).digest


def small() -> StepPlan:
    return StepPlan(7, StepKind.EXTEND, rows=ints([3]), q_lens=ints([2]), kv_lens=ints([2]), tokens=ints([5, 6]))


def test_kind_and_shapes_decide_the_digest():
    other = small()
    other.tokens = ints([8, 9])
    assert pack(other).digest == pack(small()).digest
    other.sample = ints([0])
    assert pack(other).digest != pack(small()).digest


def test_a_plan_out_of_sequence_is_refused():
    with pytest.raises(WireError, match="step plan 7 where 6 was due"):
        unpack(record(pack(small())), 6)


@pytest.mark.parametrize(("word", "fault"), [(0, "starts with"), (6, "digest"), (5, "digest")])
def test_a_damaged_record_is_refused(word: int, fault: str):
    data = bytearray(record(pack(small())))
    data[8 * word] ^= 1
    with pytest.raises(WireError, match=fault):
        unpack(memoryview(data))


def test_a_cut_record_is_refused():
    whole = record(pack(small()))
    with pytest.raises(WireError, match="record of 40 bytes"):
        unpack(whole[:40])
    with pytest.raises(WireError, match="digest"):
        unpack(whole[:-4])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"kv_lens": ints([1, 2])}, "1 rows, 1 q_lens, 2 kv_lens"),
        ({"tokens": ints([1, 2, 3])}, "3 tokens for q_lens of 2"),
        ({"full": PageUpdate(ints([1]), ints([1]), ints([]))}, "full page update of unequal lengths"),
    ],
)
def test_a_plan_that_contradicts_itself_is_named(change: dict[str, object], fault: str):
    plan = small()
    for name, value in change.items():
        setattr(plan, name, value)
    with pytest.raises(WireError, match=fault):
        pack(plan)


def test_the_longest_record_is_bounded():
    rows, tokens, columns = 3, 10, 5
    entries = rows * columns + tokens
    update = PageUpdate(*(ints([0] * entries) for _ in range(3)))
    q_lens = ints([8, 1, 1])
    largest = StepPlan(
        1,
        StepKind.EXTEND,
        rows=ints(range(rows)),
        q_lens=q_lens,
        kv_lens=q_lens,
        tokens=ints([0] * tokens),
        sample=ints(range(rows)),
        score=ints(range(tokens)),
        full=update,
        window=update,
    )
    assert len(record(pack(largest))) <= longest(rows, tokens, columns)
    assert len(FIELDS) == len(pack(largest).counts)
