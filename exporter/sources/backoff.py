"""How long to wait before a failed request is made again, so that many nodes do not ask at the same time.

Full jitter: any time up to a bound that doubles with each failure. What has worked for a while starts anew; what has
worked for a moment does not, or a server that fails after each first word would be asked without end.
"""

import random
from collections.abc import Callable

STEADY = 30.0  # seconds that something has to work until earlier failures are forgotten


class Backoff:
    """Pauses between `first` and `longest` seconds. `chance` gives numbers from 0 to 1."""

    def __init__(self, *, first: float, longest: float, chance: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = longest
        self._chance = chance
        self._failures = 0

    def pause(self, *, at_least: float = 0.0, worked_for: float = 0.0) -> float:
        """Seconds to wait after a failure. `at_least` is what the server asked for; nodes spread above it as well."""
        if worked_for >= STEADY:
            self._failures = 0
        bound = min(self._longest, self._first * 2.0**self._failures)
        self._failures = min(self._failures + 1, 30)
        return max(bound * self._chance(), at_least * (1 + self._chance() / 4))
