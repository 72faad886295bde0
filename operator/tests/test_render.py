"""Manifests against golden files, and the properties that no golden file can show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from motley_operator.api.document import InputError
from motley_operator.render import names
from motley_operator.render.arguments import MANAGED, argument_faults, drain_seconds, serve_arguments
from motley_operator.render.container import startup_seconds
from motley_operator.render.hashing import canonical_json, content_hash, revision_hash
from motley_operator.render.model import cut_into_slots
from motley_operator.render.overrides import merge
from motley_operator.render.workload import render_group, render_service
from motley_planner.plan import Estimate

from .golden import CARDS, EVERYTHING, GOLDEN, MINIMAL, SETTINGS, cases, make_group, make_plan, read, text_of

JSON = dict[str, Any]
LABEL = st.from_regex(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", fullmatch=True)
GROUP = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?", fullmatch=True)
HASH = st.text("0123456789abcdef", min_size=64, max_size=64)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("case", cases())
def test_manifests_are_the_golden_ones(case: str) -> None:
    assert text_of(cases()[case]) == (GOLDEN / case).read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(cases())


@given(base=LABEL, generation=HASH, group=GROUP, slot=st.integers(0, 1023))
def test_names_are_dns_labels_with_room_for_the_controller(base: str, generation: str, group: str, slot: int) -> None:
    for name in (
        names.plan_name(base, generation),
        names.group_name(base, generation, group),
        names.slot_name(base, generation, group, slot),
    ):
        assert len(name) <= names.MAX_NAME
        assert name[0].isalpha()
        assert name.rstrip("-") == name
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@given(base=LABEL, generation=HASH, one=st.tuples(GROUP, st.integers(0, 99)), two=st.tuples(GROUP, st.integers(0, 99)))
def test_slots_of_a_service_never_share_a_name(
    base: str, generation: str, one: tuple[str, int], two: tuple[str, int]
) -> None:
    same = names.slot_name(base, generation, *one) == names.slot_name(base, generation, *two)
    assert same == (one == two)


def test_cut_names_tell_long_bases_apart() -> None:
    tails = {names.slot_name("a" * 45 + str(n), "0" * 64, "main", 0) for n in range(100)}
    assert len(tails) == 100


@given(value=st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_hashes_ignore_the_order_of_keys(value: JSON) -> None:
    assert content_hash(dict(reversed(value.items()))) == content_hash(value)


def test_canonical_json_is_compact_and_sorted() -> None:
    assert canonical_json({"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'


def generation_of(text: str, cards: tuple[str, ...] = CARDS, route: str = "RuntimeClass") -> str:
    group = make_group(cards, dict.fromkeys(cards, "node-1"))
    manifests = render_group(read(text), group, route, SETTINGS)
    generation: str = manifests[0]["metadata"]["labels"][names.GENERATION_LABEL]
    return generation


@pytest.mark.parametrize(
    "change",
    [
        ("Qwen3-8B", "Qwen3-4B"),
        ("revision: v1", "revision: v2"),
        ("sharedMemorySize: 4Gi", "sharedMemorySize: 5Gi"),
        ("preStopSeconds: 20", "preStopSeconds: 21"),
        ("value: WARN", "value: INFO"),
        ("key: chat}", "key: other}"),
        ("  podTemplate:", "  restart: {token: again}\n  podTemplate:"),
    ],
)
def test_whatever_reaches_a_pod_changes_revision_and_generation(change: tuple[str, str]) -> None:
    assert change[0] in EVERYTHING
    changed = EVERYTHING.replace(*change)
    assert revision_hash(read(changed)) != revision_hash(read(EVERYTHING))
    assert generation_of(changed) != generation_of(EVERYTHING)


@pytest.mark.parametrize(
    "change",
    [
        ("metadata: {name: chat", "metadata: {name: chat, labels: {a: b}"),
        ("port: 443", "port: 80"),
        ("lb: internal", "lb: external"),
        ("spec:\n  model:", "spec:\n  replicas: 3\n  paused: true\n  model:"),
        ("  podTemplate:", "  recovery: {maxRestarts: 9}\n  podTemplate:"),
        ("  podTemplate:", "  restart: {token: ''}\n  podTemplate:"),
        ("sharedMemorySize: 4Gi", "sharedMemorySize: 4Gi\n    imagePullPolicy: Always"),
    ],
)
def test_whatever_does_not_reach_a_pod_moves_none(change: tuple[str, str]) -> None:
    text = EVERYTHING.replace("    imagePullPolicy: Always\n", "") if "imagePullPolicy" in change[1] else EVERYTHING
    base = EVERYTHING
    assert change[0] in text
    assert revision_hash(read(text.replace(*change))) == revision_hash(read(base))
    assert generation_of(text.replace(*change)) == generation_of(base)


def test_another_plan_is_another_generation_of_the_same_revision() -> None:
    assert generation_of(EVERYTHING, CARDS[:2]) != generation_of(EVERYTHING)
    assert generation_of(MINIMAL, route="None") != generation_of(MINIMAL)


def test_predictions_and_explanations_move_no_pod() -> None:
    group = make_group(CARDS, dict.fromkeys(CARDS, "node-1"))
    explained = replace(group.plan, predicted={"pool_tokens": Estimate(1, 1, 1)}, inputs_hash="f" * 64)
    manifests = render_group(read(EVERYTHING), replace(group, plan=explained), "RuntimeClass", SETTINGS)
    assert manifests[0]["metadata"]["labels"][names.GENERATION_LABEL] == generation_of(EVERYTHING)


def test_selectors_use_own_keys_and_match_the_pods() -> None:
    for manifests in cases().values():
        by_kind: dict[str, list[JSON]] = {}
        for manifest in manifests:
            by_kind.setdefault(manifest["kind"], []).append(manifest)
        pods = [item["spec"]["template"]["metadata"]["labels"] for item in by_kind["StatefulSet"]]
        for item in by_kind["StatefulSet"]:
            wanted = item["spec"]["selector"]["matchLabels"]
            assert [wanted.items() <= labels.items() for labels in pods].count(True) == 1
        for service in by_kind["Service"]:
            selector = service["spec"]["selector"]
            assert all(key.startswith("motley.dev/") for key in selector)
            matching = [labels for labels in pods if selector.items() <= labels.items()]
            assert matching
            if service["spec"].get("clusterIP") != "None":
                assert {labels[names.SLOT_LABEL] for labels in matching} == {"0"}


def test_stateful_sets_name_the_headless_service_of_their_group() -> None:
    manifests = cases()["runtime-class-everything.yaml"]
    headless = [item["metadata"]["name"] for item in manifests if item.get("spec", {}).get("clusterIP") == "None"]
    assert {item["spec"]["serviceName"] for item in manifests if item["kind"] == "StatefulSet"} == set(headless)


def test_mounted_plan_is_the_plan() -> None:
    manifests = cases()["none-minimal.yaml"]
    (config_map,) = [item for item in manifests if item["kind"] == "ConfigMap"]
    assert config_map["data"]["plan.json"] == make_plan(("CPU-0", "CPU-1")).to_json()
    assert config_map["immutable"] is True


def test_mount_points_are_not_inside_each_other() -> None:
    for manifests in cases().values():
        for item in manifests:
            if item["kind"] == "StatefulSet":
                mounts = item["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
                paths = [f"{mount['mountPath']}/" for mount in mounts]
                assert not [(a, b) for a in paths for b in paths if a != b and a.startswith(b)]


def test_secrets_stand_nowhere_in_clear() -> None:
    text = yaml.safe_dump_all(cases()["runtime-class-everything.yaml"])
    assert "--api-key=@/run/secrets/motley/chat" in text
    assert "secretKeyRef" in text


def test_ranks_of_a_node_share_a_slot() -> None:
    replica = make_plan().group("u0")
    slots = cut_into_slots(replica, dict(zip(CARDS, ("a", "a", "b"), strict=True)))
    assert [(slot.node, slot.cards) for slot in slots] == [("a", CARDS[:2]), ("b", CARDS[2:])]
    with pytest.raises(ValueError, match="node a: its ranks are not neighbours"):
        cut_into_slots(replica, dict(zip(CARDS, ("a", "b", "a"), strict=True)))


def test_startup_budget_follows_the_model_and_has_a_floor() -> None:
    assert startup_seconds(0) == 600
    assert startup_seconds(500 * 1000**3) == 10_000


@pytest.mark.parametrize(("grace", "pause", "drain"), [(60, 15, 40), (10, 0, 8), (1, 0, 1), (2, 1, 1)])
def test_engine_ends_its_drain_before_it_is_killed(grace: int, pause: int, drain: int) -> None:
    service = read(
        MINIMAL.rstrip()[:-1] + f", drain: {{terminationGracePeriodSeconds: {grace}, preStopSeconds: {pause}}}}}"
    )
    assert drain_seconds(service.spec.drain) == drain
    assert f"--drain-timeout={drain}" in serve_arguments(service, "u0", "cpu", 8000)


def with_arguments(*arguments: str) -> list[str]:
    quoted = ", ".join(f"'{argument}'" for argument in arguments)
    service = read(MINIMAL.rstrip()[:-1] + f", engine: {{extraArgs: [{quoted}]}}}}")
    return [str(fault) for fault in argument_faults(service)]


@pytest.mark.parametrize("flag", MANAGED)
def test_flags_that_the_object_decides_are_refused_as_extras(flag: str) -> None:
    (fault,) = with_arguments("--log-level=debug", f"{flag}=1")
    assert fault == f"spec.engine.extraArgs[1]: {flag} is decided by {MANAGED[flag]}; remove it here"


def test_extra_arguments_must_be_flags() -> None:
    assert with_arguments("--page-size=1", "--disable-radix-cache") == []
    assert with_arguments("--page-size", "1") == [
        "spec.engine.extraArgs[1]: must be one --name=value or --name, found '1'"
    ]
    assert with_arguments("--page-size=") == ["spec.engine.extraArgs[0]: --page-size= has no value"]


def test_revision_needs_a_hub_model() -> None:
    service = read(MINIMAL.replace('"hf://Qwen/Qwen3-8B"', '"file:///models/x", revision: v1'))
    assert [fault.path for fault in argument_faults(service)] == ["spec.model.revision"]


def patched(spec: str) -> JSON:
    text = MINIMAL.rstrip()[:-1] + f", podTemplate: {{spec: {spec}}}}}"
    group = make_group(("CPU-0",), {"CPU-0": "node-1"})
    manifests = render_service(read(text), (group,), "None", SETTINGS)
    (stateful,) = [item for item in manifests if item["kind"] == "StatefulSet"]
    template: JSON = stateful["spec"]["template"]["spec"]
    return template


def test_pod_template_merges_by_name_and_has_the_last_word() -> None:
    spec = patched(
        "{priorityClassName: high, enableServiceLinks: null, volumes: [{name: extra, emptyDir: {}}],"
        " containers: [{name: engine, env: [{name: HOME, value: /data}], resources: {limits: {cpu: 2}}},"
        " {name: sidecar, image: busybox}]}"
    )
    assert spec["priorityClassName"] == "high"
    assert "enableServiceLinks" not in spec
    assert [volume["name"] for volume in spec["volumes"]] == ["plan", "model-cache", "shm", "extra"]
    engine, sidecar = spec["containers"]
    assert {"name": "HOME", "value": "/data"} in engine["env"]
    assert len([entry for entry in engine["env"] if entry["name"] == "HOME"]) == 1
    assert engine["resources"] == {"limits": {"cpu": 2}}
    assert engine["command"] == ["motley"]
    assert sidecar == {"name": "sidecar", "image": "busybox"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{serviceAccountName: admin}", "spec.podTemplate.spec.serviceAccountName: is managed by motley"),
        ("{nodeName: node-1}", "spec.podTemplate.spec.nodeName: is managed by motley"),
        ("{hostNetwork: true}", "spec.podTemplate.spec.hostNetwork: would leave the pod's isolation"),
        ("{hostPID: true}", "hostPID"),
        ("{volumes: [{name: x, hostPath: {path: /}}]}", r"spec.podTemplate.spec.volumes\[0\].hostPath"),
        (
            "{containers: [{name: engine, securityContext: {privileged: true}}]}",
            r"spec.podTemplate.spec.containers\[0\].securityContext.privileged: is refused",
        ),
        (
            "{initContainers: [{name: i, securityContext: {allowPrivilegeEscalation: true}}]}",
            r"initContainers\[0\].securityContext.allowPrivilegeEscalation",
        ),
        (
            "{containers: [{name: engine, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}",
            "NVIDIA_VISIBLE_DEVICES is set by the allocation route",
        ),
        (
            "{containers: [{name: engine, resources: {limits: {nvidia.com/gpu: 1}}}]}",
            "nvidia.com/gpu is asked for by the allocation route",
        ),
        ("{containers: {}}", "containers must be a list of mappings"),
        ("{containers: [engine]}", "containers must be a list of mappings"),
        ("{volumes: x}", "volumes must be a list of mappings"),
    ],
)
def test_pod_template_may_not_break_out(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        patched(spec)


def test_managed_labels_are_refused() -> None:
    text = MINIMAL.rstrip()[:-1] + ", podTemplate: {metadata: {labels: {motley.dev/slot: '7'}}}}"
    group = make_group(("CPU-0",), {"CPU-0": "node-1"})
    with pytest.raises(InputError, match=r"spec.podTemplate.metadata.labels: motley.dev/slot is managed"):
        render_service(read(text), (group,), "None", SETTINGS)


@given(base=st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_merging_nothing_changes_nothing(base: JSON) -> None:
    assert merge(base, {}) == base
