"""Flags, YAML and defaults: names, precedence, forms of values, and what is refused."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path

import pytest

from motley_engine.config.errors import ConfigError
from motley_engine.config.flags import all_flags, build_config
from motley_engine.config.schema import EngineConfig


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "engine.yaml"
    path.write_text(text)
    return str(path)


def test_every_field_has_one_name_and_a_meaning() -> None:
    names = Counter(name for flag in all_flags() for name in (*flag.names, flag.off_name) if name)
    assert max(names.values()) == 1
    assert all(flag.help for flag in all_flags())
    assert [flag.name for flag in all_flags() if flag.secret] == ["--api-key"]


def test_defaults_are_the_trees() -> None:
    assert build_config({}) == EngineConfig()


def test_flags_win_over_yaml_and_yaml_over_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, "model-path: from-yaml\npage_size: 32\nport: 1\n")
    config = build_config({"port": "2", "host": None}, path)
    assert (config.model.model_path, config.memory.page_size, config.server.port) == ("from-yaml", 32, 2)
    assert config.server.host == "127.0.0.1"


@pytest.mark.parametrize("text", ["rank_tp_ratio: 2, 1", "rank_tp_ratio: [2, 1]", "rank-tp-ratio: '2,1'"])
def test_ratios_may_be_yaml_lists(text: str, tmp_path: Path) -> None:
    assert build_config({}, write(tmp_path, text)).parallel.rank_tp_ratio.replace(" ", "") == "2,1"


def test_lists_ignore_blanks_and_take_uuids_and_numbers(tmp_path: Path) -> None:
    assert build_config({"rank_gpu_id": " 0 , GPU-1f2e,2"}).parallel.rank_gpu_id == ("0", "GPU-1f2e", "2")
    assert build_config({"rank_gpu_memory_mib": "100, 200"}).parallel.rank_gpu_memory_mib == (100, 200)
    yaml = write(tmp_path, "rank_gpu_id: [0, GPU-1]\nrank_gpu_memory_mib: 512")
    assert build_config({}, yaml).parallel.rank_gpu_id == ("0", "GPU-1")
    assert build_config({}, yaml).parallel.rank_gpu_memory_mib == (512,)


def test_yaml_mapping_of_sampling_defaults_becomes_json(tmp_path: Path) -> None:
    config = build_config({}, write(tmp_path, "preferred_sampling_params: {temperature: 0.5}"))
    assert config.model.preferred_sampling_params == '{"temperature": 0.5}'


def test_empty_yaml_and_null_values_mean_defaults(tmp_path: Path) -> None:
    assert build_config({}, write(tmp_path, "# nothing\n")) == EngineConfig()
    assert build_config({}, write(tmp_path, "tp_size: null\nport:\n")) == EngineConfig()


@pytest.mark.parametrize(
    ("flags", "messages"),
    [
        ({"rank_gpu_id": "0,,1"}, ["--rank-gpu-id: item 2 of '0,,1' is empty; give one item per rank"]),
        ({"tp_size": "two"}, ["--tp-size: 'two': input should be a valid integer"]),
        ({"port": "70000", "page_size": "x"}, ["--page-size: 'x'", "--port: '70000'"]),
        ({"dtype": "int8"}, ["allowed: auto|float32|bfloat16|float16"]),
        ({"rank_mlp_ratio": "3,b"}, ["--rank-mlp-ratio: item 2: 'b'"]),
        ({"mem_fraction_static": "nan"}, ["--mem-fraction-static"]),
        ({"tp_size": "0"}, ["at least 1, at most 64"]),
    ],
)
def test_bad_values_name_flag_value_and_what_is_allowed(flags: dict[str, object], messages: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(flags)
    assert len(caught.value.messages) == len(messages)
    for message, expected in zip(caught.value.messages, messages, strict=True):
        assert expected in message


def test_secrets_are_not_repeated_in_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config({}, write(tmp_path, "api_key: [s3cret]\nstream_interval: 0"))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tp-sze: 2", r"unknown key 'tp-sze'; did you mean tp_size or page_size\?"),
        ("zzz: 2", "unknown key 'zzz'; see docs/configuration.md"),
        ("port: 1\nport: 2", "key 'port' is given twice"),
        ("tp-size: 1\ntp_size: 2", "key 'tp_size' is given twice"),
        ("- 1", "holds a list; write one 'key: value' per line"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_faulty_yaml_names_the_key_and_the_way_out(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=fault):
        build_config({}, write(tmp_path, text))


def test_all_unknown_keys_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config({}, write(tmp_path, "prot: 1\nhots: x"))
    assert len(caught.value.messages) == 2


def test_missing_yaml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config: cannot read .*absent"):
        build_config({}, str(tmp_path / "absent"))


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("a", "b")))
    assert error.messages == ("a", "b")
