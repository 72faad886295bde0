"""What the scheduler counts, and the check that nothing leaks while it is idle."""

from __future__ import annotations

import math
from dataclasses import dataclass

_LONGEST_RETRY = 60


@dataclass(slots=True)
class Counters:
    """Counts since start; names and units as in ``messages.Stats``."""

    retractions: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    aborted: int = 0
    leaked_pages: int = 0

    def count_step(self, seconds: float) -> None:
        self.steps += 1
        self.step_seconds += seconds

    def retry_after(self, waiting: int) -> int:
        """Seconds until ``waiting`` requests have probably ended, from the rate so far: 1 to 60."""
        ended = self.finished + self.aborted
        seconds = waiting * self.step_seconds / ended if ended else 1.0
        return min(max(math.ceil(seconds), 1), _LONGEST_RETRY)
