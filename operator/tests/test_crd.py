"""The CRDs follow the API server's rules for structural schemas and match the committed files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from motley_operator.api.crd import definitions
from motley_operator.api.generate import MAX_TOTAL_BYTES, differences, main, render_files
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.rules import RULES
from motley_operator.api.schema import node_at

JSON = dict[str, Any]
CRDS = Path(__file__).parents[2] / "crds"
ALLOWED_KEYS = {
    *("type", "properties", "items", "additionalProperties", "required", "description", "default", "enum", "format"),
    *("pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "maxProperties", "anyOf"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations"),
    *("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
}


def schemas() -> list[Any]:
    return [
        pytest.param(version["schema"]["openAPIV3Schema"], id=name)
        for name, crd in definitions().items()
        for version in crd["spec"]["versions"]
    ]


def nodes(schema: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


@pytest.mark.parametrize("schema", schemas())
def test_every_node_is_structural(schema: JSON) -> None:
    for path, node in nodes(schema):
        assert set(node) <= ALLOWED_KEYS, path
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            assert "type" not in node, path
        else:
            assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert not ("properties" in node and "additionalProperties" in node), path


@pytest.mark.parametrize("schema", schemas())
def test_every_string_list_and_map_has_a_maximum(schema: JSON) -> None:
    for path, node in nodes(schema):
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
            assert "x-kubernetes-list-type" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path


@pytest.mark.parametrize("schema", schemas())
def test_list_map_keys_are_required_scalars_of_the_items(schema: JSON) -> None:
    for path, node in nodes(schema):
        for key in node.get("x-kubernetes-list-map-keys", []):
            item = node["items"]
            assert item["properties"][key]["type"] in {"string", "integer"}, path
            assert key in item["required"] or "default" in item["properties"][key], path


@pytest.mark.parametrize("schema", schemas())
def test_no_field_is_a_float(schema: JSON) -> None:
    assert not [path for path, node in nodes(schema) if node.get("type") == "number"]


@pytest.mark.parametrize("schema", schemas())
def test_every_field_is_described(schema: JSON) -> None:
    undescribed = [
        f"{path}.{name}"
        for path, node in nodes(schema)
        for name, child in node.get("properties", {}).items()
        if "description" not in child
    ]
    assert set(undescribed) <= {".apiVersion", ".kind", ".metadata"}


def with_defaults(schema: JSON, value: Any) -> Any:
    """What the API server makes of ``value``: absent fields filled, top down."""
    if isinstance(value, list):
        return [with_defaults(schema["items"], item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = dict(value)
    for name, child in schema.get("properties", {}).items():
        if name not in filled and "default" in child:
            filled[name] = child["default"]
        if name in filled:
            filled[name] = with_defaults(child, filled[name])
    return filled


def test_defaults_in_the_schema_are_the_defaults_of_the_types(minimal: JSON) -> None:
    schema = definitions()["motley.dev_inferenceservices.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    served = with_defaults(schema, minimal)
    here = InferenceService.model_validate(minimal, strict=False)
    assert InferenceService.model_validate(served, strict=False) == here


def test_defaults_are_complete_because_rules_run_over_them() -> None:
    schema = definitions()["motley.dev_inferenceservices.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, node in nodes(schema):
        if isinstance(node.get("default"), dict):
            assert with_defaults(node, node["default"]) == node["default"], path


def test_each_rule_stands_in_the_crd_with_its_message() -> None:
    schema = definitions()["motley.dev_inferenceservices.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for rule in RULES:
        stated = {entry["rule"]: entry for entry in node_at(schema, rule.at)["x-kubernetes-validations"]}
        assert rule.message in stated[rule.cel]["message"]
    assert sum(len(node.get("x-kubernetes-validations", [])) for _, node in nodes(schema)) == len(RULES)


def test_rules_name_fields_that_exist() -> None:
    schema = definitions()["motley.dev_inferenceservices.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for rule in RULES:
        if rule.at:
            assert node_at(node_at(schema, rule.at), rule.field)


def test_names_subresources_and_columns_are_those_of_the_design() -> None:
    crd = definitions()["motley.dev_inferenceservices.yaml"]
    version = crd["spec"]["versions"][0]
    assert crd["metadata"]["name"] == "inferenceservices.motley.dev"
    assert crd["spec"]["names"]["shortNames"] == ["msvc"]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns == ["Ready", "Reason", "Topology", "GPUs", "URL", "Age"]


def test_committed_files_are_up_to_date_and_small() -> None:
    assert differences(CRDS) == []
    assert sum(len(text.encode()) for text in render_files().values()) < MAX_TOTAL_BYTES


def test_files_read_back_as_the_definitions() -> None:
    assert {name: yaml.safe_load(text) for name, text in render_files().items()} == definitions()


def test_check_names_every_stale_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write", "--directory", str(tmp_path)]) == 0
    assert main(["--check", "--directory", str(tmp_path)]) == 0
    (tmp_path / "motley.dev_gpunodes.yaml").write_text("x: 1\n")
    (tmp_path / "stranger.yaml").write_text("x: 1\n")
    assert main(["--check", "--directory", str(tmp_path)]) == 1
    reported = capsys.readouterr().err
    assert "motley.dev_gpunodes.yaml" in reported
    assert "stranger.yaml" in reported
