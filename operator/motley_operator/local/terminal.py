"""What a person sees of `motley up`: prefixed engine logs, the plan, progress, and how to talk to the endpoint."""

from __future__ import annotations

import json

from rich.console import Console
from rich.text import Text

from motley_operator.exit_codes import ExitCode
from motley_operator.local.environment import LOOPBACK
from motley_operator.local.pod import PodEnd
from motley_operator.local.restarts import Life, Restart
from motley_operator.render.model import Group
from motley_planner.table import plan_table

STYLES = ("cyan", "magenta", "green", "yellow", "blue")


class Terminal:
    """The whole output. One per run."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, message: str, style: str = "") -> None:
        """One line of motley's own."""
        self._console.print(Text(message, style=style), soft_wrap=True)

    def plan(self, service: str, group: Group) -> None:
        """The plan of one group as a table."""
        self.say(f"plan of {service}, group {group.name}:", "bold")
        self._console.print(plan_table(group.plan))

    def voice(self, name: str, number: int, address: Address) -> PodVoice:
        """The part of the output that speaks for one pod; ``number`` picks its colour."""
        return PodVoice(self._console, name, STYLES[number % len(STYLES)], address)


class Address:
    """Where a pod answers, and as what."""

    def __init__(self, port: int, model: str, secured: bool) -> None:
        self.base = f"http://{LOOPBACK}:{port}"
        self.model = model
        self.secured = secured

    def instructions(self) -> list[str]:
        """How to talk to the endpoint."""
        body = json.dumps({"model": self.model, "prompt": "The capital of France is", "max_tokens": 16})
        key = ' -H "Authorization: Bearer $API_KEY"' if self.secured else ""
        return [
            f"OpenAI endpoint  {self.base}/v1  (model {self.model})",
            f"try              curl {self.base}/v1/completions -H 'Content-Type: application/json'{key} -d '{body}'",
            "stop             Ctrl-C (running requests are finished first; twice ends at once)",
        ]


class PodVoice:
    """Events and log lines of one pod."""

    def __init__(self, console: Console, name: str, style: str, address: Address) -> None:
        self._console = console
        self._name = name
        self._style = style
        self._address = address

    def line(self, text: str) -> None:
        """One line that the engine printed."""
        self._console.print(Text.assemble((f"{self._name} | ", self._style), Text.from_ansi(text)), soft_wrap=True)

    def waiting(self, seconds: float, seen: str) -> None:
        self._tell(f"starting for {seconds:.0f} s ({seen})")

    def ready(self, seconds: float) -> None:
        self._tell(f"ready after {seconds:.0f} s", "bold green")
        for text in self._address.instructions():
            self._tell(f"  {text}")

    def unready(self, seen: str) -> None:
        self._tell(f"missed a health check ({seen})", "yellow")

    def restarting(self, life: Life, restart: Restart) -> None:
        self._tell(f"{life.reason}; restart {restart.number} in {restart.delay:.0f} s", "yellow")

    def stopping(self, grace_seconds: float) -> None:
        self._tell(f"stopping; running requests get up to {grace_seconds:.0f} s")

    def ended(self, end: PodEnd) -> None:
        """The pod's last word."""
        self._tell(end.reason, "" if end.exit_code in (ExitCode.OK, ExitCode.INTERRUPTED) else "bold red")

    def _tell(self, message: str, style: str = "") -> None:
        self._console.print(Text.assemble((f"{self._name} > ", self._style), (message, style)), soft_wrap=True)
