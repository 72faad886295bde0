"""Kernels, one folder per operation: reference, Triton and CUDA implementations and their dispatch."""
