"""Pure builders: object and plan in, manifests out."""
