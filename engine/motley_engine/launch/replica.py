"""``motley serve``: resolve, start the ranks, serve, and end with a code that says why.

The parent holds the HTTP server and watches the ranks; it never touches a device.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

import uvloop
from rich.console import Console

from motley_engine.comm.mailbox import TO_SCHEDULER, TO_SERVER
from motley_engine.config.errors import ConfigError
from motley_engine.config.resolve import Resolved, resolve
from motley_engine.config.schema import EngineConfig
from motley_engine.executor.step import Geometry
from motley_engine.launch import exit_codes, logs
from motley_engine.launch.group import RankGroup, StartError
from motley_engine.launch.http import HttpLife, bind, url_of
from motley_engine.launch.reports import Ready
from motley_engine.launch.terminal import LoadDisplay, show_memory, show_plan
from motley_engine.server.auth import read_key
from motley_engine.server.client import EngineClient
from motley_engine.server.protocol.sampling import SamplingDefaults
from motley_engine.server.state import ServedModel, ServerState
from motley_engine.tokenizer import Tokenizer, TokenizerError, load_tokenizer

log = logging.getLogger(__name__)

_LOG_WIDTH = 160


def serve(config: EngineConfig) -> int:
    """Run one replica until it is told to stop or fails; returns one of ``exit_codes``. ConfigError before any weight
    is read."""
    logs.set_up(config.runtime.log_level, "server")
    try:
        with _stopped_by_signals():
            return _start(config, _console())
    except StartError as error:
        log.error("not started: %s", error)
        return error.code


def _start(config: EngineConfig, console: Console) -> int:
    resolved = resolve(config)
    defaults = _check_server(resolved)
    show_plan(console, resolved)
    with (
        closing(bind(config.server.host, config.server.port)) as listener,
        tempfile.TemporaryDirectory(prefix="motley-") as folder,
    ):
        return _run(resolved, defaults, listener, Path(folder), console)


def _run(
    resolved: Resolved, defaults: SamplingDefaults, listener: socket.socket, folder: Path, console: Console
) -> int:
    group = RankGroup.start(resolved, folder)
    try:
        tokenizer = _tokenizer(resolved)
        with LoadDisplay(console) as display:
            ready = group.wait_ready(resolved.config.runtime.start_timeout, display.update)
        _announce(console, ready)
        state = _state(resolved, defaults, tokenizer, ready, folder)
        life = HttpLife(state, listener, group)

        def on_ready() -> None:
            _unlink_sockets(folder)
            ranks = ", ".join(card.uuid for card in resolved.cards)
            print(f"motley is ready: {url_of(listener)} serves {state.model.name} on {ranks}", flush=True)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(life.run(on_ready))
    finally:
        group.kill()


def _console() -> Console:
    """stderr; wide where no terminal limits the width."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=_LOG_WIDTH)


def _check_server(resolved: Resolved) -> SamplingDefaults:
    """What only the server reads, checked before any weight is. ConfigError names the flag."""
    preferred = resolved.config.model.preferred_sampling_params
    try:
        read_key(resolved.config.server.api_key)
        return SamplingDefaults.merged(json.loads(preferred) if preferred else {}, resolved.generation)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _tokenizer(resolved: Resolved) -> Tokenizer | None:
    if resolved.tokenizer_path is None:
        return None
    template = resolved.config.model.chat_template
    try:
        return load_tokenizer(resolved.tokenizer_path, Path(template) if template else None)
    except TokenizerError as error:
        raise ConfigError(str(error)) from error


def _announce(console: Console, ready: list[Ready]) -> None:
    for rank in ready:
        log.info("rank %d: process %d, %s", rank.rank, rank.pid, ", ".join(rank.notes))
    show_memory(console, [rank.row for rank in ready])


def _state(
    resolved: Resolved, defaults: SamplingDefaults, tokenizer: Tokenizer | None, ready: list[Ready], folder: Path
) -> ServerState:
    config = resolved.config
    pool = pool_tokens(ready[0].geometry)
    if pool < resolved.context_length:
        log.warning("the KV pool holds %d tokens, which limits sequences further than --context-length", pool)
    return ServerState(
        config=config,
        model=ServedModel(
            name=config.model.served_model_name,
            path=config.model.model_path,
            tokenizer_path=str(resolved.tokenizer_path or ""),
            vocab_size=resolved.model.vocab_size,
            context_length=resolved.context_length,
            pool_tokens=pool,
            eos_token_ids=resolved.model.eos_token_ids,
            defaults=defaults,
        ),
        tokenizer=tokenizer,
        client=EngineClient(folder, silence_limit=config.runtime.heartbeat_timeout),
        version=_version(),
        ranks=[{**rank.row.in_mib(), "pid": rank.pid} for rank in ready],
    )


def pool_tokens(geometry: Geometry) -> int:
    """Longest sequence that fits into the pools alone. Sliding layers keep only their window, whatever the length."""
    pages = geometry.full_pages or geometry.window_pages
    return (pages - 1) * geometry.page_size


def _unlink_sockets(folder: Path) -> None:
    """Both ends are connected: without names, nothing is left behind even if every process is killed at once."""
    for name in (TO_SCHEDULER, TO_SERVER):
        (folder / name).unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _version() -> str:
    try:
        return version("motley")
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """While the replica starts, SIGTERM and SIGINT end it through the usual clean-up."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StartError(exit_codes.INTERRUPTED, f"stopped by {signal.Signals(number).name} before it was ready")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
