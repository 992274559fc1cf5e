"""The processes of one memory domain: merged over the driver's lists, summed up, and parted into classes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum

from exporter.errors import Failure, Reason
from exporter.model import DriverReading, ListKind, MemoryClass, ProcessList, UtilizationWindow

_KINDS = (ListKind.MPS, ListKind.COMPUTE, ListKind.GRAPHICS)  # a process is counted under the first that lists it
_NO_PROCESSES = dict.fromkeys(ListKind, 0)  # copied for each container: walking an enum is slow


@dataclass(slots=True)
class Process:
    """A process of one domain, merged over the lists."""

    kind: ListKind
    used: int | None
    sm: float | None


@dataclass(slots=True)
class Use:
    """What the processes of one container, or of one class, hold together. `used` is in bytes."""

    used: int = 0
    unknown: int = 0
    kinds: dict[ListKind, int] = field(default_factory=_NO_PROCESSES.copy)
    sm: list[float | None] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)

    @property
    def utilization(self) -> float | None:
        """Share 0..1 of the SMs' time. None where it is not known of each process, or there is none."""
        known = [share for share in self.sm if share is not None]
        if not known or len(known) < len(self.sm):
            return None
        return min(1.0, fsum(known))  # processes that took turns cannot have used more than the device

    def add(self, pid: int, process: Process) -> None:
        """Count a process in."""
        self.pids.append(pid)
        self.kinds[process.kind] += 1
        self.sm.append(process.sm)
        if process.used is None:
            self.unknown += 1
        else:
            self.used += process.used


def listed_pids(driver: DriverReading | None) -> frozenset[int]:
    """Every process that some list of some GPU names."""
    return frozenset(
        row.pid
        for device in (driver.devices if driver is not None else ())
        for domain in device.domains
        for rows in domain.lists.values()
        if isinstance(rows, ProcessList)
        for row in rows.rows
    )


def merge(
    lists: Mapping[ListKind, ProcessList | Failure], window: UtilizationWindow | Failure | None
) -> dict[int, Process] | None:
    """One entry per pid, or None when a list that may hold processes could not be read.

    A driver without graphics or MPS lists has no such processes to tell of; without the compute list nothing is known.
    A process that a window does not name was idle in it.
    """
    busy = {found.pid: found.sm for found in window.processes} if isinstance(window, UtilizationWindow) else None
    merged: dict[int, Process] = {}
    for kind in _KINDS:
        rows = lists.get(kind, ProcessList())
        if isinstance(rows, Failure):
            if kind is ListKind.COMPUTE or rows.reason is not Reason.NOT_SUPPORTED:
                return None
            continue
        for row in rows.rows:
            known = merged.get(row.pid)
            if known is None:
                merged[row.pid] = Process(kind, row.used, busy.get(row.pid, 0.0) if busy is not None else None)
            elif row.used is not None:
                known.used = row.used if known.used is None else max(known.used, row.used)
    return merged


def partition(used: int, uses: Mapping[MemoryClass, Use]) -> tuple[dict[MemoryClass, int], int]:
    """What is used, split into classes, and by how much the rows exceed it.

    A class with a process of unknown memory is not known, and neither is what no row explains: they are `unread`
    together.
    """
    known = {kind: use.used for kind, use in uses.items() if use.unknown == 0}
    rest = used - sum(known.values())
    least_unknown = sum(use.used for use in uses.values() if use.unknown)
    known[MemoryClass.REMAINDER if len(known) == len(uses) else MemoryClass.UNREAD] = max(0, rest)
    return known, max(0, least_unknown - rest)
