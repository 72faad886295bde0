"""``spec.model``: what is served and where its weights live."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from motley_operator.api.base import Label, Quantity, Schema, SecretKeyRef, ShortText, Subdomain, unique_by

URI_PATTERN = r"^(hf|oci|pvc|s3|file|package)://.+$"
URI = Annotated[
    str,
    Field(
        max_length=1024,
        pattern=URI_PATTERN,
        json_schema_extra={"hint": "hf://, oci://, pvc://, s3://, file:// or package:// followed by the model's place"},
    ),
]
AbsolutePath = Annotated[
    str, Field(max_length=1024, pattern=r"^/.*$", json_schema_extra={"hint": "an absolute path, beginning with /"})
]
CACHE_DEFAULT_SIZE = "256Gi"


class CacheSpec(Schema):
    """Where downloaded weights are kept."""

    type: Literal["EmptyDir", "PVC", "HostPath", "ImageVolume"] = Field(
        "EmptyDir", description="EmptyDir is lost with the pod; PVC, HostPath and ImageVolume outlive it."
    )
    claim_name: Subdomain | None = Field(None, description="PersistentVolumeClaim to mount; needed by type PVC.")
    path: AbsolutePath | None = Field(None, description="Directory on the node; needed by type HostPath.")
    size_limit: Quantity | None = Field(None, description="Upper bound of an EmptyDir cache.")


class AdapterSpec(Schema):
    """A LoRA adapter served beside the base model."""

    name: Label = Field(description="Model name that selects the adapter in requests.")
    uri: URI = Field(description="Where the adapter lives.")


class ModelSpec(Schema):
    """The model and how its weights are read."""

    uri: URI = Field(description="Model: hf://org/name, file://, pvc://, oci://, s3:// or package://PACKAGE/FILE.")
    revision: ShortText | None = Field(None, description="Branch, tag or commit of a hub model.")
    served_name: ShortText | None = Field(None, description="Name in /v1/models; default: derived from the URI.")
    token_secret_ref: SecretKeyRef | None = Field(None, description="Secret with the hub token.")
    dtype: Literal["Auto", "Float32", "BFloat16", "Float16"] = Field(
        "Auto", description="Type of weights and activations."
    )
    quantization: Literal["Auto", "None"] = Field("Auto", description="Auto takes what the checkpoint holds.")
    max_model_length: Annotated[int, Field(ge=1, le=16_777_216)] | None = Field(
        None, description="Longest sequence in tokens; default: the model's own limit."
    )
    cache: CacheSpec = Field(CacheSpec(), description="Where downloaded weights are kept.")
    adapters: Annotated[tuple[AdapterSpec, ...], Field(max_length=16)] = Field(
        (), description="LoRA adapters.", json_schema_extra=unique_by("name")
    )
