"""Typed InferenceService and GPUNode objects and their CRDs."""
