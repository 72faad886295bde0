"""The printed plan: every rank's line, the flag that moves each column, what binds, and the way out."""

import re
from dataclasses import replace
from io import StringIO

from rich.console import Console

from motley_planner.inventory import Card, pretend_cards
from motley_planner.memory import Serving
from motley_planner.model_facts import facts_from_hf_config
from motley_planner.request import PlanRequest
from motley_planner.solve import plan_replica
from motley_planner.table import plan_table, summary

FACTS = facts_from_hf_config(
    {
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 24,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 1536,
        "vocab_size": 49_152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
)


def printed(plan):
    console = Console(width=200, record=True, file=StringIO())
    console.print(plan_table(plan))
    return console.export_text()


def test_every_rank_has_its_line_and_the_limiting_one_is_marked():
    plan = plan_replica(PlanRequest(FACTS, pretend_cards((390, 130, 120)), Serving(chunk=256), ratio="auto"))
    text = printed(plan)
    lines = [line for line in text.splitlines() if re.match(r" *(\* )?\d+ +CPU-", line)]
    assert len(lines) == 3
    (marked,) = [line for line in lines if "*" in line]
    limiting = next(index for index, rank in enumerate(plan.explain.ranks) if rank.binds)
    assert f"CPU-{limiting}" in marked
    assert "12 (14)" in lines[0]
    for flag in ("--rank-tp-ratio", "--rank-mlp-ratio", "--rank-vocab-ratio"):
        assert flag in text
    assert "expert" not in text
    assert plan.explain.binding[0].text in text
    assert "an even split would hold" in text


def test_infeasible_plans_show_what_would_do():
    request = PlanRequest(FACTS, (Card("GPU-a", "card", 9000),), Serving(context_length=8192), budgets_mib=(600,))
    text = printed(plan_replica(request))
    assert "infeasible" in text
    assert "each of these alone would do" in text
    assert "MiB more for rank 0 (GPU-a)" in text


def test_the_summary_is_one_line():
    plan = plan_replica(PlanRequest(FACTS, pretend_cards((900,)), Serving(chunk=256)))
    line = summary(plan)
    assert line.startswith("feasible: 1 rank, query heads 24, KV pool ")
    assert plan.plan_hash[:12] in line
    assert "\n" not in line
    assert summary(replace(plan, predicted={})).count("KV pool unknown") == 1
