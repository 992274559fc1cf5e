"""One thread that makes the calls which may never return.

A driver call, or a read below /proc, can hang in the kernel, and no Python thread can be stopped from outside. So each
thing that may hang has one worker: while its call is out, no second one is made, the caller waits until a deadline and
then goes on without it. A hang costs one thread and its own numbers, however long it lasts, and is over by itself when
the call returns.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from exporter.clock import Clock
from exporter.errors import Failure, Reason

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Call(Generic[T]):
    job: Callable[[], T | Failure]
    asked_at: float
    done: threading.Event = field(default_factory=threading.Event)
    outcome: T | Failure | None = None
    seconds: float = 0.0
    given_up: bool = False


class Worker(Generic[T]):
    """Runs one job at a time on a thread of its own. The thread is a daemon: a hung call must not hold up the exit."""

    def __init__(self, name: str, *, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._calls: SimpleQueue[_Call[T] | None] = SimpleQueue()
        self._current: _Call[T] | None = None
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """True while a call is out, awaited or given up."""
        return self._current is not None and not self._current.done.is_set()

    def ask(self, job: Callable[[], T | Failure]) -> None:
        """Start the job, unless an earlier one has not returned; then `answer` tells of that one."""
        if self.busy:
            return
        self._current = _Call(job, self._clock.monotonic())
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(self._current)

    def answer(self, *, until: float) -> tuple[T | Failure, float]:
        """The outcome of the job and its seconds, waiting until the monotonic time `until` at the latest.

        A call is waited for once. Asked about again while it is still out, the answer is a failure at once; the
        outcome that it brings in the end is old news and is dropped by the next `ask`.
        """
        call = self._current
        if call is None:
            return Failure(Reason.INTERNAL, f"{self._name} was not asked"), 0.0
        if not call.done.wait(0.0 if call.given_up else max(0.0, until - self._clock.monotonic())):
            call.given_up = True
            waited = self._clock.monotonic() - call.asked_at
            return Failure(Reason.TIMEOUT, f"{self._name}: a call has not returned for {waited:.0f} s"), waited
        if call.outcome is None or call.given_up:
            return Failure(Reason.TIMEOUT, f"{self._name}: a call returned too late"), call.seconds
        return call.outcome, call.seconds

    def stop(self) -> None:
        """Let the thread end after its present call. Does not wait: the call may never return."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            started = self._clock.monotonic()
            try:
                call.outcome = call.job()
            except Exception as error:
                log.exception("%s failed", self._name)
                call.outcome = Failure(Reason.INTERNAL, f"{self._name}: {type(error).__name__}: {error}")
            call.seconds = self._clock.monotonic() - started
            call.done.set()
