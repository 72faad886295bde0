"""The load shapes that motley is compared on. Lengths in tokens, rates in requests per second."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load. ``rate`` 0 keeps ``concurrency`` requests open; otherwise arrivals are Poisson, concurrency unbounded.

    ``shared_len`` of the ``input_len`` prompt tokens are the same in every request.
    """

    name: str
    requests: int
    concurrency: int
    input_len: int
    output_len: int
    shared_len: int = 0
    rate: float = 0.0

    def __post_init__(self) -> None:
        if self.requests < 1 or self.concurrency < 1 or self.input_len < 1 or self.output_len < 1:
            raise ValueError(f"scenario {self.name}: requests, concurrency and lengths must be at least 1")
        if not 0 <= self.shared_len < self.input_len:
            raise ValueError(
                f"scenario {self.name}: shared_len {self.shared_len} must be below input_len {self.input_len}"
            )
        if self.rate < 0:
            raise ValueError(f"scenario {self.name}: rate {self.rate} must not be negative")


SCENARIOS = {
    s.name: s
    for s in (
        Scenario("single", requests=8, concurrency=1, input_len=512, output_len=256),
        Scenario("c64", requests=192, concurrency=64, input_len=1024, output_len=256),
        Scenario("c256", requests=768, concurrency=256, input_len=512, output_len=128),
        Scenario("prefill", requests=48, concurrency=16, input_len=8192, output_len=1),
        Scenario("shared", requests=192, concurrency=64, input_len=4096, output_len=64, shared_len=3840),
        Scenario("poisson", requests=320, concurrency=1, input_len=1024, output_len=128, rate=16.0),
    )
}
