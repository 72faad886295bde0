"""Kernel tests run everywhere: on the CUDA device if there is one, else under Triton's interpreter.

The interpreter is chosen when a kernel is decorated, so the environment is set before any test module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """Fill what ``torch.empty`` returns with NaN or the largest integer, so that an unwritten element fails loudly."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.manual_seed(0)
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
