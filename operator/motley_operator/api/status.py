"""``status`` of an InferenceService: what the operator observed, decided and is waiting for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from motley_operator.api.base import (
    ATOMIC,
    GPUUUID,
    Count,
    Label,
    LongText,
    Milliseconds,
    Schema,
    ShortText,
    Subdomain,
    Text,
    Timestamp,
    unique_by,
)
from motley_operator.api.meta import Address, Condition
from motley_operator.api.spec_topology import GroupName, Role

Hash = Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")]
Bytes = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


class Predicted(Schema):
    """What the planner expects of the plan."""

    tokens_per_second: Count | None = Field(None, description="Output tokens per second.")
    ttft_milliseconds: Milliseconds | None = Field(None, description="Time to the first token.")
    tpot_milliseconds: Milliseconds | None = Field(None, description="Time per further token.")


class Candidate(Schema):
    """A better plan that waits for a request to apply it."""

    hash: Hash = Field(description="Its hash.")
    gain_percent: Annotated[int, Field(ge=0, le=100_000)] = Field(description="Predicted gain.")
    reason: Text = Field("", description="Why it is better.")


class RankStatus(Schema):
    """One rank of a planned group."""

    name: Label = Field(description="Name of the rank.")
    slot: Annotated[int, Field(ge=0, le=1024)] = Field(description="Pod of the group that runs it.")
    pod: Subdomain | None = Field(None, description="Name of that pod.")
    node: Subdomain | None = Field(None, description="Node of the card.")
    gpu_uuid: GPUUUID | None = Field(None, description="The card.")
    product: Label | None = Field(None, description="Product slug of the card.")
    share_units: Annotated[int, Field(ge=0, le=4096)] = Field(description="Relative share.")
    state: Literal["Pending", "Starting", "Ready", "Failed", "Unknown"] = Field("Unknown", description="Live state.")


class GroupStatus(Schema):
    """One planned group."""

    name: GroupName = Field(description="Name of the group.")
    role: Role = Field(description="What it does.")
    generation: Hash = Field(description="Hash of revision and plan that its pods carry.")
    ready: bool = Field(False, description="Every rank serves.")
    restarts: Count = Field(0, description="Group restarts since the last reset.")
    next_restart_time: Timestamp | None = Field(None, description="When the next restart is due.")
    ranks: Annotated[tuple[RankStatus, ...], Field(max_length=128)] = Field(
        (), description="Its ranks.", json_schema_extra=unique_by("name")
    )


class PlanStatus(Schema):
    """The plan in force."""

    hash: Hash = Field(description="Hash over its decisions.")
    revision: Hash = Field("", description="Hash of the user's intent it serves.")
    created_at: Timestamp | None = Field(None, description="When it was made.")
    allocation: ShortText = Field("", description="Route by which pods get their cards.")
    summary: ShortText = Field("", description="The layout in a few characters.")
    predicted: Predicted | None = Field(None, description="What is expected of it.")
    candidate: Candidate | None = Field(None, description="A better plan, not applied.")
    truncated: bool = Field(False, description="Ranks beyond 128 are only in the plan's ConfigMap.")
    groups: Annotated[tuple[GroupStatus, ...], Field(max_length=128)] = Field(
        (), description="Planned groups.", json_schema_extra=unique_by("name")
    )


class RoleStatus(Schema):
    """Groups of one role."""

    name: Role = Field(description="The role.")
    desired: Count = Field(0, description="Groups wanted.")
    ready: Count = Field(0, description="Groups ready.")
    updated: Count = Field(0, description="Groups of the newest revision.")


class ModelStatus(Schema):
    """Progress of the weights."""

    bytes_total: Bytes = Field(0, description="Bytes of the checkpoint.")
    bytes_ready: Bytes = Field(0, description="Bytes present.")
    digest: ShortText | None = Field(None, description="Digest of the checkpoint.")


class LastRestart(Schema):
    """The latest group restart."""

    time: Timestamp = Field(description="When.")
    group: GroupName = Field(description="Which group.")
    reason: Text = Field("", description="Why.")
    exit_code: Annotated[int, Field(ge=-255, le=255)] | None = Field(None, description="Exit code of the rank.")


class UnhealthyGPU(Schema):
    """A planned or labelled card that cannot be used."""

    uuid: GPUUUID = Field(description="The card.")
    node: Subdomain = Field(description="Its node.")
    reason: Text = Field(description="What is wrong.")


class InferenceServiceStatus(Schema):
    """What the operator observed."""

    observed_generation: Annotated[int, Field(ge=0)] | None = Field(None, description="Spec this status speaks of.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="Conditions.", json_schema_extra=unique_by("type")
    )
    phase: ShortText | None = Field(None, description="Derived from the conditions, for display only.")
    replicas: Count = Field(0, description="Replicas that exist.")
    desired_replicas: Count | None = Field(None, description="The built-in scaler's choice.")
    ready_replicas: Count = Field(0, description="Replicas that serve.")
    selector: LongText | None = Field(None, description="Label selector of the leaders, for autoscalers.")
    url: ShortText | None = Field(None, description="Where clients connect.")
    addresses: Annotated[tuple[Address, ...], Field(max_length=16)] = Field(
        (), description="All addresses.", json_schema_extra=ATOMIC
    )
    gpu_summary: ShortText | None = Field(None, description="Cards ready and planned, e.g. 3/3.")
    plan: PlanStatus | None = Field(None, description="The plan in force.")
    roles: Annotated[tuple[RoleStatus, ...], Field(max_length=3)] = Field(
        (), description="Groups by role.", json_schema_extra=unique_by("name")
    )
    model: ModelStatus | None = Field(None, description="Progress of the weights.")
    last_restart: LastRestart | None = Field(None, description="The latest group restart.")
    unhealthy_gpus: Annotated[tuple[UnhealthyGPU, ...], Field(max_length=128)] = Field(
        (), description="Cards that cannot be used.", json_schema_extra=unique_by("uuid")
    )
