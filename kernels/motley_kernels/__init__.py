"""Kernels, one folder per operation: reference, Triton and CUDA implementations and their dispatch."""

from motley_kernels.backend import Backend

__all__ = ["Backend"]
