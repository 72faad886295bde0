"""The Kubernetes side: API types, rendering, local mode and the operator. Never imports the engine or torch."""
