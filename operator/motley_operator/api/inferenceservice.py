"""``InferenceService``: the one object a user writes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from motley_operator.api.base import Schema
from motley_operator.api.meta import ObjectMeta
from motley_operator.api.spec_engine import AnnotationMap, EngineSpec, LabelMap, PlacementSpec
from motley_operator.api.spec_model import ModelSpec
from motley_operator.api.spec_networking import MonitoringSpec, NetworkingSpec
from motley_operator.api.spec_topology import DrainSpec, RecoverySpec, RolloutSpec, ScalingSpec, TopologySpec
from motley_operator.api.status import InferenceServiceStatus

GROUP = "motley.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "InferenceService"


class PodTemplateMetadata(Schema):
    """Labels and annotations added to the pods."""

    labels: LabelMap = Field({}, description="Labels; motley.dev/ and app.kubernetes.io/ ones are managed.")
    annotations: AnnotationMap = Field({}, description="Annotations.")


class PodTemplate(Schema):
    """Strategic-merge patch over the rendered pod template."""

    metadata: PodTemplateMetadata = Field(PodTemplateMetadata(), description="Labels and annotations.")
    spec: dict[str, Any] = Field(
        {},
        description="Fields of a pod spec, merged last; the engine container is named engine.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )


class RestartSpec(Schema):
    """A restart on request."""

    token: Annotated[str, Field(max_length=128)] = Field("", description="A new value restarts every group.")


class InferenceServiceSpec(Schema):
    """What the user wants."""

    model: ModelSpec = Field(description="The model.")
    engine: EngineSpec = Field(EngineSpec(), description="The engine container.")
    placement: PlacementSpec = Field(PlacementSpec(), description="Nodes and cards.")
    topology: TopologySpec = Field(TopologySpec(), description="How the model is cut over the cards.")
    replicas: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="Independent copies of the service.")
    scaling: ScalingSpec | None = Field(None, description="Built-in scaler; excludes external ones.")
    rollout: RolloutSpec = Field(RolloutSpec(), description="How a change is rolled out.")
    recovery: RecoverySpec = Field(RecoverySpec(), description="What happens when a rank dies.")
    drain: DrainSpec = Field(DrainSpec(), description="How pods leave.")
    networking: NetworkingSpec = Field(NetworkingSpec(), description="How clients reach the service.")
    monitoring: MonitoringSpec = Field(MonitoringSpec(), description="Scraping.")
    pod_template: PodTemplate | None = Field(None, description="Last word on the pods, except on managed fields.")
    paused: bool = Field(False, description="Observe and report only.")
    restart: RestartSpec = Field(RestartSpec(), description="Restart on request.")


class InferenceService(Schema):
    """Serves one model on the cards of the cluster, however unlike they are."""

    api_version: Literal["motley.dev/v1alpha1"]
    kind: Literal["InferenceService"]
    metadata: ObjectMeta
    spec: InferenceServiceSpec = Field(description="What the user wants.")
    status: InferenceServiceStatus | None = Field(None, description="What the operator observed.")
