"""Positions, slots and picks against loops written from the definition."""

from __future__ import annotations

import numpy as np
import torch
from executor.tiny import ints
from hypothesis import given, settings
from hypothesis import strategies as st

from motley_engine.executor.inputs import Picks, Tables
from motley_engine.executor.step import Geometry, PageUpdate, StepKind, StepPlan
from motley_engine.executor.wire import pack

CPU = torch.device("cpu")


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Geometry, StepPlan, np.ndarray]:
    page_size = draw(st.sampled_from([1, 2, 16]))
    geometry = Geometry(page_size, 50, draw(st.sampled_from([0, 50])), 4, max_running=5, max_context=40, vocab_size=9)
    rows = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True))
    q_lens = [draw(st.integers(1, 6)) if draw(st.booleans()) else 1 for _ in rows]
    kv_lens = [q + draw(st.integers(0, 40 - q)) for q in q_lens]
    seed = draw(st.integers(0, 2**32 - 1))
    pages = np.random.default_rng(seed).integers(1, 50, (2, 5, -(-40 // page_size))).astype(np.int32)
    where = np.indices(pages[0].shape).reshape(2, -1).astype(np.int32)
    plan = StepPlan(
        seq=1,
        kind=StepKind.EXTEND,
        rows=ints(rows),
        q_lens=ints(q_lens),
        kv_lens=ints(kv_lens),
        tokens=ints([draw(st.integers(-5, 8)) for _ in range(sum(q_lens))]),
        sample=ints(draw(st.lists(st.integers(0, len(rows) - 1), unique=True))),
        full=PageUpdate(*where, pages[0].ravel()),
        window=PageUpdate(*where, pages[1].ravel()),
    )
    return geometry, plan, pages


@given(scenes())
@settings(deadline=None)
def test_inputs_follow_the_plan(scene: tuple[Geometry, StepPlan, np.ndarray]):
    geometry, plan, pages = scene
    tables = Tables(geometry, CPU)
    tables.last_tokens[:] = torch.arange(100, 106)
    frame = pack(plan)
    payload = torch.from_numpy(frame.payload)
    tables.update(payload, frame)
    tokens, context = tables.inputs(payload, frame)
    expected = [int(t) if t >= 0 else 100 + (-1 - int(t)) for t in plan.tokens]
    assert tokens.tolist() == expected
    positions, slots = [], {"full": [], "sliding": []}
    for row, q, kv in zip(plan.rows, plan.q_lens, plan.kv_lens, strict=True):
        for position in range(kv - q, kv):
            positions.append(position)
            for pool, table in zip(("full", "sliding"), pages, strict=True):
                page = int(table[row, position // geometry.page_size])
                slots[pool].append(page * geometry.page_size + position % geometry.page_size)
    assert context.positions.tolist() == positions
    assert context.q_starts.tolist() == [0, *np.cumsum(plan.q_lens).tolist()]
    assert context.kv_lens.tolist() == plan.kv_lens.tolist()
    assert context.decode == (plan.q_lens.max() == 1)
    assert (context.max_q, context.max_kv) == (plan.q_lens.max(), plan.kv_lens.max())
    assert context.full.slots.tolist() == slots["full"]
    assert context.full.page_table.tolist() == pages[0][plan.rows].tolist()
    assert (context.sliding is None) == (geometry.window_pages == 0)
    if context.sliding is not None:
        assert context.sliding.slots.tolist() == slots["sliding"]
        assert context.sliding.page_table.tolist() == pages[1][plan.rows].tolist()
    picks = Picks.of(payload, frame)
    ends = np.cumsum(plan.q_lens) - 1
    assert picks.sample_at.tolist() == ends[plan.sample].tolist()
    assert picks.sample_rows.tolist() == plan.rows[plan.sample].tolist()


def test_padding_rows_of_a_decode_write_to_the_sink():
    tables = Tables(Geometry(4, 9, 0, 0, max_running=3, max_context=16, vocab_size=9), CPU)
    tables.full[:3] = 5
    rows = torch.tensor([1, tables.padding_row], dtype=torch.int32)
    context = tables.decode_context(rows, torch.tensor([6, 0], dtype=torch.int32), max_kv=16)
    assert context.full.slots.tolist() == [5 * 4 + 1, 0]
    assert context.positions.tolist() == [5, 0]
