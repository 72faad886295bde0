"""Stop strings in streamed text. Knows characters only; tokens and requests are the caller's."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Finds the first stop string in text that arrives in pieces of any length.

    The match is the one that ends first; of several that end together, the longest. How the text is cut into pieces
    changes nothing. Text is held back only while it is a proper prefix of a stop string, so at most
    ``longest - 1`` characters, and what ``push`` returns never begins a match.

        pushed text:   [ released | held (prefix of a stop string) ]
        after a match: [ released | stop string: kept or dropped ] rest dropped
    """

    def __init__(self, stops: Sequence[str], keep: bool = False) -> None:
        """``stops`` are non-empty strings; ``keep`` releases the matched string too."""
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._keep = keep
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str, active: bool = True) -> str:
        """Text that is safe to release after ``piece``. With ``active`` false, a match that ends in it is ignored."""
        if self.matched is not None:
            return ""
        text = self._held + piece
        if active:
            match = self._first_match(text, len(self._held))
            if match is not None:
                start, self.matched = match
                self._held = ""
                return text[: start + len(self.matched)] if self._keep else text[:start]
        held = self._prefix_length(text)
        released = text[: len(text) - held]
        self._held = text[len(text) - held :]
        return released

    def flush(self) -> str:
        """What was held back, once no more text can come."""
        text, self._held = self._held, ""
        return text

    def _first_match(self, text: str, seen: int) -> tuple[int, str] | None:
        """Start and string of the match that ends first beyond ``seen`` characters."""
        best: tuple[int, str] | None = None
        best_end = len(text) + 1
        for stop in self._stops:
            start = text.find(stop, max(0, seen + 1 - len(stop)))
            # stops are sorted longest first, so a tie on the end keeps the longer one
            if start >= 0 and start + len(stop) < best_end:
                best, best_end = (start, stop), start + len(stop)
        return best

    def _prefix_length(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string without completing it."""
        longest = min(len(text), len(self._stops[0]) - 1)
        for length in range(longest, 0, -1):
            tail = text[-length:]
            if any(len(stop) > length and stop.startswith(tail) for stop in self._stops):
                return length
        return 0
