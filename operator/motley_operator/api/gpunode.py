"""``GPUNode``: the cards of one node, as the node agent measured them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from motley_operator.api.base import (
    GPUUUID,
    UNIQUE_VALUES,
    Label,
    Schema,
    ShortText,
    Text,
    Timestamp,
    unique_by,
)
from motley_operator.api.meta import Condition, ObjectMeta

KIND = "GPUNode"
MiB = Annotated[int, Field(ge=0, le=16_777_216)]
Endpoint = Annotated[
    str,
    Field(
        max_length=40,
        pattern=r"^((GPU|MIG)-[0-9a-f-]{36}|host)$",
        json_schema_extra={"hint": "a GPU UUID or the word host"},
    ),
]


class MemoryStatus(Schema):
    """Memory of a card."""

    total: MiB = Field(description="Total.")
    free: MiB = Field(description="Free, to 256 MiB; frozen while motley holds the card.")


class PCIeStatus(Schema):
    """The card's bus."""

    generation: Annotated[int, Field(ge=1, le=16)] = Field(description="Negotiated generation.")
    lanes: Annotated[int, Field(ge=1, le=32)] = Field(description="Negotiated lanes.")
    max_lanes: Annotated[int, Field(ge=1, le=32)] = Field(description="Lanes the card could use.")


class MIGInstance(Schema):
    """A slice of a card."""

    uuid: GPUUUID = Field(description="UUID of the slice.")
    profile: ShortText = Field(description="Profile, e.g. 1g.10gb.")
    memory_mib: MiB = Field(description="Its memory.")


class MIGStatus(Schema):
    """Partitioning of the card."""

    mode: Literal["Disabled", "Enabled", "NotSupported"] = Field(description="Mode.")
    instances: Annotated[tuple[MIGInstance, ...], Field(max_length=8)] = Field(
        (), description="Slices.", json_schema_extra=unique_by("uuid")
    )


class GPUStatus(Schema):
    """One card."""

    uuid: GPUUUID = Field(description="UUID.")
    index: Annotated[int, Field(ge=0, le=255)] = Field(description="NVML index.")
    pci_bus_id: Annotated[str, Field(max_length=32)] = Field(description="PCI bus id.")
    numa_node: Annotated[int, Field(ge=-1, le=1024)] = Field(-1, description="NUMA node; -1 where unknown.")
    product: ShortText = Field(description="Name as NVML gives it.")
    product_slug: Label = Field(description="Row of the catalogue.")
    memory_mib: MemoryStatus = Field(description="Memory.")
    compute_capability: Annotated[str, Field(max_length=8, pattern=r"^[0-9]+\.[0-9]+$")] = Field(
        description="Compute capability, e.g. 8.6."
    )
    sm_count: Annotated[int, Field(ge=1, le=4096)] = Field(description="Streaming multiprocessors.")
    memory_bandwidth_mbps: Annotated[int, Field(ge=0, le=1_000_000_000)] = Field(0, description="Memory bandwidth.")
    memory_clock_mhz: Annotated[int, Field(ge=0, le=1_000_000)] = Field(0, description="Memory clock.")
    sm_clock_mhz: Annotated[int, Field(ge=0, le=1_000_000)] = Field(0, description="SM clock.")
    power_limit_watts: Annotated[int, Field(ge=0, le=100_000)] = Field(0, description="Power limit.")
    pcie: PCIeStatus | None = Field(None, description="Bus.")
    ecc: Literal["Enabled", "Disabled", "NotSupported"] = Field("NotSupported", description="Error correction.")
    health: Literal["Healthy", "Degraded", "Unhealthy", "Unknown"] = Field(description="Health.")
    health_reasons: Annotated[tuple[Text, ...], Field(max_length=8)] = Field(
        (), description="Why it is not healthy.", json_schema_extra=UNIQUE_VALUES
    )
    last_xid: Annotated[int, Field(ge=0, le=65535)] | None = Field(None, description="Latest XID.")
    mig: MIGStatus | None = Field(None, description="Partitioning.")


# fields named "from" are keywords in Python, hence the aliases
class LinkStatus(Schema):
    """The way between two cards, or between a card and the host."""

    source: Endpoint = Field(alias="from", description="UUID or host.")
    target: Endpoint = Field(alias="to", description="UUID or host.")
    type: Literal["NVLink", "PIX", "PXB", "PHB", "NODE", "SYS"] = Field(description="Kind of link.")
    p2p: Literal["Supported", "Unsupported"] = Field("Unsupported", description="Direct access.")
    measured_mbps: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(None, description="Bandwidth.")
    latency_nanoseconds: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(None, description="Latency.")


class CalibrationStatus(Schema):
    """One measured kernel."""

    uuid: GPUUUID = Field(description="The card.")
    kernel: ShortText = Field(description="Kernel.")
    phase: Literal["Prefill", "Decode"] = Field(description="Phase.")
    format: ShortText = Field("", description="Number format.")
    achieved_mbps: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(None, description="Bandwidth.")
    achieved_gflops: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = Field(None, description="Compute.")
    spread_permille: Annotated[int, Field(ge=0, le=1000)] = Field(0, description="Spread of the runs.")
    measured_at: Timestamp = Field(description="When.")
    driver_version: ShortText = Field("", description="With which driver.")


class GPUNodeStatus(Schema):
    """What the node agent saw."""

    observed_at: Timestamp | None = Field(None, description="Latest look.")
    agent_version: ShortText | None = Field(None, description="Version of the agent.")
    driver_version: ShortText | None = Field(None, description="Version of the driver.")
    cuda_version: ShortText | None = Field(None, description="CUDA version of the driver.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=8)] = Field(
        (), description="Ready and Calibrated.", json_schema_extra=unique_by("type")
    )
    gpus: Annotated[tuple[GPUStatus, ...], Field(max_length=32)] = Field(
        (), description="Cards.", json_schema_extra=unique_by("uuid")
    )
    links: Annotated[tuple[LinkStatus, ...], Field(max_length=1024)] = Field(
        (), description="Links.", json_schema_extra=unique_by("from", "to")
    )
    calibration: Annotated[tuple[CalibrationStatus, ...], Field(max_length=1024)] = Field(
        (), description="Measured kernels.", json_schema_extra=unique_by("uuid", "kernel", "phase")
    )


class GPUNodeSpec(Schema):
    """Nothing to ask of a node yet."""


class GPUNode(Schema):
    """The cards of one node; written by the node agent only."""

    api_version: Literal["motley.dev/v1alpha1"]
    kind: Literal["GPUNode"]
    metadata: ObjectMeta
    spec: GPUNodeSpec = Field(GPUNodeSpec(), description="Empty.")
    status: GPUNodeStatus | None = Field(None, description="What the agent saw.")
