"""Plans: invariants at construction, hashes, and reading back with the faulty field named."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley_planner.partition import Vectors
from motley_planner.plan import (
    Binding,
    Decision,
    Estimate,
    Explanation,
    Plan,
    PlanError,
    RankPlan,
    ReplicaPlan,
    StagePlan,
    Units,
)


def stage(cards=("GPU-a", "GPU-b"), layers=(0, 4), **changes):
    values = {
        "layers": layers,
        "ranks": tuple(RankPlan(card, 1 << 30, "triton") for card in cards),
        "vectors": Vectors(attn=(5, 3), mlp=(512, 256), vocab=(1187, 1187)),
        "units": Units(attn=8, mlp=768, vocab=2374),
    }
    return StagePlan(**{**values, **changes})


def replica(*stages, role="unified", kv_mode="head"):
    return ReplicaPlan(role, 4096, 0, kv_mode, "nccl", stages or (stage(),))


def plan(*replicas, unused=("GPU-c",)):
    return Plan(
        inputs_hash="0" * 64,
        verdict="feasible",
        decision=Decision(replicas or (replica(),), unused),
        predicted={"pool_tokens": Estimate(4096, 4000, 4200)},
        explain=Explanation(binding=(Binding("memory", "rank 1 limits the pool"),)),
    )


def test_the_decision_is_canonical_and_its_hash_is_fixed():
    # a golden value: it changes only when the format does, and then PLANNER_VERSION must change too
    assert plan().plan_hash == "af6af446f707ba35a51e459dac4e2e8c9ab8520015dac6aaee8e6c7dd41b5d80"


def test_text_and_predictions_do_not_touch_the_hash():
    one = plan()
    other = replace(one, explain=Explanation(), predicted={}, inputs_hash="1" * 64)
    assert one.plan_hash == other.plan_hash
    assert one.plan_hash != plan(unused=()).plan_hash


def test_json_round_trip():
    assert Plan.from_json(plan().to_json()) == plan()
    assert plan().to_json() == plan().to_json()


@st.composite
def stages(draw):
    world = draw(st.integers(1, 4))
    vectors = [tuple(draw(st.lists(st.integers(1, 99), min_size=world, max_size=world))) for _ in range(3)]
    return stage(
        cards=[f"GPU-{rank}" for rank in range(world)],
        vectors=Vectors(*vectors),
        units=Units(*map(sum, vectors)),
    )


@given(stages())
def test_any_consistent_plan_round_trips(one):
    made = plan(replica(one), unused=())
    assert Plan.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("build", "fault"),
    [
        (
            lambda: stage(vectors=Vectors((5, 2), (512, 256), (1187, 1187))),
            r"vectors.attn: \[5, 2\] sums to 7, not to 8",
        ),
        (lambda: stage(vectors=Vectors((5, 3), (512, 256, 1), (1187, 1187))), "vectors.mlp: 3 entries for 2 ranks"),
        (lambda: stage(vectors=Vectors((8, 0), (512, 256), (1187, 1187))), "vectors.attn: .* leaves a rank without"),
        (lambda: stage(vectors=Vectors((5, 3), (512, 256), (1187, 1187), gdn=(1, 1))), "vectors.gdn: .* without units"),
        (lambda: stage(vectors=Vectors((5, 3), (512, 256), (1187, 1187), kv_tokens=(60, 5))), "kv_tokens: sums to 65"),
        (lambda: stage(layers=(4, 4)), r"layers: \[4, 4\] is no range"),
        (lambda: stage(cards=(), vectors=Vectors((), (), ()), units=Units(0, 0, 0)), "ranks: must not be empty"),
        (lambda: RankPlan("GPU-a", 0, "triton"), "budget_bytes: 0 is not positive"),
        (lambda: RankPlan(" ", 1, "triton"), "uuid: must not be empty"),
        (lambda: replica(stage(layers=(1, 4))), r"stages\[0\].layers: starts at 1, the stage before ends at 0"),
        (lambda: replica(kv_mode="token"), r"stages\[0\].vectors.kv_tokens: contradicts kv_mode"),
        (lambda: plan(replica(stage(cards=("GPU-a", "GPU-a")))), "card GPU-a is used 2 times"),
        (lambda: plan(replica(), replica()), "card GPU-a is used 2 times"),
        (lambda: plan(unused=("GPU-b",)), "card GPU-b is used 2 times"),
        (lambda: Plan("0" * 64, "infeasible", plan().decision), "verdict: infeasible contradicts"),
        (lambda: Plan("0" * 64, "feasible", Decision(())), "verdict: feasible contradicts"),
        (lambda: Plan("xyz", "infeasible", Decision(())), "inputs_hash: 'xyz' is no SHA-256"),
    ],
)
def test_contradictions_cannot_be_constructed(build, fault):
    with pytest.raises(PlanError, match=fault):
        build()


def changed(path, value):
    """The plan's document with one field replaced, and the decision's hash as stated before."""
    document = json.loads(plan().to_json())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(document)


STAGE = ("decision", "replicas", 0, "stages", 0)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "not valid JSON"),
        ("[]", "document: must be an object"),
        ('{"verdict": NaN}', "NaN is no number"),
        (changed((*STAGE, "vectors", "attn"), [4, 4]), "plan_hash: .* the file was changed"),
        (changed((*STAGE, "vectors", "attn"), [5, 4]), r"stages\[0\]: vectors.attn: \[5, 4\] sums to 9, not to 8"),
        (
            changed((*STAGE, "vectors", "attn"), ["5", 3]),
            r"stages\[0\].vectors.attn\[0\]: \"5\" is not a 64-bit integer",
        ),
        (changed((*STAGE, "ranks", 0, "budget_bytes"), 1.5), r"ranks\[0\].budget_bytes: 1.5 is not"),
        (changed((*STAGE, "ranks", 0, "uuid"), "GPU-b"), "decision: replicas: card GPU-b is used 2 times"),
        (changed((*STAGE, "ranks", 0, "colour"), "red"), r"ranks\[0\].colour: unknown field"),
        (changed(("decision", "replicas", 0, "role"), "leader"), r"replicas\[0\].role: \"leader\" is not one of"),
        (changed(("plan_hash",), "f" * 64), "plan_hash: f+ is stated but the decision's hash is"),
        (changed(("plan_hash",), None), "plan_hash: null is not a string"),
        (changed(("planner_version",), "0"), "planner_version: '0' is not '1'; plan again"),
        (changed(("predicted", "pool_tokens", "value"), "many"), "predicted.pool_tokens.value"),
        (changed(("explain", "binding"), [{"code": "luck", "text": ""}]), r"explain.binding\[0\].code"),
    ],
)
def test_bad_documents_name_the_field(text, fault):
    with pytest.raises(PlanError, match=fault):
        Plan.from_json(text)


@given(st.data())
def test_a_damaged_document_is_an_error_or_the_same_decision(data):
    text = plan().to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    try:
        read = Plan.from_json(damaged)
    except PlanError:
        return
    assert read.decision == plan().decision


def test_groups_are_named_by_role_and_found():
    prefill, decode = replica(role="prefill"), replica(stage(cards=("GPU-d", "GPU-e")), role="decode")
    both = plan(prefill, decode)
    assert dict(both.decision.groups()) == {"p0": prefill, "d0": decode}
    assert both.group("d0") is decode
    assert plan().group() == replica()
    with pytest.raises(PlanError, match="group: '' is not in the plan; groups: p0, d0"):
        both.group()
    with pytest.raises(PlanError, match="groups: none, the plan is infeasible"):
        Plan("0" * 64, "infeasible", Decision(())).group("u0")
