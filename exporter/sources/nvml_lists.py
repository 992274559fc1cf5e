"""The driver's process lists with one driver call each.

One call, not two: each walks every GPU client of the machine under a driver-wide lock.

The layout of a row is not taken on trust. Early 535 drivers wrote longer rows under the same symbol, which scrambles
every row after the first. How far the driver wrote into the marked buffer tells the length of its rows, whatever its
version says.
"""

import struct
from collections.abc import Iterator

import pynvml

from exporter.errors import Failure, Reason
from exporter.model import ListKind, ProcessList, ProcessRow
from exporter.sources.nvml_codes import CodeClass, classify, failure
from exporter.sources.nvml_rows import LARGEST_PID, MARK, MOST_MEMORY, RowBuffer

KERNEL_LIST_LIMIT = 950  # the kernel driver drops every process above this number without an error
_LONGEST_ROW = 40  # room for every layout that a driver has written
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF

# Row layouts by length: pid, bytes used; the rest (instance ids, protected memory) is not needed here.
_ROWS = {
    16: struct.Struct("=I4xQ"),
    24: struct.Struct("=I4xQ8x"),
    32: struct.Struct("=I4xQ16x"),
    40: struct.Struct("=I4xQ24x"),
}

_STEMS = {
    ListKind.COMPUTE: "nvmlDeviceGetComputeRunningProcesses",
    ListKind.GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses",
    ListKind.MPS: "nvmlDeviceGetMPSComputeRunningProcesses",
}
# Newest first. The unversioned symbol writes rows of 16 bytes, the versioned ones of 24 or more.
_VERSIONS = (("_v3", (24, 32, 40)), ("_v2", (24,)), ("", (16,)))


class ProcessLists:
    """Reads the three lists of one handle. Not for use from several threads: the buffer is shared."""

    def __init__(self) -> None:
        self._buffer = RowBuffer(_LONGEST_ROW)
        self._version: dict[ListKind, int] = {}
        self._absent: dict[ListKind, Failure] = {}

    def read(self, handle: object, kind: ListKind, *, capacity_bytes: int | None) -> ProcessList | Failure:
        """The rows of one list, as bytes per process.

        Source: nvmlDeviceGetComputeRunningProcesses, and its Graphics and MPSCompute siblings.

        `capacity_bytes` is the size of the memory domain, where known: no process can hold more, so such a row is a
        misread one. A list in which at least half of the rows are impossible is rejected as a whole.
        """
        if kind in self._absent:
            return self._absent[kind]
        while True:
            suffix, lengths = _VERSIONS[self._version.setdefault(kind, 0)]
            symbol = _STEMS[kind] + suffix
            raw = self._buffer.ask(symbol, lambda function, size, rows: function(handle, size, rows))
            if not isinstance(raw, int):
                break
            if raw == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND and self._version[kind] + 1 < len(_VERSIONS):
                self._version[kind] += 1
                continue
            problem = failure(raw, call=symbol)
            if classify(raw) is CodeClass.ABSENT:
                self._absent[kind] = problem
            return problem
        count, buffer = raw
        written = buffer.rstrip(MARK)
        length = next((n for n in lengths if len(written) <= n * count), None)
        if length is None:
            return Failure(Reason.ROWS_REJECTED, f"{symbol}: {count} rows in a layout that podgpu does not know")
        return _accept(_ROWS[length].iter_unpack(written.ljust(length * count, MARK)), symbol, count, capacity_bytes)


def _accept(
    rows: Iterator[tuple[int, int]], symbol: str, count: int, capacity_bytes: int | None
) -> ProcessList | Failure:
    accepted = []
    for pid, used in rows:
        if not 0 < pid <= LARGEST_PID:
            continue
        if used == _NOT_AVAILABLE:
            accepted.append(ProcessRow(pid, None))
        elif used <= (MOST_MEMORY if capacity_bytes is None else capacity_bytes):
            accepted.append(ProcessRow(pid, used))
    rejected = count - len(accepted)
    if rejected * 2 >= count > 0:
        return Failure(Reason.ROWS_REJECTED, f"{symbol}: {rejected} of {count} rows are impossible, so none is used")
    return ProcessList(tuple(accepted), truncated=count == KERNEL_LIST_LIMIT, rejected=rejected)
