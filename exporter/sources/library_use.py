"""Who is inside the driver's library, so that it is never stopped below a running call.

The library is one for the whole process. One source starts it, and stops it to start it anew; others call it on threads
of their own. Stopping it while a call is out crashes the process, and handles from before a new start are worthless.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LibraryUse:
    """Calls of other sources, counted. Safe for use by several threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._starts = 0

    @contextmanager
    def calling(self) -> Iterator[int]:
        """For the time of calls. Gives the number of the library's starts: with another one, handles are worthless."""
        with self._lock:
            self._inside += 1
            starts = self._starts
        try:
            yield starts
        finally:
            with self._lock:
                self._inside -= 1

    @contextmanager
    def stopping(self) -> Iterator[bool]:
        """For the time of a stop. False while a call is out, and then nothing may be stopped; new calls wait."""
        with self._lock:
            alone = self._inside == 0
            if alone:
                self._starts += 1
            yield alone
