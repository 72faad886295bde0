"""Objects that several tests start from."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def minimal() -> dict[str, Any]:
    """The smallest valid object."""
    return {
        "apiVersion": "motley.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"model": {"uri": "hf://Qwen/Qwen3-8B"}},
    }
