"""The table of conflicts: each is found from the settings alone and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from motley_engine.config.check import check, read_api_key
from motley_engine.config.errors import ConfigError
from motley_engine.config.flags import build_config

UNEVEN = {"tp_size": "2", "rank_tp_ratio": "2,1"}

CONFLICTS: list[tuple[dict[str, object], str]] = [
    ({"model_path": ""}, "--model-path: not given; name a model"),
    ({"chat_template": "absent.jinja"}, "--chat-template: no file 'absent.jinja'"),
    ({"preferred_sampling_params": "{"}, "--preferred-sampling-params: not valid JSON"),
    ({"preferred_sampling_params": "[1]"}, "--preferred-sampling-params: [1] is not an object"),
    ({"preferred_sampling_params": '{"temprature": 1}'}, "unknown key 'temprature'"),
    ({"group": "u0"}, "--group: 'u0' names a replica of a plan, but no --plan is given"),
    ({"plan": "absent.json"}, "--plan: no file 'absent.json'; write one with motley plan"),
    # lengths
    (
        {"tp_size": "3", "rank_gpu_id": "0,1", "rank_gpu_memory_mib": "9"},
        "--rank-gpu-id: 2 entries for --tp-size 3; give one GPU per rank",
    ),
    ({"tp_size": "3", "rank_tp_ratio": "2,1"}, "--rank-tp-ratio: 2 entries for --tp-size 3; give one weight per rank"),
    (
        {"tp_size": "3", "rank_tp_ratio": "2,1,1", "rank_gpu_memory_mib": "9,8"},
        "--rank-gpu-memory-mib: 2 entries for --tp-size 3; give one value for all ranks, or one per rank",
    ),
    ({"rank_tp_ratio": "2,1", "rank_mlp_ratio": "3"}, "--rank-mlp-ratio: 1 entry for 2 ranks (the longest rank list)"),
    ({**UNEVEN, "rank_moe_ratio": "1,2,3"}, "--rank-moe-ratio: 3 entries for --tp-size 2"),
    ({**UNEVEN, "rank_vocab_ratio": "1,2,3"}, "--rank-vocab-ratio: 3 entries for --tp-size 2"),
    # placement
    (
        {"rank_gpu_id": "0,1"},
        "--rank-gpu-id: needs --rank-gpu-memory-mib or --rank-tp-ratio auto; give one of them",
    ),
    (
        {"device": "cpu", "rank_gpu_id": "0", "rank_gpu_memory_mib": "9"},
        "--rank-gpu-id: names GPUs, but --device is cpu",
    ),
    ({"rank_gpu_id": "-1", "rank_gpu_memory_mib": "9"}, "--rank-gpu-id: -1 is negative"),
    (
        {"rank_gpu_id": "0,1,0", "rank_gpu_memory_mib": "9"},
        "--rank-gpu-id: ranks 0,2 share GPU 0; co-located ranks need NCCL 2.30.7",
    ),
    ({"rank_gpu_memory_mib": "0"}, "--rank-gpu-memory-mib: 0 is not positive"),
    (
        {"rank_gpu_id": "0", "rank_gpu_memory_mib": "9", "mem_fraction_static": "0.8"},
        "--rank-gpu-memory-mib: absolute budgets exclude --mem-fraction-static; drop one of them",
    ),
    ({"device": "cuda", "rank_gpu_memory_mib": "9"}, "--rank-gpu-memory-mib: needs --rank-gpu-id"),
    ({"rank_gpu_memory_mib": "9,8"}, "--rank-gpu-memory-mib: unequal budgets with an even split"),
    # ratios
    ({"rank_tp_ratio": "2,2"}, "--rank-tp-ratio: 2,2 is an even split; drop the flag"),
    ({"rank_tp_ratio": "2,0"}, "--rank-tp-ratio: 0 is below 1"),
    ({"rank_tp_ratio": "2,x"}, "--rank-tp-ratio: 'x' is no integer; give auto or one integer per rank"),
    ({"rank_tp_ratio": "2,,1"}, "--rank-tp-ratio: item 2 of '2,,1' is empty"),
    ({"device": "cuda", "rank_tp_ratio": "auto", "tp_size": "2"}, "--rank-tp-ratio: auto needs --rank-gpu-id"),
    ({"device": "cpu", "rank_tp_ratio": "auto", "tp_size": "2"}, "--rank-tp-ratio: auto on CPU needs"),
    ({**UNEVEN, "rank_auto_reserve_mib": "100"}, "--rank-auto-reserve-mib: only used by --rank-tp-ratio auto"),
    ({"rank_auto_reserve_mib": "-1"}, "--rank-auto-reserve-mib: -1 is below 0"),
    ({"tp_size": "2", "rank_mlp_ratio": "2,1"}, "--rank-mlp-ratio: needs a base plan; give --rank-tp-ratio too"),
    ({"tp_size": "2", "rank_moe_ratio": "2,1"}, "--rank-moe-ratio: needs a base plan"),
    ({"tp_size": "2", "rank_vocab_ratio": "auto"}, "--rank-vocab-ratio: needs a base plan"),
    ({**UNEVEN, "rank_mlp_ratio": "2,0"}, "--rank-mlp-ratio: 0 is below 1"),
    # memory
    ({"page_size": "3"}, "--page-size: 3 is not a power of two from 1 to 256"),
    ({"page_size": "512"}, "--page-size: 512 is not a power of two from 1 to 256"),
    ({"page_size": "0"}, "--page-size: 0 is not a power of two"),
    ({"device": "cpu", "mem_fraction_static": "0.5"}, "--mem-fraction-static: is a share of a card's memory"),
    ({"max_total_tokens": "8"}, "--max-total-tokens: 8 is less than one page of --page-size 16"),
    (
        {"max_total_tokens": "100", "context_length": "200"},
        "--max-total-tokens: 100 is less than --context-length 200; raise it or lower the context",
    ),
    # scheduler and the rest
    ({"chunked_prefill_size": "8"}, "--chunked-prefill-size: 8 is neither -1 nor at least one page of --page-size 16"),
    ({"chunked_prefill_size": "0"}, "--chunked-prefill-size: 0 is neither -1"),
    ({"chunked_prefill_size": "-2"}, "--chunked-prefill-size: -2 is neither -1"),
    ({"disable_radix_cache": True, "schedule_policy": "lpm"}, "--schedule-policy: lpm orders by cached prefix"),
    (
        {"priority_scheduling_preemption_threshold": "3"},
        "--priority-scheduling-preemption-threshold: priorities are off; add --enable-priority-scheduling",
    ),
    (
        {"disable_cuda_graph": True, "cuda_graph_max_bs": "8"},
        "--cuda-graph-max-bs: --disable-cuda-graph leaves nothing",
    ),
    ({"device": "cpu", "attention_backend": "triton"}, "--attention-backend: triton runs on cuda"),
    ({"api_key": "@absent"}, "--api-key: cannot read absent"),
]


@pytest.mark.parametrize(("flags", "message"), CONFLICTS, ids=[message[:60] for _, message in CONFLICTS])
def test_conflict_is_found_and_named(flags: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(build_config({"model_path": "m", **flags}))
    assert any(message in found for found in caught.value.messages), caught.value.messages
    # FLAG: FAULT; FIX
    assert all(found.startswith("--") and ": " in found for found in caught.value.messages)


GOOD: list[dict[str, object]] = [
    {},
    {"tp_size": "2"},
    {"rank_tp_ratio": "2,1"},
    {**UNEVEN, "rank_mlp_ratio": "1,1", "rank_vocab_ratio": "auto"},
    {"device": "cpu", "rank_tp_ratio": "auto", "rank_gpu_memory_mib": "900,300"},
    {"device": "cpu", "rank_gpu_memory_mib": "900", "tp_size": "3"},
    {"rank_gpu_id": "0,1", "rank_tp_ratio": "auto", "rank_auto_reserve_mib": "512"},
    {"rank_gpu_id": "GPU-1,GPU-2", "rank_gpu_memory_mib": "20000,10000", "rank_tp_ratio": "auto"},
    {"page_size": "1", "chunked_prefill_size": "-1"},
    {"disable_radix_cache": True},
    {"preferred_sampling_params": '{"temperature": 0.5, "stop": ["x"]}'},
]


@pytest.mark.parametrize("flags", GOOD, ids=str)
def test_settings_that_agree_pass(flags: dict[str, object]) -> None:
    check(build_config({"model_path": "m", **flags}))


def test_all_conflicts_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        check(build_config({"page_size": "3", "rank_tp_ratio": "1,1", "api_key": "@absent"}))
    assert [message.split(":")[0] for message in caught.value.messages] == [
        "--model-path",
        "--rank-tp-ratio",
        "--page-size",
        "--api-key",
    ]


def test_a_plan_excludes_every_flag_it_fixes(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    flags = {"tp_size": "2", "rank_gpu_id": "0", "rank_tp_ratio": "2,1", "mem_fraction_static": "0.5"}
    with pytest.raises(ConfigError) as caught:
        check(build_config({"model_path": "m", "plan": str(plan), **flags}))
    for flag in ("--tp-size", "--rank-gpu-id", "--rank-tp-ratio", "--mem-fraction-static"):
        assert sum(f"drop {flag} or the plan" in message for message in caught.value.messages) == 1
    check(build_config({"model_path": "m", "plan": str(plan), "group": "u0"}))


def test_api_key_comes_from_the_first_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("s3cret \nmore\n")
    assert read_api_key(f"@{path}") == "s3cret"
    assert read_api_key("plain") == "plain"
    path.write_text("\n")
    with pytest.raises(ConfigError, match="has no key in its first line"):
        read_api_key(f"@{path}")
