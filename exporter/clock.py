"""Time as a value that is handed in, so that no test waits for it."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Three clocks, all in seconds.

    `monotonic` is for durations, `unix` (since the epoch) for timestamps, and `boottime` (since the machine started,
    suspended time included) to compare with the start times in `/proc/[pid]/stat`.
    """

    monotonic: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time
    boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
