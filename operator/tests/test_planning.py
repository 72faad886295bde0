"""Cards, selection, sizes and plans of objects; every refusal in the object's own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from motley_operator.api.document import InputError
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.read import parse_service
from motley_operator.planning import cards as cards_module
from motley_operator.planning.answer import PlanQuestion, parse_ratio, plan_file, plan_model
from motley_operator.planning.cards import find_cards, parse_budgets
from motley_operator.planning.plan import LocatedModel, in_object_words, locate_model, place_service
from motley_operator.planning.selection import CardPool, allows, product_slug
from motley_operator.planning.serving import serving_of
from motley_operator.planning.support import local_notes, require_runnable_here, require_supported
from motley_planner.inventory import Card, InventoryError, pretend_cards

JSON = dict[str, Any]
GPUS = tuple(
    Card(f"GPU-00000000-0000-0000-0000-00000000000{digit}", product, mib, compute_capability=capability)
    for digit, product, mib, capability in (
        ("a", "NVIDIA GeForce RTX 3090", 24576, "8.6"),
        ("b", "NVIDIA A100-SXM4-80GB", 81920, "8.0"),
        ("c", "Tesla T4", 15360, "7.5"),
    )
)


def service(spec: JSON | None = None, name: str = "chat") -> InferenceService:
    model = {"uri": "hf://Qwen/Qwen3-8B"} | ((spec or {}).pop("model", {}) if spec else {})
    document = {
        "apiVersion": "motley.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": model, **(spec or {})},
    }
    return parse_service(document, "test")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is a model as far as planning goes: nine query heads over three kv heads, like SmolLM2."""
    directory = tmp_path_factory.mktemp("model")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 4,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> LocatedModel:
    return locate_model(f"file://{checkpoint}", weights=False)


def test_pretend_budgets_become_cards() -> None:
    assert [(card.uuid, card.total_mib, card.kind) for card in find_cards("1024, 512", None)] == [
        ("CPU-0", 1024, "cpu"),
        ("CPU-1", 512, "cpu"),
    ]


@pytest.mark.parametrize("text", ["", "1024,", "x", "-5", "0", "1.5", "1e3", "²", "99999999999"])
def test_faulty_budgets_are_named(text: str) -> None:
    with pytest.raises(InputError, match=r"--cpu: .* is not a budget; give MiB as whole numbers"):
        parse_budgets(text)


def test_a_machine_without_gpus_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_nvml() -> Card:
        raise InventoryError("NVML: not found")

    monkeypatch.setattr(cards_module, "local_node", no_nvml)
    with pytest.raises(InputError, match=r"no GPU found: NVML: not found") as caught:
        find_cards(None, None)
    assert "--cpu MIB[,MIB...]" in str(caught.value)
    assert "--inventory FILE" in str(caught.value)


def test_cards_can_be_described_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(f"nodes: [{{name: rig, cards: [{{uuid: {GPUS[0].uuid}, product: x, total_mib: 24576}}]}}]")
    assert [(card.uuid, card.node) for card in find_cards(None, file)] == [(GPUS[0].uuid, "rig")]
    file.write_text("nodes: []")
    with pytest.raises(InputError, match=r"--inventory .*inventory.yaml: lists no cards"):
        find_cards(None, file)
    file.write_text("nodes: [{name: rig, cards: [{uuid: a}]}]")
    with pytest.raises(InputError, match=r"nodes\[0\].cards\[0\].product: missing"):
        find_cards(None, file)
    with pytest.raises(InputError, match=r"--cpu: excludes --inventory"):
        find_cards("1", file)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, "abc"),
        ({"products": ["rtx-3090", "t4"]}, "ac"),
        ({"minMemory": "24Gi"}, "ab"),
        ({"minComputeCapability": "8.0"}, "ab"),
        ({"minComputeCapability": "10.0"}, ""),
        ({"uuids": [GPUS[1].uuid]}, "b"),
        ({"excludeUUIDs": [GPUS[1].uuid]}, "ac"),
        ({"excludeNodes": ["node-1"]}, "abc"),
    ],
)
def test_selectors_pick_cards(selector: JSON, expected: str) -> None:
    chosen = service({"placement": {"gpuSelector": selector}}).spec.placement.gpu_selector
    assert chosen is not None
    assert "".join(card.uuid[-1] for card in GPUS if allows(chosen, card)) == expected


@pytest.mark.parametrize(
    ("product", "slug"),
    [("NVIDIA GeForce RTX 3090", "rtx-3090"), ("Tesla T4", "t4"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb")],
)
def test_product_names_have_slugs(product: str, slug: str) -> None:
    assert product_slug(product) == slug


def taken(pool: CardPool, spec: JSON, name: str = "chat") -> str:
    return "".join(card.uuid[-1] for card in pool.take_auto(service(spec, name)))


def test_auto_takes_every_card_or_the_largest() -> None:
    assert taken(CardPool(GPUS), {}) == "abc"
    assert taken(CardPool(GPUS), {"topology": {"maxGPUs": 2}}) == "ab"
    assert taken(CardPool(GPUS), {"topology": {"maxGPUs": 1}}) == "b"


def test_no_card_is_given_twice() -> None:
    pool = CardPool(GPUS)
    assert taken(pool, {"topology": {"maxGPUs": 1}}) == "b"
    assert taken(pool, {}, "code") == "ac"
    with pytest.raises(InputError, match=r"third: no card is left \(held: .*b by chat, .*a by code"):
        taken(pool, {}, "third")
    assert pool.leftover() == ()


def test_a_selector_that_leaves_nothing_says_what_there_is() -> None:
    with pytest.raises(InputError, match=r"chat: spec.placement.gpuSelector: selects none of the free cards: .*T4"):
        taken(CardPool(GPUS), {"placement": {"gpuSelector": {"products": ["h100"]}}})


def manual(*ranks: JSON, name: str = "chat", allocation: str = "Auto") -> InferenceService:
    named = [{"name": f"r{index}", **rank} for index, rank in enumerate(ranks)]
    topology = {"mode": "Manual", "groups": [{"name": "main", "ranks": named}]}
    return service({"topology": topology, "placement": {"allocation": allocation}}, name)


def test_manual_ranks_get_the_cards_they_name() -> None:
    pool = CardPool(GPUS)
    asked = manual({"gpuUUID": GPUS[2].uuid, "shareUnits": 1}, {"gpuUUID": GPUS[0].uuid, "shareUnits": 2})
    assert [card.uuid for card in pool.take_group(asked, asked.spec.topology.groups[0])] == [GPUS[2].uuid, GPUS[0].uuid]
    again = manual({"gpuUUID": GPUS[0].uuid, "shareUnits": 1}, name="code")
    with pytest.raises(InputError, match=r"code: GPU-.*a cannot be used twice: chat has it"):
        pool.take_group(again, again.spec.topology.groups[0])


def test_manual_refusals_name_the_rank() -> None:
    twice = manual(*({"gpuUUID": GPUS[0].uuid, "shareUnits": 1} for _ in range(2)))
    with pytest.raises(InputError, match=r"two of its ranks name it"):
        CardPool(GPUS).take_group(twice, twice.spec.topology.groups[0])
    absent = manual({"gpuUUID": "GPU-00000000-0000-0000-0000-00000000000f", "shareUnits": 1})
    with pytest.raises(InputError, match=r"no GPU GPU-.*f; present: .*RTX 3090"):
        CardPool(GPUS).take_group(absent, absent.spec.topology.groups[0])
    on_cpu = manual({"shareUnits": 1}, allocation="None")
    with pytest.raises(InputError, match=r"rank r0 of main names no gpuUUID, so it runs on CPU; give --cpu"):
        CardPool(GPUS).take_group(on_cpu, on_cpu.spec.topology.groups[0])
    two = manual({"shareUnits": 1}, {"shareUnits": 1}, allocation="None")
    with pytest.raises(InputError, match=r"main has 2 ranks and 1 pretend cards are left; give one --cpu budget per"):
        CardPool(pretend_cards([1])).take_group(two, two.spec.topology.groups[0])


def test_budgets_cut_the_model_two_to_one(model: LocatedModel) -> None:
    (group,) = place_service(service(), model.facts, CardPool(pretend_cards([1024, 512])))
    stage = group.replica.stages[0]
    assert group.name == "u0"
    assert stage.vectors.attn == (2, 1)
    assert [rank.budget_bytes >> 20 for rank in stage.ranks] == [1024, 512]
    assert [slot.cards for slot in group.slots] == [("CPU-0", "CPU-1")]


def test_auto_is_never_below_an_even_split(model: LocatedModel) -> None:
    for budgets in ([1024, 768], [1024, 512], [900, 800], [700, 700], [2000, 300]):
        (group,) = place_service(service(), model.facts, CardPool(pretend_cards(budgets)))
        pool = group.plan.predicted["pool_tokens"].value
        assert pool >= group.plan.explain.baselines.get("even", 0)


def test_manual_shares_are_taken_as_written(model: LocatedModel) -> None:
    asked = manual({"shareUnits": 1}, {"shareUnits": 2}, allocation="None")
    (group,) = place_service(asked, model.facts, CardPool(pretend_cards([1024, 1024])))
    assert group.name == "main"
    assert group.replica.stages[0].vectors.attn == (1, 2)
    assert group.replica.stages[0].vectors.mlp == (32, 64)


def test_equal_shares_on_unequal_budgets_are_an_even_split(model: LocatedModel) -> None:
    asked = manual(*({"shareUnits": 5} for _ in range(3)), allocation="None")
    (group,) = place_service(asked, model.facts, CardPool(pretend_cards([1024, 512, 600])))
    assert group.replica.stages[0].vectors.mlp == (32, 32, 32)
    assert {rank.budget_bytes >> 20 for rank in group.replica.ranks} == {512}


def test_too_many_ranks_are_refused_with_the_limit(model: LocatedModel) -> None:
    with pytest.raises(InputError, match=r"chat: ranks: attention heads: .* use at most 3 ranks"):
        place_service(service(), model.facts, CardPool(pretend_cards([512] * 4)))


def test_planner_words_become_fields(model: LocatedModel) -> None:
    with pytest.raises(InputError, match=r"chat: spec.model.maxModelLength: 9000 exceeds the model's 8192 positions"):
        place_service(service({"model": {"maxModelLength": 9000}}), model.facts, CardPool(pretend_cards([512])))
    assert in_object_words("--context-length 5") == "spec.model.maxModelLength 5"
    assert in_object_words("--dtype bfloat16") == "spec.model.dtype bfloat16"


def test_a_plan_that_does_not_fit_is_a_plan_all_the_same(model: LocatedModel) -> None:
    (group,) = place_service(service(), model.facts, CardPool(pretend_cards([20, 10])))
    assert group.plan.verdict == "infeasible"
    assert group.slots == ()
    assert group.plan.explain.near_miss


@pytest.mark.parametrize(
    ("spec", "device", "expected"),
    [
        ({}, "cpu", {"weight_size": 4, "kv_size": 4, "graph_tokens": 0, "chunk": 2048, "max_running": 64}),
        ({}, "cuda", {"weight_size": 2, "kv_size": 2, "graph_tokens": 64}),
        ({"model": {"dtype": "BFloat16"}}, "cpu", {"weight_size": 2, "activation_size": 2}),
        ({"model": {"maxModelLength": 1000}}, "cpu", {"context_length": 1000, "chunk": 1000}),
        (
            {"engine": {"extraArgs": ["--max-running-requests=8", "--page-size=1", "--disable-overlap-schedule"]}},
            "cuda",
            {"max_running": 8, "page_size": 1, "overlap": False, "graph_tokens": 8},
        ),
        ({"engine": {"extraArgs": ["--disable-cuda-graph"]}}, "cuda", {"graph_tokens": 0}),
        ({"engine": {"extraArgs": ["--kv-cache-dtype=float16"]}}, "cpu", {"weight_size": 4, "kv_size": 2}),
        ({"engine": {"extraArgs": ["--chunked-prefill-size=-1"]}}, "cpu", {"chunk": 8192}),
    ],
)
def test_sizes_follow_object_and_extra_flags(model: LocatedModel, spec: JSON, device: Any, expected: JSON) -> None:
    serving = serving_of(service(spec), model.facts, device)
    assert {name: getattr(serving, name) for name in expected} == expected


def test_flags_without_a_number_are_named(model: LocatedModel) -> None:
    with pytest.raises(InputError, match=r"spec.engine.extraArgs: --page-size=big needs a whole number"):
        serving_of(service({"engine": {"extraArgs": ["--page-size=big"]}}), model.facts, "cpu")


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"model": {"adapters": [{"name": "a", "uri": "hf://a/b"}]}}, "spec.model.adapters"),
        ({"networking": {"tls": {"mode": "Secret", "secretName": "s"}}}, "spec.networking.tls"),
        ({"engine": {"extraArgs": ["--port=1"]}}, "spec.engine.extraArgs[0]"),
    ],
)
def test_what_cannot_be_served_is_refused(spec: JSON, path: str) -> None:
    with pytest.raises(InputError) as caught:
        require_supported(service(spec))
    assert f"chat: {path}:" in str(caught.value)


def test_prefill_and_decode_groups_are_refused() -> None:
    ranks = [{"name": "r", "gpuUUID": GPUS[0].uuid, "shareUnits": 1}]
    groups = [{"name": role.lower(), "role": role, "ranks": ranks} for role in ("Prefill", "Decode")]
    with pytest.raises(InputError, match=r"spec.topology.groups\[0\].role: Prefill is not built yet"):
        require_supported(service({"topology": {"mode": "Manual", "groups": groups}}))


def test_objects_that_ask_for_nothing_are_refused() -> None:
    with pytest.raises(InputError, match=r"spec.paused: is true, so there is nothing to run"):
        require_runnable_here(service({"paused": True}))
    with pytest.raises(InputError, match=r"spec.replicas: is 0, so there is nothing to run"):
        require_runnable_here(service({"replicas": 0}))


def test_fields_without_effect_here_are_noted() -> None:
    assert local_notes(service(), pretend=True) == []
    asked = service({"replicas": 3, "networking": {"ingress": {"host": "a.example"}}, "placement": {"gpuSelector": {}}})
    noted = [note.split(":")[0] for note in local_notes(asked, pretend=True)]
    assert noted == ["spec.replicas", "spec.networking.ingress", "spec.placement.gpuSelector"]
    assert len(local_notes(asked, pretend=False)) == 2


@pytest.mark.parametrize("text", ["", "2,", "a", "0,1", "-1,2", "1.5"])
def test_faulty_ratios_are_named(text: str) -> None:
    with pytest.raises(InputError, match=r"--ratio: .* is not a share"):
        parse_ratio(text)


def test_a_bare_model_is_planned(checkpoint: Path) -> None:
    plan = plan_model(str(checkpoint), PlanQuestion(cpu="512,512", ratio="2,1", context_length=4096))
    stage = plan.group().stages[0]
    assert stage.vectors.attn == (2, 1)
    assert plan.group().min_pool_tokens == 4096
    with pytest.raises(InputError, match=r"--rank-tp-ratio: 3 entries for --tp-size 2"):
        plan_model(str(checkpoint), PlanQuestion(cpu="512,512", ratio="2,1,1"))


def test_objects_of_a_file_share_the_cards(checkpoint: Path, tmp_path: Path) -> None:
    one = (
        "apiVersion: motley.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: %s}\n"
        f"spec: {{model: {{uri: 'file://{checkpoint}'}}, topology: {{maxGPUs: 1}}}}\n"
    )
    file = tmp_path / "two.yaml"
    file.write_text(one % "chat" + "---\n" + one % "code")
    plans = plan_file(file, PlanQuestion(cpu="600,500"))
    assert {name: plan.group().ranks[0].uuid for name, plan in plans.items()} == {
        "chat/u0": "CPU-0",
        "code/u0": "CPU-1",
    }
    with pytest.raises(InputError, match=r"code: no card is left"):
        plan_file(file, PlanQuestion(cpu="600"))
    with pytest.raises(InputError, match=r"--ratio: goes with --model"):
        plan_file(file, PlanQuestion(cpu="600", ratio="1"))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("package://no_such_package/x.gguf", "package://no_such_package/x.gguf"),
        ("file:///no/such/model", "no such file or directory"),
        ("s3://bucket/model", "delivered by the cluster's volumes"),
    ],
)
def test_models_that_are_not_here_are_named(uri: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        locate_model(uri)
