"""Object metadata and conditions, as far as motley reads or writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from motley_operator.api.base import Schema, ShortText, Timestamp, camel_case


class ObjectMeta(Schema):
    """Metadata of an object. Fields that only the API server uses are ignored."""

    model_config = ConfigDict(alias_generator=camel_case, populate_by_name=True, extra="ignore", frozen=True)

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = Field({})
    annotations: dict[str, str] = Field({})


class Condition(Schema):
    """One condition in the form that kstatus and kubectl read."""

    type: Annotated[str, Field(min_length=1, max_length=64)] = Field(description="What is stated.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    observed_generation: Annotated[int, Field(ge=0)] | None = Field(None, description="Spec it speaks of.")
    last_transition_time: Timestamp = Field(description="When the status last changed.")
    reason: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z]+$")] = Field(description="Code of the cause.")
    message: Annotated[str, Field(max_length=4096)] = Field("", description="The cause in a sentence.")


class Address(Schema):
    """An address of the service."""

    url: ShortText = Field(description="URL.")
