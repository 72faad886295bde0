"""The CustomResourceDefinitions as objects: names, columns, subresources around the generated schemas."""

from __future__ import annotations

from typing import Any

from motley_operator.api import gpunode, inferenceservice
from motley_operator.api.inferenceservice import GROUP, VERSION
from motley_operator.api.rules import RULES
from motley_operator.api.schema import structural_schema

JSON = dict[str, Any]


def _column(name: str, path: str, kind: str = "string", **extra: Any) -> JSON:
    return {"name": name, "type": kind, "jsonPath": path, **extra}


def _definition(kind: str, plural: str, short: list[str], scope: str, version: JSON) -> JSON:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
            },
            "scope": scope,
            "versions": [{"name": VERSION, "served": True, "storage": True, **version}],
        },
    }


def inference_service_crd() -> JSON:
    """CRD of InferenceService."""
    schema = structural_schema(inferenceservice.InferenceService, RULES)
    ready = ".status.conditions[?(@.type=='Ready')]"
    columns = [
        _column("Ready", f"{ready}.status"),
        _column("Reason", f"{ready}.reason"),
        _column("Topology", ".status.plan.summary"),
        _column("GPUs", ".status.gpuSummary"),
        _column("URL", ".status.url"),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
    }
    return _definition(inferenceservice.KIND, "inferenceservices", ["msvc"], "Namespaced", version)


def gpu_node_crd() -> JSON:
    """CRD of GPUNode."""
    columns = [
        _column("Driver", ".status.driverVersion"),
        _column("GPUs", ".status.gpus[*].productSlug"),
        _column("Observed", ".status.observedAt", "date"),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    version = {
        "schema": {"openAPIV3Schema": structural_schema(gpunode.GPUNode)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return _definition(gpunode.KIND, "gpunodes", ["gpun"], "Cluster", version)


def definitions() -> dict[str, JSON]:
    """Every CRD by the name of its file in ``crds/``."""
    found = (inference_service_crd(), gpu_node_crd())
    return {f"{GROUP}_{crd['spec']['names']['plural']}.yaml": crd for crd in found}
