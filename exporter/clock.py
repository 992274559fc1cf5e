"""Time as a value that is handed in, so that no test waits for it."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks: `monotonic` for durations (seconds), `unix` for timestamps (seconds since the epoch)."""

    monotonic: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time
