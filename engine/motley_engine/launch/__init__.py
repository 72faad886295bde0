"""Start, supervision and end of the processes of one replica."""

from motley_engine.launch.serve import serve

__all__ = ["serve"]
