"""A real `motley serve` as a child process for tests, with an HTTP client."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from motley_bench.host import Serve


class Server(Serve):
    """Use as a context manager. A server that outlives SIGTERM by half a minute is killed and fails the test."""

    def __init__(self, flags: Sequence[str], start_timeout: float = 240.0) -> None:
        super().__init__(flags, start_timeout, echo=False)

    def __enter__(self) -> Server:
        self.start()
        self.http = httpx.Client(base_url=self.url, timeout=600)
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()
        assert self.stop() is not None, "server did not stop on SIGTERM:\n" + self.tail()

    def rank_pids(self) -> list[int]:
        """Process ids in rank order, as /get_server_info tells them."""
        ranks = self.http.get("/get_server_info").json()["ranks"]
        return [int(rank["pid"]) for rank in ranks]
