"""Typed configuration: one tree fed by flags, YAML and the plan."""
