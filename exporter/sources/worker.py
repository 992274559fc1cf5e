"""One thread that makes the calls which may never return.

A driver call, or a read below /proc, can hang in the kernel, and no Python thread can be stopped from outside. So each
thing that may hang has one worker: while its call is out, no second one is made, the caller waits until a deadline and
then goes on without it. A hang costs one thread and its own numbers, however long it lasts, and is over by itself when
the call returns.

What is merely slow is not lost: an outcome that came after its deadline is the answer of the next round, if by then it
was asked for no longer than `max_age` ago.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Reading

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

    def __init__(self, name: str, *, clock: Clock, max_age: float = 0.0) -> None:
        """`max_age` is in seconds; with 0 an outcome that is too late is dropped."""
        self._name = name
        self._clock = clock
        self._max_age = max_age
        self._calls: SimpleQueue[_Call[T] | None] = SimpleQueue()
        self._current: _Call[T] | None = None
        self._late: _Call[T] | None = None  # the call before, if it ended after its deadline
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """True while a call is out, awaited or given up."""
        return self._current is not None and not self._current.done.is_set()

    def ask(self, job: Callable[[], T | Failure]) -> None:
        """Start the job, unless an earlier one has not returned; then `answer` tells of that one."""
        if self.busy:
            return
        self._late = self._current if self._current is not None and self._current.given_up else None
        self._current = _Call(job, self._clock.monotonic())
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._calls.put(self._current)

    def answer(self, *, until: float) -> tuple[T | Failure, float]:
        """The outcome of the job and its seconds, waiting until the monotonic time `until` at the latest.

        A call is waited for once. Asked about again while it is still out, the answer is a failure at once.
        """
        call = self._current
        if call is None:
            return Failure(Reason.INTERNAL, f"{self._name} was not asked"), 0.0
        if call.done.wait(0.0 if call.given_up else max(0.0, until - self._clock.monotonic())) and not call.given_up:
            return _outcome(call), call.seconds
        call.given_up = True
        now = self._clock.monotonic()
        late, self._late = self._late, None
        if late is not None and now - late.asked_at <= self._max_age:
            return _outcome(late), late.seconds
        waited = now - call.asked_at
        return Failure(Reason.TIMEOUT, f"{self._name}: a call has not returned for {waited:.0f} s"), waited

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


def _outcome(call: _Call[T]) -> T | Failure:
    return call.outcome if call.outcome is not None else Failure(Reason.INTERNAL, "a call ended without an outcome")


def answer_of(source: str, worker: Worker[Reading[T]], *, until: float) -> Reading[T]:
    """The answer of a whole source that a worker was asked to read; where it has none, a reading that says why."""
    outcome, seconds = worker.answer(until=until)
    return Reading(source, outcome, seconds) if isinstance(outcome, Failure) else outcome
