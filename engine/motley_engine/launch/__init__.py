"""Start, supervision and end of the processes of one replica."""

from __future__ import annotations

from motley_engine.config.schema import EngineConfig


def serve(config: EngineConfig) -> int:
    """Run one replica until it is told to stop or fails; returns one of ``exit_codes``.

    ConfigError before any weight is read.
    """
    # rank processes import this package too, and need no HTTP server
    from motley_engine.launch.replica import serve as run

    return run(config)
