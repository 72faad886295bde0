"""`motley up`: validate, plan, render and run the objects of a file on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from motley_operator.api.document import InputError
from motley_operator.api.inferenceservice import InferenceService
from motley_operator.api.read import read_services
from motley_operator.local.clock import SystemClock
from motley_operator.local.kubelet import ENTRY_POINT, LocalPod, Machine, local_pods
from motley_operator.local.pod import PodEnd, PodRunner
from motley_operator.local.ports import free_port
from motley_operator.local.restarts import RestartBook
from motley_operator.local.secrets import read_secrets
from motley_operator.local.terminal import Address, PodVoice, Terminal
from motley_operator.planning.cards import find_cards
from motley_operator.planning.plan import in_object_words, infeasible, locate_model, place_service
from motley_operator.planning.selection import CardPool
from motley_operator.planning.support import local_notes, require_runnable_here, require_supported
from motley_operator.render.arguments import model_uri
from motley_operator.render.model import Group, Settings
from motley_operator.render.workload import render_service

IMAGE = "motley:local"
NODE = "localhost"
_PORT_FIELD = "spec.networking.service.port"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Command line of `motley up`. ``port`` None takes each object's own."""

    file: Path
    cpu: str | None = None
    inventory: Path | None = None
    port: int | None = None
    secrets: tuple[str, ...] = ()
    restart: bool = True
    home: Path = field(default_factory=Path.home)
    entry_point: tuple[str, ...] = ENTRY_POINT


@dataclass(frozen=True, slots=True)
class Placed:
    """One group with its cards and its place on this machine."""

    service: InferenceService
    group: Group
    route: str
    port: int
    model_bytes: int

    @property
    def label(self) -> str:
        """Name in the output; the group only where the object has several."""
        several = len(self.service.spec.topology.groups) > 1
        return f"{self.service.metadata.name}/{self.group.name}" if several else self.service.metadata.name


def up(options: UpOptions, terminal: Terminal) -> int:
    """Run everything until a signal or until one pod ends for good. Returns the exit code.

    Raises InputError for whatever the user can put right before anything is started.
    """
    secrets = read_secrets(options.secrets)
    services = read_services(options.file)
    for service in services:
        require_supported(service)
        require_runnable_here(service)
    placed = _place(services, options, terminal)
    with tempfile.TemporaryDirectory(prefix="motley-up-") as directory:
        machine = Machine(NODE, options.home, Path(directory), secrets, options.entry_point)
        return asyncio.run(_run(_lay_out(placed, machine), options.restart, terminal))


def _place(services: list[InferenceService], options: UpOptions, terminal: Terminal) -> list[Placed]:
    pool = CardPool(find_cards(options.cpu, options.inventory))
    placed: list[Placed] = []
    for service in services:
        for note in local_notes(service, pool.pretend):
            terminal.say(f"{service.metadata.name}: note: {note}", "yellow")
        terminal.say(f"{service.metadata.name}: locating {model_uri(service)}")
        model = locate_model(model_uri(service))
        groups = place_service(service, model.facts, pool)
        for group in groups:
            terminal.plan(service.metadata.name, group)
        _require_feasible(service, groups)
        for group in groups:
            taken = {other.port for other in placed}
            wanted = service.spec.networking.service.port if options.port is None else options.port + len(placed)
            source = "--port" if options.port is not None else f"{service.metadata.name}: {_PORT_FIELD}"
            port = free_port(0 if options.port == 0 else wanted, source, taken)
            route = "None" if pool.pretend else "RuntimeClass"
            placed.append(Placed(service, group, route, port, model.file_bytes))
    if idle := pool.leftover():
        terminal.say(f"unused cards: {', '.join(card.uuid for card in idle)}")
    return placed


def _require_feasible(service: InferenceService, groups: tuple[Group, ...]) -> None:
    for group in infeasible(groups):
        changes = "; or ".join(map(in_object_words, group.plan.explain.near_miss)) or "a smaller model or more cards"
        raise InputError(f"{service.metadata.name}: group {group.name} does not fit its cards; it would with {changes}")


def _lay_out(placed: list[Placed], machine: Machine) -> list[tuple[Placed, LocalPod]]:
    pods: list[tuple[Placed, LocalPod]] = []
    for item in placed:
        settings = Settings(image=IMAGE, http_port=item.port, model_bytes=item.model_bytes)
        manifests = render_service(item.service, (item.group,), item.route, settings)
        pods += [(item, pod) for pod in local_pods(manifests, machine)]
    return pods


async def _run(pods: list[tuple[Placed, LocalPod]], restart: bool, terminal: Terminal) -> int:
    """Run all pods; when one ends for good, the others are drained too."""
    voices = [terminal.voice(item.label, number, _address(item)) for number, (item, _) in enumerate(pods)]
    runners = [_runner(item, pod, voice, restart) for (item, pod), voice in zip(pods, voices, strict=True)]
    tasks = [asyncio.create_task(_follow(runner, voice)) for runner, voice in zip(runners, voices, strict=True)]
    with _stopping(runners, terminal):
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for runner in runners:
            runner.stop()
        await asyncio.wait(tasks)
    first = next(task for task in tasks if task in done)
    codes = [first.result().exit_code, *(task.result().exit_code for task in tasks)]
    return next((code for code in codes if code), 0)


def _runner(item: Placed, pod: LocalPod, voice: PodVoice, restart: bool) -> PodRunner:
    book = RestartBook(item.service.spec.recovery, restart)
    return PodRunner(lambda: pod.start(voice.line), pod.look, pod.timing, book, voice, SystemClock())


async def _follow(runner: PodRunner, voice: PodVoice) -> PodEnd:
    end = await runner.run()
    voice.ended(end)
    return end


def _address(item: Placed) -> Address:
    name = item.service.spec.model.served_name or item.service.metadata.name
    return Address(item.port, name, item.service.spec.networking.api_key_secret_ref is not None)


@contextlib.contextmanager
def _stopping(runners: list[PodRunner], terminal: Terminal) -> Iterator[None]:
    """First signal: drain. Second: end at once."""
    loop = asyncio.get_running_loop()
    count = 0

    def on_signal() -> None:
        nonlocal count
        count += 1
        terminal.say("stopping (once more to end at once)" if count == 1 else "ending at once", "bold")
        for runner in runners:
            if count == 1:
                runner.stop()
            else:
                runner.kill()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
