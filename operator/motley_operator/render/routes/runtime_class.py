"""Route ``RuntimeClass``: the NVIDIA runtime injects the cards that an environment variable names, on a given node."""

from __future__ import annotations

from motley_operator.api.inferenceservice import GROUP
from motley_operator.render.routes.grant import Grant, SlotRequest

DEFAULT_RUNTIME_CLASS = "nvidia"
DEDICATED = f"{GROUP}/dedicated"


def grant(request: SlotRequest) -> Grant:
    """Runtime class, required node and the toleration of dedicated nodes."""
    required = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [request.node]}]},
        ]
    }
    return Grant(
        visible_devices=",".join(request.cards),
        device="cuda",
        pod_spec={
            "runtimeClassName": request.runtime_class_name or DEFAULT_RUNTIME_CLASS,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        },
        tolerations=({"key": DEDICATED, "operator": "Equal", "value": "true", "effect": "NoSchedule"},),
    )
