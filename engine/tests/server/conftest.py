from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from server.fake_engine import FakeEngine
from server.fake_model import END, byte_tokenizer, make_state

from motley_engine.server.app import build_app
from motley_engine.server.state import ServerState
from motley_engine.tokenizer import Tokenizer


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short path: socket names have at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="m"))
    yield folder
    shutil.rmtree(folder)


@dataclass
class Service:
    """A state, its fake engine and an HTTP client that talks to the application without a network."""

    state: ServerState
    engine: FakeEngine
    http: httpx.AsyncClient


@asynccontextmanager
async def run_service(folder: Path, tokenizer: Tokenizer | None, **sections: dict[str, Any]) -> AsyncIterator[Service]:
    state = make_state(folder, tokenizer, **sections)
    engine = FakeEngine(folder, END)
    engine.start()
    state.client.start()
    state.ready()
    app = build_app(state)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30) as http:
            yield Service(state, engine, http)
    finally:
        await state.client.stop()
        await engine.stop()


@pytest.fixture
async def service(sockets: Path) -> AsyncIterator[Service]:
    async with run_service(sockets, byte_tokenizer()) as running:
        yield running


@pytest.fixture
def service_with(sockets: Path) -> Callable[..., Any]:
    """``async with service_with(server={"api_key": "x"}) as service`` for other settings or tokenizers."""

    default = byte_tokenizer()

    def start(tokenizer: Tokenizer | None = default, **sections: dict[str, Any]) -> Any:
        return run_service(sockets, tokenizer, **sections)

    return start


class Announced(uvicorn.Server):
    """Sets ``up`` once connections are accepted."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@dataclass
class LiveServer:
    """A real uvicorn on a free port in its own thread, the fake engine beside it in the same loop."""

    folder: Path
    sections: dict[str, Any]
    url: str = ""
    _ready: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> LiveServer:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30), "the server did not start"
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"

    def call(self, coroutine: Any, timeout: float = 20) -> Any:
        """Run a coroutine in the server's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.state = make_state(self.folder, byte_tokenizer(), **self.sections)
        self.engine = FakeEngine(self.folder, END)
        self.engine.start()
        self.state.ready()
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(build_app(self.state), log_level="warning", lifespan="on")
        self._server = Announced(config)
        serving = asyncio.create_task(self._server.serve([listener]))
        async with asyncio.timeout(30):
            await self._server.up.wait()
        self._ready.set()
        await serving
        await self.engine.stop()


@pytest.fixture
def live(sockets: Path) -> Iterator[LiveServer]:
    with LiveServer(sockets, {}) as server:
        yield server
