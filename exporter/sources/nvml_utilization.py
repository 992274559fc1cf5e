"""How busy each process keeps a GPU: the driver's samples since the last cycle, as a mean per process.

The driver keeps some seconds of samples, and hands out those that are newer than a time. Asked for all of them it
returns old ones too, of processes that have stopped since, so here the first window is one interval long and each later
one begins where the one before ended. That no sample is newer is an answer: nothing was busy.

What cannot be true (driver faults are known: impossible percentages, rows of nobody, times that are not in the window)
is dropped and counted. A process none of whose samples can be used is unknown, and not idle.

It will not say whose the processes are. A sample holds the one process that was active when it was taken: where clients
share the GPU, the means are an estimate.
"""

import ctypes
import struct
from collections import defaultdict
from collections.abc import Iterator

from exporter.clock import Clock
from exporter.errors import Failure
from exporter.model import ProcessUtilization, UtilizationWindow
from exporter.sources.nvml_codes import CodeClass, classify, failure
from exporter.sources.nvml_rows import LARGEST_PID, RowBuffer

_SYMBOL = "nvmlDeviceGetProcessUtilization"
_SECOND = 1_000_000  # the driver's times are in microseconds since the epoch
# New GPUs take the samples in their own firmware, so a stamp may be a little ahead of our clock; how much is not told.
_AHEAD = _SECOND
_SAMPLE = struct.Struct("=I4xQI12x")  # pid, time, SM percent; memory, encoder and decoder are not needed here


class UtilizationSamples:
    """Reads the samples of one GPU. Not for use from several threads: buffer and window are shared."""

    def __init__(self, *, interval: float, clock: Clock) -> None:
        self._interval = int(interval * _SECOND)
        self._clock = clock
        self._buffer = RowBuffer(_SAMPLE.size)
        self._seen: int | None = None  # time of the newest sample so far
        self._absent: Failure | None = None

    def read(self, handle: object) -> UtilizationWindow | Failure:
        """The means over the samples that are new. Source: nvmlDeviceGetProcessUtilization (smUtil)."""
        if self._absent is not None:
            return self._absent
        begun = self._now()
        if self._seen is None or self._seen > begun + _AHEAD:  # the first window, or our clock was set back
            self._seen = begun - self._interval
        seen = self._seen
        raw = self._buffer.ask(
            _SYMBOL, lambda function, size, rows: function(handle, rows, size, ctypes.c_ulonglong(seen))
        )
        if isinstance(raw, int):
            problem = failure(raw, call=_SYMBOL)
            match classify(raw):
                case CodeClass.NOTHING:
                    return UtilizationWindow()
                case CodeClass.ABSENT:
                    self._absent = problem
            return problem
        _, rows = raw
        return self._window(_SAMPLE.iter_unpack(rows), seen=seen, latest=self._now() + _AHEAD)

    def _window(self, samples: Iterator[tuple[int, int, int]], *, seen: int, latest: int) -> UtilizationWindow:
        newest = seen
        percents: dict[int, list[int]] = defaultdict(list)
        rejected = 0
        for pid, time, percent in samples:
            if not 0 < pid <= LARGEST_PID or time <= seen:
                rejected += 1  # nobody's, or not of this window: it says nothing about anybody here
                continue
            usable = percents[pid]
            if time > latest:
                rejected += 1
                continue
            newest = max(newest, time)
            if percent > 100:
                rejected += 1
            else:
                usable.append(percent)
        self._seen = newest
        return UtilizationWindow(
            tuple(
                ProcessUtilization(pid, sum(usable) / (100 * len(usable)) if usable else None)
                for pid, usable in sorted(percents.items())
            ),
            rejected,
        )

    def _now(self) -> int:
        return int(self._clock.unix() * _SECOND)
