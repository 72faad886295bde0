"""`motley demo`: `motley up` on an example with two unequal pretend cards, one question, the answer and its speed."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from motley_operator.api.document import InputError
from motley_operator.resources import resource

_ENDPOINT = re.compile(r"OpenAI endpoint\s+(http://[0-9.]+:\d+)/v1")
_LAST_LINE = re.compile(r"> +stop +Ctrl-C")
_START_SECONDS = 300.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Demo:
    """What is run and asked. ``budgets`` are MiB of the pretend cards; ``chat`` models get a question, base models a
    text to go on with. ``port`` is the object's own, where it serves when run by hand."""

    example: str
    port: int
    model: str
    budgets: str
    prompt: str
    chat: bool
    max_tokens: int


DEMOS = {
    "smollm2": Demo(
        example="quickstart.yaml",
        port=8080,
        model="SmolLM2-135M-Instruct",
        budgets="1024,512",
        prompt="What is the capital of France?",
        chat=True,
        max_tokens=64,
    ),
    "gemma3": Demo(
        example="gemma3.yaml",
        port=8081,
        model="gemma-3-270m",
        budgets="2048,1024",
        prompt=(
            "The capital of Germany is Berlin.\nThe capital of Italy is Rome.\n"
            "The capital of Spain is Madrid.\nThe capital of France is"
        ),
        chat=False,
        max_tokens=16,
    ),
}


def demo(name: str, keep: bool, console: Console) -> int:
    """Run one demo. With ``keep`` the endpoint stays up until Ctrl-C. Returns the exit code.

    InputError on an unknown name; RuntimeError if the endpoint does not come up or refuses the question.
    """
    if name not in DEMOS:
        raise InputError(f"demo {name!r}: there are {', '.join(DEMOS)}")
    chosen = DEMOS[name]
    with _Up(chosen, console) as endpoint:
        _ask(endpoint.base, chosen, console)
        _tell_more(chosen, console)
        if keep:
            return endpoint.wait()
    return 0


class _Up:
    """`motley up` as a child whose output is shown; entered when it serves."""

    def __init__(self, chosen: Demo, console: Console) -> None:
        self.base = ""
        self._chosen = chosen
        self._console = console
        self._lines: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> _Up:
        command = [sys.executable, "-m", "motley", "up", "-f", str(resource("examples", self._chosen.example))]
        command += ["--cpu", self._chosen.budgets, "--port", "0", "--no-restart"]
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": str(max(self._console.width, 120))}
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, start_new_session=True
        )
        threading.Thread(target=self._pump, daemon=True).start()
        try:
            self.base = self._await_endpoint(time.monotonic() + _START_SECONDS)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def wait(self) -> int:
        """Until the child ends or Ctrl-C asks it to."""
        try:
            return self._process.wait()
        except KeyboardInterrupt:
            return 0

    def _pump(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._console.print(Text.from_ansi(line.rstrip("\n")), soft_wrap=True)
            self._lines.put(line)
        self._lines.put(None)

    def _await_endpoint(self, deadline: float) -> str:
        """Base URL of the endpoint, once the child has said all it says at its start."""
        base = ""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"the endpoint was not ready within {_START_SECONDS:.0f} s") from None
            if line is None:
                raise RuntimeError(f"motley up ended with code {self._process.wait()}; its lines above say why")
            if found := _ENDPOINT.search(line):
                base = found.group(1)
            if base and _LAST_LINE.search(line):
                return base

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _ask(base: str, chosen: Demo, console: Console) -> None:
    """Stream the answer; print it as it comes, then the speed."""
    body: dict[str, Any] = {"model": chosen.model, "max_tokens": chosen.max_tokens, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    if chosen.chat:
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": chosen.prompt}]
    else:
        path, body["prompt"], body["stop"] = "/v1/completions", chosen.prompt, ["\n"]
    console.print(Text(f"\nquestion  {chosen.prompt}", style="bold"), soft_wrap=True)
    console.print(Text("answer    ", style="bold green"), end="")
    started = time.monotonic()
    first = 0.0
    tokens = 0
    for event in _events(base, path, body):
        for choice in event.get("choices", []):
            text = choice["delta"].get("content") if chosen.chat else choice.get("text")
            if text:
                first = first or time.monotonic()
                console.print(Text(text), end="", soft_wrap=True)
        if usage := event.get("usage"):
            tokens = usage["completion_tokens"]
    ended = time.monotonic()
    if not first:
        raise RuntimeError("the answer was empty")
    rate = f"{(tokens - 1) / (ended - first):.1f} tokens/s" if tokens > 1 else "one token"
    console.print(f"\nspeed     {tokens} tokens, first after {(first - started) * 1000:.0f} ms, then {rate}\n")


def _events(base: str, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    address = urlsplit(base)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{path} answered {response.status}: {response.read().decode(errors='replace')[:500]}")
        for raw in response:
            line = raw.strip()
            if line.startswith(b"data:") and line != b"data: [DONE]":
                event: dict[str, Any] = json.loads(line[5:])
                if "error" in event:
                    raise RuntimeError(f"{path} failed: {event['error']}")
                yield event
    finally:
        connection.close()


def _tell_more(chosen: Demo, console: Console) -> None:
    route = "chat/completions" if chosen.chat else "completions"
    ask = {"messages": [{"role": "user", "content": chosen.prompt}]} if chosen.chat else {"prompt": chosen.prompt}
    body = json.dumps({"model": chosen.model, **ask, "max_tokens": chosen.max_tokens})
    console.print(Text("talk to it yourself", style="bold"))
    console.print(f"  .venv/bin/motley up -f examples/{chosen.example} --cpu {chosen.budgets}", soft_wrap=True)
    console.print(
        f"  curl http://127.0.0.1:{chosen.port}/v1/{route} -H 'Content-Type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
    )
    console.print("  or point any OpenAI client at", f"http://127.0.0.1:{chosen.port}/v1")
