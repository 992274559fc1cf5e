"""One control command at a time for each pipe directory.

A daemon that is asked by two at once loses commands, and says nothing of it. Within this process a lock keeps the
order, between the programs of podgpu a lock on a file beside the pipe directory. Beside, not inside: what is inside is
mounted into pods.

Guarantees: waiting ends at the caller's deadline; nobody but root and our own user can hold up podgpu by holding the
file's lock, because a file of anybody else is not taken for ours. Where no such file can be had (a read-only mount, in
which podgpu has never written) only this process keeps the order. It will not keep out callers that know nothing of
the lock, so a command may still be lost.
"""

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from weakref import WeakValueDictionary

from exporter.clock import Clock

_POLL = 0.002  # seconds between tries for the file's lock; a command takes about as long
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_guard = threading.Lock()
_locks: "WeakValueDictionary[str, threading.Lock]" = WeakValueDictionary()  # by resolved pipe directory


@contextlib.contextmanager
def alone(pipe_directory: str, *, until: float, clock: Clock) -> Iterator[bool]:
    """Be the only one who talks to a directory's daemon. Yields False when that was not so by `until` (monotonic)."""
    resolved = os.path.realpath(pipe_directory)
    with _guard:
        lock = _locks.get(resolved)
        if lock is None:
            lock = _locks[resolved] = threading.Lock()
    if not lock.acquire(timeout=max(0.0, until - clock.monotonic())):
        yield False
        return
    try:
        descriptor = _open(lock_file(resolved))
        try:
            yield descriptor is None or _locked(descriptor, until=until, clock=clock)
        finally:
            if descriptor is not None:
                os.close(descriptor)
    finally:
        lock.release()


def lock_file(resolved: str) -> str:
    """The file beside a pipe directory whose lock the programs of podgpu take."""
    parent, name = os.path.split(resolved)
    return os.path.join(parent, f".{name}.podgpu.lock")


def _open(path: str) -> int | None:
    """The lock file, made where it is missing and can be; None where there is none that is ours."""
    for flags in (_READ, _READ | os.O_CREAT | os.O_EXCL, _READ):  # last: somebody else made it in between
        try:
            descriptor = os.open(path, flags, 0o600)
        except (FileNotFoundError, FileExistsError):
            continue
        except OSError:
            return None
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid()):
            return descriptor
        os.close(descriptor)
        return None
    return None


def _locked(descriptor: int, *, until: float, clock: Clock) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.monotonic() >= until:
                return False
            time.sleep(_POLL)
        except OSError:
            return True  # a file system without locks
        else:
            return True
