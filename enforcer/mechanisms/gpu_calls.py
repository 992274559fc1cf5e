"""Calls to the driver about one GPU, each of which may never return.

Guarantees: an answer by the deadline; while a call about a GPU is out, no second one is made about it, and other GPUs
do not wait for it; the library is not stopped below a call; a handle is opened for each call, so that none is stale.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

from exporter.clock import Clock
from exporter.errors import Failure
from exporter.sources.library_use import LibraryUse
from exporter.sources.nvml_codes import failure
from exporter.sources.worker import Worker

T = TypeVar("T")


class GpuCalls:
    """`deadline` is in seconds, for each call; `use` is shared with all others that call NVML."""

    def __init__(self, *, deadline: float, clock: Clock, use: LibraryUse) -> None:
        self._deadline = deadline
        self._clock = clock
        self._use = use
        self._workers: dict[str, Worker[Any]] = {}

    def call(self, uuid: str, job: Callable[[object], T | Failure]) -> T | Failure:
        """What the job answers for the GPU's handle. A return code that it does not catch is a failure."""
        worker: Worker[T] | None = self._workers.get(uuid)
        if worker is None:
            worker = self._workers[uuid] = Worker(f"changes of {uuid}", clock=self._clock)
        worker.ask(lambda: self._run(uuid, job))
        answer, _ = worker.answer(until=self._clock.monotonic() + self._deadline)
        return answer

    def stop(self) -> None:
        """Let the threads end after their present calls."""
        for worker in self._workers.values():
            worker.stop()

    def _run(self, uuid: str, job: Callable[[object], T | Failure]) -> T | Failure:
        with self._use.calling():
            try:
                return job(pynvml.nvmlDeviceGetHandleByUUID(uuid))
            except pynvml.NVMLError as error:
                return failure(int(error.value), call=f"a change of {uuid}")
