"""Collectives between ranks and messages between processes."""
