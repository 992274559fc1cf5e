"""One driver call for an array of rows, into a buffer that is kept.

Why not pynvml's own functions: they ask twice (a size query first), they give up when a row is added between the two,
they cost some microseconds a row, and some raise on an empty answer. Here the buffer grows when the driver says that it
is too small. It is filled with a mark before each call, so that what the driver did not write can be told from what it
wrote.

It will not say what a row means: that is for `exporter.sources.nvml_lists` and `exporter.sources.nvml_utilization`.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

LARGEST_PID = 4 * 1024 * 1024  # the kernel's PID_MAX_LIMIT on 64 bits
MOST_MEMORY = 1 << 46  # bytes; what drivers return in place of a number is larger, and no GPU has as much
MARK = b"\xa5"
_FIRST_CAPACITY = 256
_LARGEST_CAPACITY = 4096

# The driver's function, a pointer to the number of rows, and the rows; answers the driver's return code.
Call = Callable[[Any, Any, Any], int]


class RowBuffer:
    """A buffer for rows of at most `row_bytes`. Not for use from several threads."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        self._capacity = 0
        self._buffer = ctypes.create_string_buffer(0)
        self._count = ctypes.c_uint()

    def ask(self, symbol: str, call: Call) -> tuple[int, bytes] | int:
        """One call, repeated with a larger buffer while the rows outnumber it.

        Returns the number of rows and the bytes of the buffer that have room for them, or the driver's return code.
        """
        try:
            function = pynvml._nvmlGetFunctionPointer(symbol)
        except pynvml.NVMLError as error:
            return int(error.value)
        capacity = self._capacity or _FIRST_CAPACITY
        while True:
            if capacity > self._capacity:
                self._capacity = capacity
                self._buffer = ctypes.create_string_buffer(capacity * self._row_bytes)
            ctypes.memset(self._buffer, MARK[0], len(self._buffer))
            self._count.value = self._capacity
            code = int(call(function, ctypes.byref(self._count), self._buffer))
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            # More processes may start before the next try, so leave room beyond what the driver asks for.
            capacity = max(self._count.value, self._capacity) * 2
            if capacity > _LARGEST_CAPACITY:
                break
        if code != pynvml.NVML_SUCCESS:
            return code
        count = min(self._count.value, self._capacity)
        return count, ctypes.string_at(self._buffer, count * self._row_bytes)
