"""The driver's process lists with one driver call each.

Why not pynvml's own functions: they ask twice (a size query first), and each call walks every GPU client of the machine
under a driver-wide lock; they give up when a process starts between the two; and they cost some microseconds a row.
Here the buffer is kept and grows when the driver says that it is too small.

The layout of a row is not taken on trust. Early 535 drivers wrote longer rows under the same symbol, which scrambles
every row after the first. The buffer is filled with a mark before each call, so how far the driver wrote tells the
length of its rows, whatever its version says.
"""

import ctypes
import struct
from collections.abc import Iterator

import pynvml

from exporter.errors import Failure, Reason
from exporter.model import ListKind, ProcessList, ProcessRow
from exporter.sources.nvml_codes import CodeClass, classify, failure

KERNEL_LIST_LIMIT = 950  # the kernel driver drops every process above this number without an error
_FIRST_CAPACITY = 256
_LARGEST_CAPACITY = 4096
_MARK = b"\xa5"
_LONGEST_ROW = 40  # room for every layout that a driver has written
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
_LARGEST_PID = 4 * 1024 * 1024  # the kernel's PID_MAX_LIMIT on 64 bits

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
        self._capacity = 0
        self._buffer = ctypes.create_string_buffer(0)
        self._count = ctypes.c_uint()
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
            raw = self._call(symbol, handle)
            if not isinstance(raw, int):
                break
            if raw == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND and self._version[kind] + 1 < len(_VERSIONS):
                self._version[kind] += 1
                continue
            problem = failure(raw, call=symbol)
            if classify(raw) is CodeClass.ABSENT:
                self._absent[kind] = problem
            return problem
        count, written = raw
        length = next((n for n in lengths if len(written) <= n * count), None)
        if length is None:
            return Failure(Reason.ROWS_REJECTED, f"{symbol}: {count} rows in a layout that podgpu does not know")
        return _accept(_ROWS[length].iter_unpack(written.ljust(length * count, _MARK)), symbol, count, capacity_bytes)

    def _call(self, symbol: str, handle: object) -> tuple[int, bytes] | int:
        """One call, repeated with a larger buffer while processes outnumber it. Rows and their bytes, or a code."""
        try:
            function = pynvml._nvmlGetFunctionPointer(symbol)
        except pynvml.NVMLError as error:
            return int(error.value)
        capacity = self._capacity or _FIRST_CAPACITY
        while True:
            if capacity > self._capacity:
                self._capacity = capacity
                self._buffer = ctypes.create_string_buffer(capacity * _LONGEST_ROW)
            ctypes.memset(self._buffer, _MARK[0], len(self._buffer))
            self._count.value = self._capacity
            code = int(function(handle, ctypes.byref(self._count), self._buffer))
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            # More processes may start before the next try, so leave room beyond what the driver asks for.
            capacity = max(self._count.value, self._capacity) * 2
            if capacity > _LARGEST_CAPACITY:
                break
        if code != pynvml.NVML_SUCCESS:
            return code
        count = min(self._count.value, self._capacity)
        return count, ctypes.string_at(self._buffer, count * _LONGEST_ROW).rstrip(_MARK)


def _accept(
    rows: Iterator[tuple[int, int]], symbol: str, count: int, capacity_bytes: int | None
) -> ProcessList | Failure:
    accepted = []
    for pid, used in rows:
        if not 0 < pid <= _LARGEST_PID:
            continue
        if used == _NOT_AVAILABLE:
            accepted.append(ProcessRow(pid, None))
        elif capacity_bytes is None or used <= capacity_bytes:
            accepted.append(ProcessRow(pid, used))
    rejected = count - len(accepted)
    if rejected * 2 >= count > 0:
        return Failure(Reason.ROWS_REJECTED, f"{symbol}: {rejected} of {count} rows are impossible, so none is used")
    return ProcessList(tuple(accepted), truncated=count == KERNEL_LIST_LIMIT, rejected=rejected)
