"""Which process an MPS control daemon is: its pid and start time, and what its environment says.

The pid file lies in a directory that pods may write to, and its number may be of another pid namespace. So it is a
hint: a process counts only if it goes by the daemon's name and, where its own environment and root directory may be
read, works in this very directory. Drivers of the 535 generation write no pid file; then the processes of the node are
searched, again only when the daemon has been restarted, and at most once a minute.

Guarantees: the start time is the same before and after all that is told of a process; a process that is not seen, or
not surely the daemon, is None.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.clock import Clock
from exporter.errors import Failure
from exporter.sources.environs import stat, variables
from exporter.sources.procfs import read_whole
from exporter.sources.regular_files import read_regular

PID_FILE = "nvidia-cuda-mps-control.pid"
DEFAULT_LOG_DIRECTORY = "/var/log/nvidia-mps"
_DEFAULT_PIPE_DIRECTORIES = ("/tmp/nvidia-mps", "/run/nvidia-mps")  # noqa: S108 - the daemon's, not ours

_COMM = b"nvidia-cuda-mps-control"[:15]  # the kernel cuts names
_DAEMON = b"nvidia-cuda-mps-control"
_SERVER = b"nvidia-cuda-mps-server"
_SEARCH_EVERY = 60.0  # seconds
_MOST_PROCESSES = 1 << 16
_NAMES = {
    b"CUDA_MPS_PIPE_DIRECTORY": "pipe_directory",
    b"CUDA_MPS_LOG_DIRECTORY": "log_directory",
    b"CUDA_VISIBLE_DEVICES": "visible",
    b"CUDA_DEVICE_ORDER": "order",
}


@dataclass(frozen=True, slots=True)
class DaemonEnvironment:
    """What a daemon was started with. None: not set."""

    pipe_directory: str | None = None
    log_directory: str | None = None
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    order: str | None = None  # CUDA_DEVICE_ORDER


@dataclass(frozen=True, slots=True)
class DaemonProcess:
    """A control daemon's process. `started` is in clock ticks since boot.

    `environment` is None if it may not be read.
    """

    pid: int
    started: int
    environment: DaemonEnvironment | None = None


class ProcessFinder:
    """Finds the process of one pipe directory's daemon in the procfs at `root`."""

    def __init__(self, root: Path, pipe_directory: str, *, clock: Clock) -> None:
        self._root = os.fsencode(root)
        self._directory = pipe_directory
        self._clock = clock
        self._searched: tuple[tuple[int, ...], float] | None = None  # which sockets there were then, and when
        self._last: int | None = None

    def find(self) -> DaemonProcess | None:
        """The daemon's process as it is now."""
        for pid in self._candidates():
            if (found := self._checked(pid, surely=pid != self._named())) is not None:
                self._last = found.pid
                return found
        self._last = None
        return None

    def _candidates(self) -> Iterator[int]:
        named = self._named()
        if named is not None:
            yield named
        if self._last is not None and self._last != named:
            yield self._last
        sockets = socket_identity(self._directory)
        now = self._clock.monotonic()
        if self._searched is not None and self._searched[0] == sockets and now - self._searched[1] < _SEARCH_EVERY:
            return
        self._searched = (sockets, now)
        yield from _daemons(self._root)

    def _named(self) -> int | None:
        """The pid in the pid file."""
        content = read_regular(os.path.join(self._directory, PID_FILE), most=32)
        if isinstance(content, Failure):
            return None
        text = content.data.strip()
        return int(text) if text.isdigit() and 0 < int(text) < 1 << 31 else None

    def _checked(self, pid: int, *, surely: bool) -> DaemonProcess | None:
        """The process, if it is this directory's daemon; `surely`: only if it can be shown to work in it."""
        try:
            before = stat(self._root, pid)
            if before.comm != _COMM or before.exiting or not _is(self._root, pid, _DAEMON):
                return None
            environment = _environment(self._root, pid)
            here = self._works_here(pid, environment)
            if here is False or (surely and here is None):
                return None
            if stat(self._root, pid).start != before.start:
                return None
        except (OSError, ValueError, IndexError):
            return None
        return DaemonProcess(pid, before.start, environment)

    def _works_here(self, pid: int, environment: DaemonEnvironment | None) -> bool | None:
        """Whether the process's pipe directory, as it sees it itself, is ours. None: it can't be seen."""
        if environment is None:
            return None
        given = environment.pipe_directory
        try:
            ours = os.stat(self._directory)
        except OSError:
            return None
        seen = False
        for path in (given,) if given is not None else _DEFAULT_PIPE_DIRECTORIES:
            try:
                theirs = os.stat(b"%b/%d/root/%b" % (self._root, pid, os.fsencode(path)))
            except PermissionError:
                return None
            except (OSError, ValueError):
                continue
            seen = True
            if os.path.samestat(ours, theirs):
                return True
        return False if seen else None


def socket_identity(pipe_directory: str) -> tuple[int, ...]:
    """What changes when a daemon starts in a directory: it makes its socket anew."""
    try:
        status = os.stat(os.path.join(pipe_directory, "control"), follow_symlinks=False)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns


def server_uid(root: Path, pid: int) -> int | None:
    """The real user of an MPS server, or None.

    A process of that pid counts only if it goes by the server's name: the daemon may count pids in a namespace of its
    own.
    """
    folder = os.fsencode(root)
    try:
        before = stat(folder, pid)
        if before.comm != _COMM or not _is(folder, pid, _SERVER):
            return None
        lines = read_whole(b"%b/%d/status" % (folder, pid)).splitlines()
        uid = next((int(line.split()[1]) for line in lines if line.startswith(b"Uid:")), None)
        return uid if stat(folder, pid).start == before.start else None
    except (OSError, ValueError, IndexError):
        return None


def _daemons(root: bytes) -> Iterator[int]:
    """The pids of all that go by the daemon's name."""
    try:
        with os.scandir(root) as entries:
            for _, entry in zip(range(_MOST_PROCESSES), entries, strict=False):
                if entry.name.isdigit() and _comm(entry.path) == _COMM:
                    yield int(entry.name)
    except OSError:
        return


def _comm(folder: bytes) -> bytes:
    try:
        return read_whole(folder + b"/comm").rstrip(b"\n")
    except OSError:
        return b""


def _is(root: bytes, pid: int, name: bytes) -> bool:
    """Whether a process was started under a name. Raises OSError."""
    return read_whole(b"%b/%d/cmdline" % (root, pid)).split(b"\0", 1)[0].rpartition(b"/")[2] == name


def _environment(root: bytes, pid: int) -> DaemonEnvironment | None:
    try:
        found = variables(root, pid, _NAMES)
    except OSError:
        return None
    return None if isinstance(found, Failure) else DaemonEnvironment(**found)
