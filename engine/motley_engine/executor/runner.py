"""Rank 0's hand on all executors: sends each plan to the other ranks, starts it here, hands out its result later."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import numpy as np
import torch

from motley_engine.comm.ring import RingWriter
from motley_engine.executor.step import Logprobs, PendingStep, SamplingPlan, StepPlan, StepResult
from motley_engine.executor.wire import Frame, pack
from motley_engine.executor.worker import StepOutput, Worker
from motley_engine.sampling.logprobs import DeviceLogprobs

# steps that may wait for the CPU thread: one runs, one is scheduled ahead of it, and a flush or stop may follow
_QUEUE = 4
_POLL_SECONDS = 2e-5

Step = Callable[[], StepOutput]


class Launcher(Protocol):
    """Starts steps in order without waiting for them."""

    def launch(self, seq: int, step: Step) -> PendingStep: ...

    def close(self) -> None:
        """Wait for nothing; steps not started are dropped."""
        ...


class LocalRunner:
    """The StepRunner of rank 0. ``writer`` is None for a replica of one rank; ``timeout`` bounds the wait for the
    slowest reader of the plan ring; ``on_step(seq, done)`` marks each step's start and end for the supervisor."""

    def __init__(
        self,
        worker: Worker,
        launcher: Launcher,
        writer: RingWriter | None,
        timeout: float,
        on_step: Callable[[int, bool], None],
    ) -> None:
        self._worker = worker
        self._launcher = launcher
        self._writer = writer
        self._timeout = timeout
        self._on_step = on_step

    def submit(self, plan: StepPlan, sampling: SamplingPlan | None) -> PendingStep:
        """WireError for a plan that contradicts itself, TimeoutError if another rank no longer takes plans."""
        frame = pack(plan)
        if self._writer is not None:
            self._writer.write(frame.parts(), self._timeout)
        return self._launcher.launch(frame.seq, partial(self._step, frame, sampling))

    def close(self) -> None:
        self._launcher.close()

    def _step(self, frame: Frame, sampling: SamplingPlan | None) -> StepOutput:
        self._on_step(frame.seq, False)
        output = self._worker.step(frame, sampling)
        self._on_step(frame.seq, True)
        return output


class CpuLauncher:
    """One thread runs the steps one after the other; torch lets go of the interpreter while it computes."""

    def __init__(self) -> None:
        self._steps: queue.Queue[tuple[Step, Future[StepOutput]] | None] = queue.Queue(_QUEUE)
        threading.Thread(target=self._run, name="executor", daemon=True).start()

    def launch(self, seq: int, step: Step) -> PendingStep:
        future: Future[StepOutput] = Future()
        self._steps.put((step, future))
        return _CpuStep(seq, future)

    def close(self) -> None:
        self._steps.put(None)

    def _run(self) -> None:
        while (item := self._steps.get()) is not None:
            step, future = item
            try:
                future.set_result(step())
            except BaseException as error:
                future.set_exception(error)


class _CpuStep:
    def __init__(self, seq: int, future: Future[StepOutput]) -> None:
        self._seq = seq
        self._future = future

    def result(self, timeout: float) -> StepResult:
        output = self._future.result(timeout)
        return _result(self._seq, output, _tensors(output))


class CudaLauncher:
    """Queues every step on one stream from the caller's thread; results come back through pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))

    def launch(self, seq: int, step: Step) -> PendingStep:
        with torch.cuda.stream(self._stream):
            output = step()
            copies = tuple(_to_pinned(tensor) for tensor in _tensors(output))
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        return _CudaStep(seq, output, copies, done)

    def close(self) -> None:
        pass


class _CudaStep:
    def __init__(self, seq: int, output: StepOutput, copies: tuple[torch.Tensor, ...], done: torch.cuda.Event) -> None:
        self._seq = seq
        self._output = output
        self._copies = copies
        self._done = done

    def result(self, timeout: float) -> StepResult:
        # an event has no wait with a bound; polling keeps the interpreter free and costs less than a step by far
        deadline = time.monotonic() + timeout
        while not self._done.query():  # type: ignore[no-untyped-call]
            if time.monotonic() > deadline:
                raise TimeoutError(f"step {self._seq} did not finish in {timeout:.1f} s")
            time.sleep(_POLL_SECONDS)
        return _result(self._seq, self._output, self._copies)


def _to_pinned(tensor: torch.Tensor) -> torch.Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _tensors(output: StepOutput) -> tuple[torch.Tensor, ...]:
    """Everything of ``output`` that travels to the host, in the order ``_result`` expects."""
    parts = [part.tensors() for part in (output.logprobs, output.scores) if part is not None]
    return (output.ids, *(tensor for part in parts for tensor in part))


def _result(seq: int, output: StepOutput, copies: tuple[torch.Tensor, ...]) -> StepResult:
    rest = copies[1:]
    found: list[Logprobs | None] = []
    for part in (output.logprobs, output.scores):
        taken = 0 if part is None else len(part.tensors())
        found.append(_on_host(part, rest[:taken]))
        rest = rest[taken:]
    return StepResult(seq, copies[0].numpy().astype(np.int32), *found)


def _on_host(part: DeviceLogprobs | None, copies: tuple[torch.Tensor, ...]) -> Logprobs | None:
    return None if part is None else part.on_host(copies)
