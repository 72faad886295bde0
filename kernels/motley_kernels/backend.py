"""The implementations an operation can have; an engine picks one at start and passes it to every call."""

from typing import Literal, TypeAlias

Backend: TypeAlias = Literal["torch", "triton"]
"""torch: the plain reference, any device and dtype. triton: CUDA, or the CPU under Triton's interpreter."""
