"""Planning one replica: the design's figures, refusals in the words of the flags, verdicts that hold when checked."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from motley_planner.budgets import auto_reserve_mib, family_weights, rank_budgets
from motley_planner.candidate import price
from motley_planner.inventory import Card, pretend_cards
from motley_planner.memory import MIB, Serving, bytes_for
from motley_planner.model_facts import facts_from_hf_config
from motley_planner.partition import partition_model
from motley_planner.plan import Plan
from motley_planner.request import PlanRefusedError, PlanRequest
from motley_planner.solve import inputs_hash, plan_replica

QWEN3_8B = facts_from_hf_config(
    {
        "model_type": "qwen3",
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12_288,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        "tie_word_embeddings": False,
    }
)
TINY = facts_from_hf_config(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 192,
        "vocab_size": 640,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
)
SMALL = Serving(max_running=4, chunk=256)
BIG, LITTLE = Card("GPU-1f2e", "RTX5090", 32_607), Card("GPU-77ab", "RTX3080", 20_480)


def gpus(*totals):
    return tuple(Card(f"GPU-{index}", "card", total) for index, total in enumerate(totals))


def test_automatic_weights_are_the_budgets_over_their_gcd():
    def weights(*budgets):
        request = PlanRequest(QWEN3_8B, gpus(32_607, 20_480, 20_480), budgets_mib=budgets, ratio="auto")
        return family_weights(request, rank_budgets(request))[0].base

    assert weights(28_976, 17_976, 17_976) == (3622, 2247, 2247)
    assert weights(26_000, 17_000, 17_000) == (26, 17, 17)


def test_reserve_of_the_design():
    assert auto_reserve_mib(2048, 3) == 3968
    assert auto_reserve_mib(512, 3) == 3968
    assert auto_reserve_mib(8192, 1, graph_tokens=256, ranks_on_gpu=2) == 512 + 12_288 + 128 + 1024


def test_budgets_without_a_list_are_what_the_reserve_leaves():
    request = PlanRequest(QWEN3_8B, (BIG, LITTLE, *gpus(20_480)), ratio="auto")
    assert rank_budgets(request) == (32_607 - 3968, 20_480 - 3968, 20_480 - 3968)
    assert rank_budgets(replace(request, reserve_mib=(1000,))) == (31_607, 19_480, 19_480)
    assert rank_budgets(replace(request, reserve_mib=(1000, 2000, 3000))) == (31_607, 18_480, 17_480)


def test_ranks_on_one_card_share_what_its_largest_reserve_leaves():
    shared = PlanRequest(QWEN3_8B, (BIG, BIG, LITTLE), ratio="auto")
    assert rank_budgets(shared)[:2] == ((32_607 - 3968) // 2,) * 2
    assert rank_budgets(replace(shared, reserve_mib=(100, 607, 0))) == (16_000, 16_000, 20_480)


def test_pretend_budgets_are_taken_whole():
    assert rank_budgets(PlanRequest(TINY, pretend_cards((600, 300)), ratio="auto")) == (600, 300)


def test_equal_automatic_budgets_collapse_to_even_and_say_so():
    plan = plan_replica(PlanRequest(QWEN3_8B, gpus(24_576, 24_576), ratio="auto"))
    even = plan_replica(PlanRequest(QWEN3_8B, gpus(24_576, 24_576)))
    assert plan.decision == even.decision
    assert any("the split is even" in warning for warning in plan.explain.warnings)


def test_the_richer_card_gets_more_of_every_family_but_the_vocabulary():
    plan = plan_replica(PlanRequest(QWEN3_8B, (BIG, LITTLE), ratio="auto"))
    stage = plan.group().stages[0]
    partition = partition_model(QWEN3_8B, stage.vectors)
    assert partition.heads.q.sizes == (20, 12)
    assert partition.mlp.sizes[0] > partition.mlp.sizes[1]
    assert partition.vocab.counts == (1187, 1187)
    assert [rank.uuid for rank in stage.ranks] == ["GPU-1f2e", "GPU-77ab"]
    assert plan.predicted["pool_tokens"].value > plan.explain.baselines["even"]


def test_family_ratios_replace_the_base():
    plan = plan_replica(
        PlanRequest(QWEN3_8B, (BIG, LITTLE), ratio=(2, 1), mlp_ratio=(7, 1), vocab_ratio=(3, 1), serving=SMALL)
    )
    vectors = plan.group().stages[0].vectors
    assert vectors.attn == (5, 3)
    assert vectors.mlp == (672, 96)
    assert vectors.vocab == (1781, 593)


def test_automatic_vocabulary_follows_bandwidth_or_says_that_it_does_not():
    request = PlanRequest(QWEN3_8B, (BIG, LITTLE), ratio=(2, 1), vocab_ratio="auto")
    measured = family_weights(replace(request, bandwidths=(1792, 760)), (1, 1))
    assert measured[0].vocab == (1792, 760)
    assert measured[1] == ()
    weights, notes = family_weights(request, (1, 1))
    assert weights.vocab == (2, 1)
    assert "no bandwidth was measured" in notes[0]


def refusals(**changes):
    request = PlanRequest(QWEN3_8B, (BIG, LITTLE))
    with pytest.raises(PlanRefusedError) as caught:
        plan_replica(replace(request, **changes))
    return caught.value.messages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"budgets_mib": (40_000, 100), "ratio": (2, 1)},
            "--rank-gpu-memory-mib: rank 0 asks 40000 MiB of GPU-1f2e, which has 32607; lower it",
        ),
        (
            {"budgets_mib": (1, 2, 3), "ratio": (2, 1)},
            "--rank-gpu-memory-mib: 3 entries for --tp-size 2; give one value, or one per rank",
        ),
        (
            {"budgets_mib": (0,)},
            "--rank-gpu-memory-mib: 0 is not positive; give the MiB a rank may use in all",
        ),
        (
            {"budgets_mib": (20_000, 10_000)},
            "--rank-gpu-memory-mib: a list needs uneven shares; add --rank-tp-ratio auto, or give one value for all "
            "ranks",
        ),
        ({"ratio": (2, 1, 1)}, "--rank-tp-ratio: 3 entries for --tp-size 2; give one weight per rank"),
        ({"ratio": (2, 0)}, "--rank-tp-ratio: 0 is below 1; give positive integers"),
        ({"ratio": (3, 3)}, "--rank-tp-ratio: 3,3 is an even split; drop the flag"),
        ({"mlp_ratio": (2, 1)}, "--rank-mlp-ratio: needs a base plan; give --rank-tp-ratio too"),
        ({"vocab_ratio": "auto"}, "--rank-vocab-ratio: needs a base plan; give --rank-tp-ratio too"),
        (
            {"ratio": (2, 1), "mlp_ratio": (1,)},
            "--rank-mlp-ratio: 1 entry for --tp-size 2; give one weight per rank",
        ),
        ({"ratio": (2, 1), "vocab_ratio": (1, -1)}, "--rank-vocab-ratio: -1 is below 1; give positive integers"),
        ({"ratio": (2, 1), "moe_ratio": (2, 1)}, "--rank-moe-ratio: qwen3 has no experts; drop the flag"),
        (
            {"reserve_mib": (100,)},
            "--rank-auto-reserve-mib: only used by --rank-tp-ratio auto; drop it or set the ratio to auto",
        ),
        (
            {"ratio": "auto", "reserve_mib": (-1,)},
            "--rank-auto-reserve-mib: -1 is negative; give the MiB to keep off the card's total",
        ),
        (
            {"ratio": "auto", "reserve_mib": (30_000,)},
            "--rank-auto-reserve-mib: 30000 MiB leave no budget on GPU-77ab, which has 20480; lower it, or give "
            "--rank-gpu-memory-mib",
        ),
        (
            {"serving": Serving(context_length=50_000)},
            "--context-length: 50000 exceeds the model's 40960 positions; lower it",
        ),
        ({"serving": Serving(chunk=0)}, "--chunked-prefill-size: 0 is below 1; give a positive integer"),
        ({"cards": (BIG, *pretend_cards((100,)))}, "--device: ranks mix CPU and GPU; use one kind"),
        ({"cards": ()}, "--rank-gpu-id: no rank has a card; give one GPU per rank, or CPU budgets"),
    ],
)
def test_refusals_name_flag_fault_and_fix(changes, message):
    assert message in refusals(**changes)


def test_co_location_is_refused_with_the_reason():
    (message,) = refusals(cards=(BIG, BIG))
    assert message.startswith("--rank-gpu-id: ranks 0,1 share GPU-1f2e; co-located ranks need NCCL 2.30.7")
    both = refusals(cards=(BIG, BIG), budgets_mib=(20_000,))
    assert "--rank-gpu-memory-mib: ranks 0,1 ask 40000 MiB of GPU-1f2e, which has 32607; lower one of them" in both


def test_all_faults_are_reported_together():
    assert len(refusals(ratio=(3, 3), mlp_ratio=(1,), serving=Serving(max_running=0))) == 3


def test_more_ranks_than_the_model_has_units_are_refused():
    many = gpus(*(24_000,) * 9)
    with pytest.raises(PlanRefusedError, match=r"--tp-size: attention heads: .* use at most 8 ranks"):
        plan_replica(PlanRequest(QWEN3_8B, many))
    narrow = replace(TINY, vocab_size=64)
    with pytest.raises(PlanRefusedError, match=r"--rank-vocab-ratio: vocabulary in units of 64 rows: 1 units"):
        plan_replica(PlanRequest(narrow, gpus(9000, 9000), SMALL))


def test_too_little_memory_is_infeasible_with_changes_that_work():
    serving = Serving(weight_size=4, kv_size=4, activation_size=4, context_length=40_960, chunk=512, max_running=8)
    request = PlanRequest(QWEN3_8B, (BIG, Card("GPU-b", "small", 12_000)), serving)
    plan = plan_replica(request)
    assert plan.verdict == "infeasible"
    assert plan.decision.replicas == ()
    assert plan.decision.unused == ("GPU-1f2e", "GPU-b")
    assert "rank 1 (GPU-b) lacks" in plan.explain.binding[0].text
    memory, pair = plan.explain.near_miss
    assert memory.endswith("MiB more for rank 1 (GPU-b, a card larger than its 12000)")
    assert pair == "--rank-tp-ratio auto with --dtype bfloat16"
    half = replace(serving, weight_size=2, kv_size=2, activation_size=2)
    assert plan_replica(replace(request, serving=half)).verdict == "infeasible"
    assert plan_replica(replace(request, serving=half, ratio="auto")).verdict == "feasible"


def test_the_longest_context_that_fits_is_exact():
    request = PlanRequest(QWEN3_8B, (BIG,), Serving(context_length=40_960, chunk=2048), budgets_mib=(20_000,))
    (more, context, *_) = plan_replica(request).explain.near_miss
    longest = int(context.removeprefix("--context-length "))

    def verdict(length):
        return plan_replica(replace(request, serving=replace(request.serving, context_length=length))).verdict

    assert (verdict(longest), verdict(longest + 1)) == ("feasible", "infeasible")
    short = int(more.split()[0])
    enough, one_less = (replace(request, budgets_mib=(20_000 + extra,)) for extra in (short, short - 1))
    assert (plan_replica(enough).verdict, plan_replica(one_less).verdict) == ("feasible", "infeasible")


@given(
    st.lists(st.integers(20, 400), min_size=1, max_size=5),
    st.sampled_from(["auto", None]),
    st.sampled_from([None, 512, 4096]),
    st.sampled_from([1, 16]),
)
def test_a_feasible_plan_fits_every_budget_and_holds_what_is_asked(budgets, ratio, context, page):
    serving = replace(SMALL, context_length=context, page_size=page)
    request = PlanRequest(TINY, pretend_cards(budgets), serving, ratio=ratio)
    try:
        plan = plan_replica(request)
    except PlanRefusedError:
        assume(False)
    assert Plan.from_json(plan.to_json()) == plan
    candidate = price(request)
    tokens = candidate.memory.tokens
    for memory, budget in zip(candidate.memory.ranks, budgets, strict=True):
        if tokens:
            assert bytes_for(TINY, serving, memory, tokens) <= budget * MIB
    assert (plan.verdict == "feasible") == (tokens >= serving.required_tokens)
    if plan.verdict == "feasible":
        stage = plan.group().stages[0]
        assert partition_model(TINY, stage.vectors) == replace(
            candidate.partition, heads=replace(candidate.partition.heads, raw=candidate.partition.heads.q.counts)
        )
    else:
        assert "MiB more for rank" in plan.explain.near_miss[0]


@given(st.lists(st.integers(60, 400), min_size=2, max_size=4), st.integers(0, 3))
def test_more_memory_never_shrinks_the_pool_of_the_same_split(budgets, which):
    which %= len(budgets)
    ratio = tuple(range(1, len(budgets) + 1))
    request = PlanRequest(TINY, pretend_cards(budgets), SMALL, ratio=ratio)
    richer = [budget + 100 * (rank == which) for rank, budget in enumerate(budgets)]
    more = replace(request, cards=pretend_cards(richer))
    assert price(more).memory.tokens >= price(request).memory.tokens


def test_alignment_is_shown_and_explained():
    plan = plan_replica(PlanRequest(replace(TINY, q_heads=24), pretend_cards((390, 130, 120)), SMALL, ratio="auto"))
    assert [(rank.raw_q_heads, rank.q_heads) for rank in plan.explain.ranks] == [(14, 12), (6, 6), (4, 6)]
    assert any("straddles" in warning for warning in plan.explain.warnings)


def test_as_many_kv_heads_as_ranks_is_noted():
    plan = plan_replica(PlanRequest(TINY, pretend_cards((300, 100)), SMALL, ratio="auto"))
    assert any("attention is even whatever the ratio" in warning for warning in plan.explain.warnings)


def test_memory_held_by_others_is_a_warning():
    busy = replace(BIG, used_mib=9000)
    plan = plan_replica(PlanRequest(QWEN3_8B, (busy, LITTLE), ratio="auto"))
    assert any("others hold 9000 MiB of GPU-1f2e" in warning for warning in plan.explain.warnings)


def test_same_inputs_same_bytes():
    request = PlanRequest(QWEN3_8B, (BIG, LITTLE), ratio="auto")
    text = plan_replica(request).to_json()
    assert plan_replica(replace(request)).to_json() == text
    assert Plan.from_json(text).to_json() == text
    assert inputs_hash(request) != inputs_hash(replace(request, ratio=(2, 1)))
