"""``spec.topology``, ``scaling``, ``rollout``, ``recovery`` and ``drain``: how ranks are laid out and kept alive."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from motley_operator.api.base import GPUUUID, LABEL_PATTERN, Label, Milliseconds, Schema, Seconds, Subdomain, unique_by

Role = Literal["Unified", "Prefill", "Decode"]
GroupName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=20,
        pattern=LABEL_PATTERN,
        json_schema_extra={"hint": "lower-case letters, digits and '-', beginning and ending with a letter or digit"},
    ),
]


class SLOSpec(Schema):
    """Latency targets that the planner treats as constraints."""

    ttft_milliseconds: Milliseconds | None = Field(None, description="Time to the first token.")
    tpot_milliseconds: Milliseconds | None = Field(None, description="Time per further token.")


class RankSpec(Schema):
    """One rank of a hand-written group."""

    name: Label = Field(description="Name of the rank, unique in its group.")
    node: Subdomain | None = Field(None, description="Node of the card; default: wherever the UUID is.")
    gpu_uuid: GPUUUID | None = Field(None, description="Card of the rank; absent exactly with allocation None.")
    share_units: Annotated[int, Field(ge=1, le=4096)] = Field(
        description="Relative share of every unit-split dimension."
    )


class GroupSpec(Schema):
    """One engine instance of a hand-written topology."""

    name: GroupName = Field(description="Name of the group.")
    role: Role = Field("Unified", description="What the group does.")
    ranks: Annotated[tuple[RankSpec, ...], Field(min_length=1, max_length=32)] = Field(
        description="Its ranks, rank 0 first.", json_schema_extra=unique_by("name")
    )


class TopologySpec(Schema):
    """How the model is cut over the cards."""

    mode: Literal["Auto", "Manual"] = Field("Auto", description="Auto plans; Manual takes groups as written.")
    objective: Literal["Throughput", "Latency", "Cost"] = Field("Throughput", description="What the planner improves.")
    max_gpus: Annotated[int, Field(ge=1, le=1024)] | None = Field(None, description="Most cards a replica may use.")
    slo: SLOSpec | None = Field(None, description="Latency targets.")
    allow_pipeline: Literal["Allowed", "Forbidden"] = Field("Allowed", description="Whether layers may be staged.")
    rebalance: Literal["Never", "OnFailure", "OnRequest"] = Field(
        "OnFailure", description="When a valid plan may be replaced."
    )
    groups: Annotated[tuple[GroupSpec, ...], Field(max_length=16)] = Field(
        (), description="The layout of Manual mode.", json_schema_extra=unique_by("name")
    )


class ScalingSpec(Schema):
    """Bounds of the built-in scaler."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="Least replicas.")
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="Most replicas.")
    metric: Literal["QueueDepth", "RunningRequests", "TimeToFirstToken"] = Field(
        "QueueDepth", description="What the scaler watches."
    )


class CanarySpec(Schema):
    """Traffic split between two revisions."""

    weight: Annotated[int, Field(ge=0, le=100)] = Field(description="Percent of requests for the new revision.")


class RolloutSpec(Schema):
    """How a change reaches the running groups."""

    strategy: Literal["Auto", "Surge", "Replace"] = Field(
        "Auto", description="Surge needs spare cards; Auto takes it when there are some."
    )
    max_unavailable_groups: Annotated[int, Field(ge=0, le=100)] = Field(1, description="Groups down at a time.")
    max_surge_groups: Annotated[int, Field(ge=0, le=100)] = Field(1, description="Extra groups at a time.")
    progress_deadline_seconds: Annotated[int, Field(ge=60, le=86_400)] = Field(
        1800, description="A rollout without progress for this long is stalled."
    )
    allow_downtime: bool = Field(False, description="Surge may fall back to Replace.")
    canary: CanarySpec | None = Field(None, description="Traffic split; needs networking.gateway.")


class RecoverySpec(Schema):
    """What happens when a rank dies."""

    restart_policy: Literal["RecreateGroup", "None"] = Field(
        "RecreateGroup", description="Restart the whole group, or leave it down."
    )
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = Field(5, description="Restarts before the group is given up.")
    backoff_base_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        10, description="Wait before the first restart; doubles with each."
    )
    backoff_max_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(600, description="Longest wait.")
    reset_after_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        600, description="Seconds of readiness after which the count starts again."
    )


class DrainSpec(Schema):
    """How a pod is taken out of service."""

    termination_grace_period_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        60, description="Seconds from the stop signal to the kill."
    )
    pre_stop_seconds: Seconds = Field(15, description="Seconds of it during which endpoints learn that the pod leaves.")
