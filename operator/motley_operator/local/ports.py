"""Ports of this machine for the endpoints of local pods."""

from __future__ import annotations

import socket
from collections.abc import Collection

from motley_operator.api.document import InputError
from motley_operator.local.environment import LOOPBACK

LAST = 65535


def free_port(wanted: int, source: str, taken: Collection[int] = ()) -> int:
    """``wanted``, or the first after it that is not ``taken`` by our own pods; 0 asks for any.

    Raises InputError that names ``source`` when another program holds the port: clients would talk to that one.
    """
    if wanted == 0:
        return _any_port(taken)
    port = next(port for port in range(wanted, LAST + 2) if port not in taken)
    if port > LAST or not _bindable(port):
        raise InputError(f"{source}: port {port} is in use on this machine; give another one, or --port 0 for any")
    return port


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # as servers do, so that a port in TIME_WAIT counts as free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _any_port(taken: Collection[int]) -> int:
    for _ in range(100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((LOOPBACK, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port
    raise InputError("--port: the machine offers no free port")
