"""``spec.engine`` and ``spec.placement``: the container that runs, and where it may run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from motley_operator.api.base import (
    ATOMIC,
    GPUUUID,
    UNIQUE_VALUES,
    Label,
    LongText,
    ObjectReference,
    Quantity,
    Schema,
    SecretKeyRef,
    Subdomain,
    Text,
    unique_by,
)

Resources = Annotated[dict[str, Quantity], Field(max_length=16)]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelMap = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
AnnotationMap = Annotated[dict[str, LongText], Field(max_length=32)]


class EnvSource(Schema):
    """Where the value of a variable comes from."""

    secret_key_ref: SecretKeyRef | None = Field(None, description="Key of a Secret.")
    config_map_key_ref: SecretKeyRef | None = Field(None, description="Key of a ConfigMap.")


class EnvVar(Schema):
    """One environment variable of the engine container."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")] = Field(
        description="Name of the variable."
    )
    value: LongText | None = Field(None, description="Plain value.")
    value_from: EnvSource | None = Field(None, description="Reference instead of a plain value.")


class ResourcesSpec(Schema):
    """CPU, memory and other resources, as in a container."""

    requests: Resources = Field({}, description="What the scheduler reserves.")
    limits: Resources = Field({}, description="What the container may not exceed.")


class EngineSpec(Schema):
    """The engine container."""

    image: Text | None = Field(None, description="Image; default: the operator's own, recorded at first use.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When the image is pulled."
    )
    image_pull_secrets: Annotated[tuple[ObjectReference, ...], Field(max_length=8)] = Field(
        (), description="Secrets for the registry.", json_schema_extra=unique_by("name")
    )
    extra_args: Annotated[tuple[Text, ...], Field(max_length=64)] = Field(
        (), description="More flags of motley serve, one --name=value each.", json_schema_extra=ATOMIC
    )
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = Field(
        (), description="Environment of the container.", json_schema_extra=unique_by("name")
    )
    resources: ResourcesSpec = Field(ResourcesSpec(), description="CPU and memory of each pod.")
    shared_memory_size: Quantity = Field("8Gi", description="Size of /dev/shm; 0 leaves the runtime's own.")


class Toleration(Schema):
    """A taint that pods accept."""

    key: LabelKey | None = Field(None, description="Taint key; absent with operator Exists means every taint.")
    operator: Literal["Equal", "Exists"] = Field("Equal", description="How key and value are compared.")
    value: Annotated[str, Field(max_length=63)] | None = Field(None, description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Taint effect; absent means each."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=604_800)] | None = Field(
        None, description="How long NoExecute is tolerated."
    )


class GPUSelector(Schema):
    """Which cards may be used. Empty fields select everything."""

    products: Annotated[tuple[Label, ...], Field(max_length=32)] = Field(
        (), description="Product slugs, e.g. rtx-3090.", json_schema_extra=UNIQUE_VALUES
    )
    min_memory: Quantity | None = Field(None, description="Least total memory of a card.")
    min_compute_capability: (
        Annotated[
            str,
            Field(max_length=8, pattern=r"^[0-9]+\.[0-9]+$", json_schema_extra={"hint": "two numbers such as 8.6"}),
        ]
        | None
    ) = Field(None, description="Least compute capability, e.g. 8.6.")
    uuids: Annotated[tuple[GPUUUID, ...], Field(max_length=128)] = Field(
        (), description="Only these cards.", json_schema_extra=UNIQUE_VALUES
    )
    exclude_uuids: Annotated[tuple[GPUUUID, ...], Field(max_length=128)] = Field(
        (), description="Never these cards.", json_schema_extra=UNIQUE_VALUES
    )
    exclude_nodes: Annotated[tuple[Subdomain, ...], Field(max_length=128)] = Field(
        (), description="Never the cards of these nodes.", json_schema_extra=UNIQUE_VALUES
    )


class PlacementSpec(Schema):
    """Nodes, cards and the route by which pods get their cards."""

    node_selector: LabelMap = Field({}, description="Labels that nodes must carry.")
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = Field(
        (), description="Taints that pods accept.", json_schema_extra=ATOMIC
    )
    topology_key: LabelKey | None = Field(None, description="Node label that keeps the ranks of a group together.")
    allocation: Literal["Auto", "DRA", "RuntimeClass", "HAMi", "WholeNode", "None"] = Field(
        "Auto", description="How pods get exactly their cards; None runs the CPU engine."
    )
    runtime_class_name: Subdomain | None = Field(None, description="RuntimeClass of that route; default: nvidia.")
    gpu_selector: GPUSelector | None = Field(None, description="Which cards may be used.")
    exclusive: Literal["Required", "Preferred"] = Field(
        "Required", description="Whether cards may be shared with other services."
    )
