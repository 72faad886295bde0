"""Host time of one decode step of the scheduler, the model left out: ``python engine/tests/scheduler/bench_step.py``.

Every running sequence decodes in every step; the runner answers at once with random ids. Prints median and 20th/80th
percentile of the time between two submits, and last one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from motley_engine.config.schema import SchedulerSection
from motley_engine.executor.step import Geometry, SamplingPlan, StepKind, StepPlan, StepResult
from motley_engine.messages import Generate, Shutdown, ToScheduler, ToServer
from motley_engine.sampling.params import SamplingParams
from motley_engine.scheduler.loop import Scheduler

VOCAB = 128_000


class InstantRunner:
    """Answers every step with random ids and notes when it was submitted."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.submitted: list[float] = []

    def submit(self, plan: StepPlan, sampling: SamplingPlan | None) -> Answered:
        if plan.kind is StepKind.DECODE:
            self.submitted.append(time.perf_counter())
        return Answered(StepResult(plan.seq, self.rng.integers(0, VOCAB, len(plan.sample), np.int32)))


class Answered:
    def __init__(self, answer: StepResult) -> None:
        self.answer = answer

    def result(self, timeout: float) -> StepResult:
        return self.answer


class Load:
    """A mailbox with all requests at the start, and Shutdown once enough steps have run."""

    def __init__(self, running: int, prompt: int, steps: int, runner: InstantRunner) -> None:
        rng = np.random.default_rng(1)
        sampling = SamplingParams(max_new_tokens=100_000, temperature=0.8, top_p=0.9, stop_token_ids=(VOCAB + 1,))
        self.first: list[ToScheduler] = [
            Generate(rid=str(i), input_ids=rng.integers(0, VOCAB, prompt).tolist(), sampling=sampling)
            for i in range(running)
        ]
        self.steps = steps
        self.runner = runner

    def receive(self) -> list[ToScheduler]:
        first, self.first = self.first, []
        return [Shutdown()] if len(self.runner.submitted) > self.steps else first

    def wait(self, timeout: float) -> bool:
        return True

    def send(self, message: ToServer) -> None:
        return


def measure(running: int, prompt: int, steps: int, window: int) -> dict[str, float]:
    """Milliseconds per decode step at ``running`` sequences."""
    pages = running * (prompt + steps + 32) // 16 + running + 2
    geometry = Geometry(16, pages, pages if window else 0, window, running, 32768, VOCAB + 2)
    runner = InstantRunner()
    config = SchedulerSection(max_running_requests=running, chunked_prefill_size=-1, schedule_conservativeness=0)
    Scheduler(config, geometry, runner, Load(running, prompt, steps, runner), time.monotonic, watchdog=60).run()
    gaps = np.diff(runner.submitted) * 1e3
    low, median, high = np.percentile(gaps, (20, 50, 80))
    return {"running": running, "window": window, "p20_ms": low, "p50_ms": median, "p80_ms": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    results = []
    for running in (1, 64, 256):
        for window in (0, 512):
            result = measure(running, arguments.prompt, arguments.steps, window)
            print(", ".join(f"{key} {value:.3g}" for key, value in result.items()))
            results.append(result)
    print(json.dumps({"bench": "scheduler decode step", "results": results}))


if __name__ == "__main__":
    main()
