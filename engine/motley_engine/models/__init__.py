"""Model architectures, each written once."""
