"""Building blocks of the API types: the strict base model, camelCase names and the constrained scalars.

Every string and list carries a maximum: the API server refuses a CRD whose CEL rules could run over unbounded data.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

ACRONYMS = {
    "gpu": "GPU",
    "gpus": "GPUs",
    "uuid": "UUID",
    "uuids": "UUIDs",
    "id": "ID",
    "mib": "MiB",
    "mbps": "MBps",
    "mhz": "MHz",
    "gflops": "GFLOPS",
    "xid": "XID",
}

UUID_PATTERN = r"^(GPU|MIG)-[0-9a-f-]{36}$"
LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"


def camel_case(name: str) -> str:
    """``gpu_uuid`` -> ``gpuUUID``: acronyms stay upper case unless they open the name."""
    first, *rest = name.split("_")
    return first + "".join(ACRONYMS.get(word, word.capitalize()) for word in rest)


class Schema(BaseModel):
    """Base of every API type: unknown fields and silent conversions are errors, objects are immutable."""

    model_config = ConfigDict(
        alias_generator=camel_case,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    def to_object(self) -> dict[str, Any]:
        """JSON-ready object with camelCase keys, without the fields that nobody set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


def _number_to_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def parse_quantity(text: str) -> int:
    """Value of a Kubernetes quantity in its base unit (bytes, cores), rounded up.

    Raises ValueError when ``text`` is no quantity.
    """
    scales = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
    scales |= {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)}
    number = text.rstrip("mkKMGTPEi")
    suffix = text[len(number) :]
    whole, _, fraction = number.partition(".")
    if not whole.isdigit() or (fraction and not fraction.isdigit()) or suffix not in {*scales, "m"}:
        raise ValueError(f"{text!r} is not a quantity such as 8Gi, 500M or 2")
    numerator = int(whole + fraction) * scales.get(suffix, 1)
    denominator = int("1" + "0" * len(fraction)) * (1000 if suffix == "m" else 1)
    return -(-numerator // denominator)


def _checked_quantity(text: str) -> str:
    parse_quantity(text)
    return text


Quantity = Annotated[
    str,
    BeforeValidator(_number_to_text),
    AfterValidator(_checked_quantity),
    Field(
        max_length=32,
        pattern=QUANTITY_PATTERN,
        json_schema_extra={"x-kubernetes-int-or-string": True, "hint": "a quantity such as 8Gi, 500M or 2"},
    ),
]
Label = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern=LABEL_PATTERN,
        json_schema_extra={"hint": "lower-case letters, digits and '-', beginning and ending with a letter or digit"},
    ),
]
Subdomain = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=SUBDOMAIN_PATTERN,
        json_schema_extra={
            "hint": "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
        },
    ),
]
GPUUUID = Annotated[
    str,
    Field(
        max_length=40,
        pattern=UUID_PATTERN,
        json_schema_extra={"hint": "a full UUID as nvidia-smi -L prints it, GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"},
    ),
]
ShortText = Annotated[str, Field(max_length=253)]
Text = Annotated[str, Field(max_length=1024)]
LongText = Annotated[str, Field(max_length=4096)]
Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
Seconds = Annotated[int, Field(ge=0, le=604_800)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]


def unique_by(*keys: str) -> dict[str, Any]:
    """Schema extras of a list whose items are told apart by ``keys``."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


UNIQUE_VALUES: dict[str, Any] = {"x-kubernetes-list-type": "set"}
ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}


class SecretKeyRef(Schema):
    """One key of a Secret in the object's namespace."""

    name: Subdomain = Field(description="Name of the Secret.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        description="Key inside it."
    )


class ObjectReference(Schema):
    """A named object in the same namespace."""

    name: Subdomain = Field(description="Name of the object.")
