"""The MPS control daemons of the node, each read by a worker of its own.

Guarantees: a daemon that does not answer costs one deadline a cycle and its own entry; what is read is only asked for,
never set; a node without a pipe directory costs a few looks into directories, and the reading then says that there are
no daemons. Workers of directories that have gone end.
"""

import functools
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from exporter.clock import Clock
from exporter.errors import Failure
from exporter.model import Device, MpsDaemon, MpsReading, Reading
from exporter.sources.mps_control import DEADLINE
from exporter.sources.mps_daemon import DaemonReader
from exporter.sources.mps_discovery import pipe_directories
from exporter.sources.mps_protocol import ProtocolThree
from exporter.sources.mps_two import SETTINGS_AGE
from exporter.sources.worker import Worker

log = logging.getLogger(__name__)

SOURCE = "mps"
_FOR_READING = 0.9  # of the deadline; the rest is for telling that a daemon did not answer


@dataclass(frozen=True, slots=True)
class _Watched:
    """A pipe directory that is read."""

    reader: DaemonReader
    worker: Worker[MpsDaemon]


class MpsSource:
    """Source "mps". `read` answers within the deadline (seconds), whatever daemons and directories do.

    `settings_age` (seconds) is how old the shares and limits of a daemon of protocol 2 may be while nothing else of it
    has changed: each of them takes a command.
    """

    def __init__(
        self,
        directories: Sequence[str],
        *,
        binary: str,
        procfs: Path,
        deadline: float,
        clock: Clock,
        settings_age: float = SETTINGS_AGE,
    ) -> None:
        self._settings_age = settings_age
        self._directories = directories
        self._binary = binary
        self._procfs = procfs
        self._deadline = deadline
        self._clock = clock
        self._three = ProtocolThree(binary, clock=clock)
        self._discovery: Worker[Mapping[str, Failure | None]] = Worker("mps discovery", clock=clock)
        self._watched: dict[str, _Watched] = {}

    def read(self, gpus: Collection[Device]) -> Reading[MpsReading]:
        """Every daemon's reading; `gpus` are the node's. A failure only where the looking itself hangs."""
        begun = self._clock.monotonic()
        outcome = self._read(tuple(gpus), begun + self._deadline)
        return Reading(SOURCE, outcome, self._clock.monotonic() - begun)

    def stop(self) -> None:
        """Let the threads end after their present calls."""
        self._discovery.stop()
        for watched in self._watched.values():
            watched.worker.stop()

    def _read(self, gpus: tuple[Device, ...], until: float) -> MpsReading | Failure:
        self._discovery.ask(lambda: pipe_directories(self._directories))
        found, _ = self._discovery.answer(until=until)
        if isinstance(found, Failure):
            return found
        for path in [path for path in self._watched if path not in found]:
            self._watched.pop(path).worker.stop()
        asked = [path for path, problem in found.items() if problem is None]
        for path in asked:
            watched = self._watched.get(path) or self._watch(path)
            watched.worker.ask(functools.partial(watched.reader.read, gpus))
        daemons: dict[str, MpsDaemon | Failure] = {path: problem for path, problem in found.items() if problem}
        for path in asked:
            daemons[path], _ = self._watched[path].worker.answer(until=until)
        return MpsReading(MappingProxyType(daemons))

    def _watch(self, path: str) -> _Watched:
        """Begin to read a directory."""
        reader = DaemonReader(
            path,
            self._binary,
            self._three,
            procfs=self._procfs,
            deadline=min(DEADLINE, _FOR_READING * self._deadline),
            clock=self._clock,
            settings_age=self._settings_age,
        )
        watched = self._watched[path] = _Watched(reader, Worker(f"mps {path}", clock=self._clock))
        log.info("found an MPS pipe directory: %s", path)
        return watched
