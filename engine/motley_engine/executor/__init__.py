"""Runs step plans on one rank."""
