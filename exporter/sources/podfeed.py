"""A thread that keeps a store in step with one source of pods, for as long as the exporter runs.

Guarantees: whatever the source does, the thread goes on; after a failure it waits, the longer the more failures there
were; `stop` ends what it is waiting for.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.podstore import PodStore, Told

log = logging.getLogger(__name__)

_AFTER_A_FAULT_OF_OURS = 30.0  # seconds


class PodFeed(ABC):
    """One source of pods. `name` is for people, as in "names now come from NAME"."""

    name: str

    def __init__(self, clock: Clock, *, wait: Callable[[float], object] | None = None) -> None:
        """`wait` waits for seconds, at most until `stop`."""
        self.store = PodStore(clock)
        self.decided = threading.Event()  # all pods are known, or why they are not
        self._monotonic = clock.monotonic
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._thread = threading.Thread(target=self.run, name=f"pods from {self.name}", daemon=True)

    def start(self) -> None:
        """Begin to follow the source."""
        self._thread.start()

    def stop(self) -> None:
        """Ask nothing of the source any more. Does not wait for the thread."""
        self._stopped.set()
        self._interrupt()

    def read(self) -> Told:
        """What is known now."""
        return self.store.read()

    def run(self) -> None:
        """Follow the source until `stop`."""
        pause = self._before_the_first()
        while not self._stopped.is_set():
            if pause > 0:
                self._wait(pause)
            if self._stopped.is_set():
                return
            try:
                pause = self._follow()
            except Exception as error:
                log.exception("following the pods from %s failed", self.name)
                self._lost(Failure(Reason.INTERNAL, f"{type(error).__name__}: {error}"))
                pause = _AFTER_A_FAULT_OF_OURS

    def _lost(self, failure: Failure) -> None:
        self.store.lost(failure)
        self.decided.set()

    def _before_the_first(self) -> float:
        """Seconds to wait before anything is asked."""
        return 0.0

    @abstractmethod
    def _follow(self) -> float:
        """Follow the source for as long as it goes well, keep the store, and say how long (seconds) to wait then."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End what the thread waits for outside."""
