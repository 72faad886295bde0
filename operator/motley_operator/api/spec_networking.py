"""``spec.networking`` and ``spec.monitoring``: how clients and scrapers reach the service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from motley_operator.api.base import ATOMIC, UNIQUE_VALUES, Label, Schema, SecretKeyRef, Subdomain
from motley_operator.api.spec_engine import AnnotationMap

Hostname = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        json_schema_extra={"hint": "a DNS name such as chat.example.com"},
    ),
]
Port = Annotated[int, Field(ge=1, le=65535)]


class ServiceSpec(Schema):
    """The public Service."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="Kind of Service.")
    port: Port = Field(8080, description="Port that clients use.")
    annotations: AnnotationMap = Field({}, description="Annotations of the Service.")


class IngressSpec(Schema):
    """An Ingress in front of the Service."""

    class_name: Subdomain | None = Field(None, description="IngressClass.")
    host: Hostname = Field(description="Host name.")
    tls_secret_name: Subdomain | None = Field(None, description="Secret with the certificate.")


class ParentRef(Schema):
    """A Gateway that routes to the service."""

    name: Subdomain = Field(description="Name of the Gateway.")
    namespace: Label | None = Field(None, description="Its namespace; default: the object's own.")
    section_name: Subdomain | None = Field(None, description="Listener of the Gateway.")


class GatewaySpec(Schema):
    """An HTTPRoute in front of the Service."""

    parent_refs: Annotated[tuple[ParentRef, ...], Field(min_length=1, max_length=8)] = Field(
        description="Gateways that accept the route.", json_schema_extra=ATOMIC
    )
    hostnames: Annotated[tuple[Hostname, ...], Field(max_length=16)] = Field(
        (), description="Host names of the route.", json_schema_extra=UNIQUE_VALUES
    )


class TLSSpec(Schema):
    """Encryption between clients and the engine."""

    mode: Literal["Disabled", "Secret"] = Field("Disabled", description="Secret serves HTTPS from a certificate.")
    secret_name: Subdomain | None = Field(None, description="Secret with tls.crt and tls.key.")


class NetworkingSpec(Schema):
    """How clients reach the service and ranks reach each other."""

    service: ServiceSpec = Field(ServiceSpec(), description="The public Service.")
    ingress: IngressSpec | None = Field(None, description="An Ingress.")
    gateway: GatewaySpec | None = Field(None, description="An HTTPRoute.")
    tls: TLSSpec = Field(TLSSpec(), description="Encryption to the engine.")
    api_key_secret_ref: SecretKeyRef | None = Field(None, description="Secret with the key that clients must send.")
    fabric: Literal["Auto", "TCP", "RDMA"] = Field("Auto", description="Transport between nodes.")
    interface_name: Annotated[str, Field(max_length=15, pattern=r"^[-._a-zA-Z0-9]+$")] | None = Field(
        None, description="Network interface between nodes; default: from the inventory."
    )


class MonitoringSpec(Schema):
    """Scraping of the engine's metrics."""

    pod_monitor: Literal["Enabled", "Disabled", "Auto"] = Field(
        "Auto", description="Auto creates a PodMonitor where its CRD is served."
    )
