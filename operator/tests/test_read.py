"""Reading objects: every way to write them wrongly gives one clear message, and nothing valid is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from motley_operator.api.document import InputError, parse_documents, read_text
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.read import InvalidObjectError, parse_service, parse_services, read_services
from motley_operator.api.schema import described_schema

JSON = dict[str, Any]
FULL = Path(__file__).parent / "data" / "full.yaml"
HEAD = "apiVersion: motley.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: chat}\n"


def set_paths(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {path} | {found for key, child in value.items() for found in set_paths(child, f"{path}.{key}")}
    if isinstance(value, list):
        return {path} | {found for child in value for found in set_paths(child, f"{path}[]")}
    return {path}


def known_paths(schema: JSON, path: str = "") -> set[str]:
    found = {path}
    for key, child in schema.get("properties", {}).items():
        found |= known_paths(child, f"{path}.{key}")
    if "items" in schema:
        found |= known_paths(schema["items"], f"{path}[]")
    return found


def test_an_object_with_every_spec_field_survives_the_round_trip() -> None:
    documents = [yaml.safe_load(part) for part in FULL.read_text().split("---\n")]
    for document in documents:
        assert parse_service(document, "full").to_object() == document
    spec = described_schema(InferenceService)["properties"]["spec"]
    covered = {path for document in documents for path in set_paths(document["spec"])}
    assert known_paths(spec) <= covered


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it needs at least one InferenceService"),
        ("---\n---\n", "is empty"),
        ("spec: {", "not YAML: line 1, column 8"),
        ("\tkind: x", "not YAML: line 1, column 1"),
        ("- kind: InferenceService", "expected a mapping with apiVersion, kind, metadata and spec, found a list"),
        ("hello", "found text"),
        ("a: 1\nb:\n  c: 1\n  c: 2", "line 4: key 'c' is there already, on line 3"),
        ("1: x", "key 1 is not text; put it in quotes"),
        ("? [a]\n: b", "line 1: a key must be text"),
        ("a: &loop [*loop]", "not YAML"),
        ("a: .inf", "a: inf is not a number that JSON knows"),
        ("a: !!binary aGVsbG8=", "a: a bytes has no place in an object"),
        ("a: !!python/object/apply:os.getcwd []", "not YAML: line 1, column 4: could not determine a constructor"),
        ("a: " + "[" * 3000, "not YAML"),
        ("kind: Pod\napiVersion: v1", 'kind: is "Pod"; motley up runs InferenceService of motley.dev/v1alpha1'),
        ("apiVersion: motley.dev/v1alpha1", "kind: is missing"),
        ("kind: InferenceService\napiVersion: serving.kserve.io/v1beta1", "other projects use the same kind name"),
        ("kind: InferenceService\napiVersion: motley.dev/v1", 'is "motley.dev/v1", expected motley.dev/v1alpha1'),
        ("kind: InferenceService", "apiVersion: is missing"),
        ("kind: InferenceService\napiVersion: motley.dev/v1alpha1", "metadata: is required"),
        (HEAD, "spec: is required"),
        (HEAD + "spec:", "spec: has no value; give one or remove the field"),
        (HEAD + "spec: []", "spec: must be a mapping, found []"),
        (HEAD + "spec: {}", "spec.model: is required"),
        (HEAD + "spec: {modle: {uri: 'hf://a/b'}}", "spec.modle: unknown field; did you mean model?"),
        (HEAD + "spec: {model: {URI: 'hf://a/b'}}", "spec.model.URI: unknown field; did you mean uri?"),
        (HEAD + "spec: {model: {uri: 'hf://a/b', zzz: 1}}", "unknown field; known here: uri, revision"),
        (HEAD + "spec: {model: {uri: http://x}}", "spec.model.uri: must be hf://, oci://"),
        (HEAD + "spec: {model: {uri: 'hf://a/b', dtype: bfloat16}}", "did you mean BFloat16?"),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, replicas: 1.5}", "spec.replicas: must be a whole number, found 1.5"),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, replicas: '1'}", 'spec.replicas: must be a whole number, found "1"'),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, replicas: -1}", "spec.replicas: must be at least 0; found -1"),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, paused: 1}", "spec.paused: must be true or false, found 1"),
        (HEAD + "spec: {model: {uri: 'hf://a/b'}, replicas: null}", "spec.replicas: has no value"),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, engine: {sharedMemorySize: 8GB}}",
            "spec.engine.sharedMemorySize: must be a quantity such as 8Gi",
        ),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, engine: {env: [{name: A, value: 1}]}}",
            "spec.engine.env[0].value: must be text, found 1; put it in quotes",
        ),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, engine: {env: [{name: A}, {name: B}, {name: A}]}}",
            "spec.engine.env[2]: has the same name as spec.engine.env[0]",
        ),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, placement: {gpuSelector: {products: [a, b, a]}}}",
            "spec.placement.gpuSelector.products[2]: has the same value as spec.placement.gpuSelector.products[0]",
        ),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, placement: {gpuSelector: {uuids: [GPU-12]}}}",
            "spec.placement.gpuSelector.uuids[0]: must be a full UUID as nvidia-smi -L prints it",
        ),
        (
            HEAD + "spec: {model: {uri: 'hf://a/b'}, engine: {resources: {limits: {cpu: -2}}}}",
            "spec.engine.resources.limits.cpu: must be a quantity",
        ),
    ],
)
def test_each_mistake_has_its_message(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_services(text, "x.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.yaml")


def test_all_faults_of_an_object_are_told_at_once() -> None:
    text = HEAD + "spec: {model: {uri: 'hf://a/b', dtype: x}, replicas: -1, paused: maybe, zzz: 1}"
    with pytest.raises(InvalidObjectError) as caught:
        parse_services(text, "x.yaml")
    told = {fault.path for fault in caught.value.faults}
    assert told == {"spec.model.dtype", "spec.replicas", "spec.paused", "spec.zzz"}


def test_faulty_items_are_not_also_called_too_few() -> None:
    text = HEAD + "spec: {model: {uri: 'hf://a/b'}, topology: {groups: [{name: a, ranks: [{name: r, shareUnits: 0}]}]}}"
    with pytest.raises(InvalidObjectError) as caught:
        parse_services(text, "x.yaml")
    assert [fault.path for fault in caught.value.faults] == ["spec.topology.groups[0].ranks[0].shareUnits"]


def test_several_documents_are_read_in_order_and_named_in_errors() -> None:
    second = HEAD.replace("chat", "code") + "spec: {model: {uri: 'hf://a/b'}}\n"
    first = HEAD + "spec: {model: {uri: 'hf://c/d'}}\n"
    assert [s.metadata.name for s in parse_services(f"{first}---\n{second}---\n", "x")] == ["chat", "code"]
    with pytest.raises(InputError, match="x, chat: another object of the file has the same name"):
        parse_services(f"{first}---\n{first}", "x")
    with pytest.raises(InputError, match="x, code:"):
        parse_services(f"{first}---\n{second.replace('hf://', 'ftp://')}", "x")


def test_merged_keys_may_be_overridden() -> None:
    documents = parse_documents("base: &b {a: 1, c: 3}\nmore: {<<: *b, a: 2}", "x")
    assert documents[0]["more"] == {"a": 2, "c": 3}


def test_alias_bomb_is_refused() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10))
    with pytest.raises(InputError, match="too large once its aliases are written out"):
        parse_documents(f"l0: &l0 [x]\n{levels}", "x")


def test_dates_stay_text() -> None:
    assert parse_documents("a: 2024-01-01", "x") == [{"a": "2024-01-01"}]


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.yaml: cannot be read: No such file"):
        read_services(tmp_path / "absent.yaml")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("kind: Dienst für alle".encode("latin-1"))
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte 14\)"):
        read_text(latin)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(InputError, match="larger than"):
        read_text(large)


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_text(HEAD + "spec: {model: {uri: 'hf://a/b'}}", encoding="utf-8-sig")
    assert read_services(path)[0].metadata.name == "chat"
