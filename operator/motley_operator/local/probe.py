"""HTTP probes as a kubelet makes them: a GET whose status from 200 to 399 is success."""

from __future__ import annotations

import asyncio
import http.client
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Probe:
    """Timing of one probe, seconds."""

    path: str
    period: float
    timeout: float
    failures: int

    @classmethod
    def from_manifest(cls, probe: dict[str, Any]) -> Probe:
        """The probe of a rendered container."""
        return cls(
            path=probe["httpGet"]["path"],
            period=probe.get("periodSeconds", 10),
            timeout=probe.get("timeoutSeconds", 1),
            failures=probe.get("failureThreshold", 3),
        )

    @property
    def budget(self) -> float:
        """Seconds after which a probe that never succeeds has failed."""
        return self.period * self.failures


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one GET: success, and what was seen in a few words."""

    ok: bool
    seen: str


async def look(host: str, port: int, probe: Probe) -> Finding:
    """One GET of ``probe.path``; a refused connection or a late answer is a finding, not an error."""
    return await asyncio.to_thread(_get, host, port, probe)


def _get(host: str, port: int, probe: Probe) -> Finding:
    connection = http.client.HTTPConnection(host, port, timeout=probe.timeout)
    try:
        connection.request("GET", probe.path)
        response = connection.getresponse()
        body = response.read(256).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return Finding(False, "not listening yet" if isinstance(error, ConnectionRefusedError) else str(error))
    finally:
        connection.close()
    return Finding(200 <= response.status < 400, f"HTTP {response.status} {body}".strip())
