"""What of MPS the environments of processes say, from /proc/<pid>/environ.

Guarantees: an environment belongs to the process that had the pid before and after it was read; it is not older than a
minute (a process replaces it by exec); reading is bounded, and a variable that may lie beyond the bound is not taken
for unset. It will not guess what a process did to its own variables: that is not in /proc. Reading the environment of
another user's process needs CAP_SYS_PTRACE.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import ClientEnvironment, EnvironmentReading, Reading
from exporter.sources.procfs import Stat, parse_stat, read_whole

SOURCE = "environ"

_MOST = 2 << 20  # bytes; a namespace with thousands of services fills hundreds of KiB with their addresses
_LONGEST_VALUE = 16 << 10  # bytes; over 300 UUIDs
_READ_AGAIN = 60.0  # seconds
_START_CODE = 26 - 3  # the 26th field of stat, counted from the one behind the name: 0 until exec has set up the memory
_NAMES = {
    b"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "pinned",
    b"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "percentage",
    b"CUDA_MPS_PIPE_DIRECTORY": "pipe_directory",
    b"CUDA_VISIBLE_DEVICES": "cuda_devices",
    b"NVIDIA_VISIBLE_DEVICES": "nvidia_devices",
}

_EXITED = Failure(Reason.EXITED, "the process has ended")
_REUSED = Failure(Reason.PID_REUSED, "another process got the pid meanwhile")
_HIDDEN = Failure(Reason.NO_PERMISSION, "the environment may not be read: podgpu needs CAP_SYS_PTRACE for it")
_TOO_LARGE = Failure(Reason.TOO_LARGE, f"the environment has more than {_MOST >> 20} MiB, or too long a value")
_STARTING = Failure(Reason.TRANSIENT, "the process is just being started")
_OVERWRITTEN = Failure(Reason.UNREADABLE, "the process has written over its environment, as those do that set a title")


@dataclass(frozen=True, slots=True)
class _Known:
    start: int
    read_at: float
    outcome: ClientEnvironment | Failure


class EnvironSource:
    """Source "environ", of the procfs at `root`. Not for use by several threads at once."""

    def __init__(self, root: Path, *, clock: Clock) -> None:
        self._root = os.fsencode(root)
        self._clock = clock
        self._known: dict[int, _Known] = {}  # those of the last call

    def read(self, pids: Collection[int]) -> Reading[EnvironmentReading]:
        """The environments of the processes that have these pids now."""
        begun = self._clock.monotonic()
        previous, self._known = self._known, {}
        found = {pid: self._of(pid, previous.get(pid), begun) for pid in pids}
        return Reading(SOURCE, EnvironmentReading(found), self._clock.monotonic() - begun)

    def _of(self, pid: int, known: _Known | None, now: float) -> ClientEnvironment | Failure:
        try:
            before = stat(self._root, pid)
            if known is None or known.start != before.start or now - known.read_at >= _READ_AGAIN:
                outcome = environment(self._root, pid, before)
                known = _Known(before.start, now, outcome)
        except (FileNotFoundError, ProcessLookupError):
            return _EXITED
        except PermissionError:
            return _HIDDEN
        except (OSError, ValueError, IndexError) as error:
            return Failure(Reason.UNREADABLE, f"/proc/{pid}: {error}")
        if known.outcome not in (_REUSED, _STARTING):
            self._known[pid] = known
        return known.outcome


def environment(root: bytes, pid: int, before: Stat) -> ClientEnvironment | Failure:
    """The environment of the process that `before` is of.

    Raises:
        OSError: Something of it could not be read.
        ValueError, IndexError: stat is not what proc(5) says.
    """
    begun = _start_code(root, pid)
    found = variables(root, pid, _NAMES)
    after = stat(root, pid)
    if after.start != before.start:
        return _REUSED
    if after.exiting:
        return _EXITED  # its memory may be gone, and what was read empty for that
    if begun == b"0" or begun != _start_code(root, pid):
        return _STARTING  # within exec an environment reads as empty, or in part
    return found if isinstance(found, Failure) else ClientEnvironment(**found)


def _start_code(root: bytes, pid: int) -> bytes:
    """Where a process's program lies. Each exec puts it elsewhere, and last of all."""
    return read_whole(b"%b/%d/stat" % (root, pid)).rpartition(b")")[2].split()[_START_CODE]


def variables(root: bytes, pid: int, names: Mapping[bytes, str]) -> dict[str, str] | Failure:
    """Those of `names` that are set, under the names that they map to. Of two of one name the first counts, as in C.

    Raises:
        OSError: The environment could not be read.
    """
    content = _content(b"%b/%d/environ" % (root, pid))
    if len(content) > _MOST:
        return _TOO_LARGE
    found: dict[str, str] = {}
    for entry in content.removesuffix(b"\0").split(b"\0") if content else ():
        name, equals, value = entry.partition(b"=")
        if not equals:
            return _OVERWRITTEN
        if name in names and names[name] not in found:
            if len(value) > _LONGEST_VALUE:
                return _TOO_LARGE
            found[names[name]] = value.decode("utf-8", "replace")
    return found


def stat(root: bytes, pid: int) -> Stat:
    """A process's name and start time. Raises OSError, ValueError, IndexError."""
    return parse_stat(read_whole(b"%b/%d/stat" % (root, pid)))


def _content(path: bytes) -> bytes:
    """The bytes of an environ, one more than allowed at most."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = bytearray()
        while len(content) <= _MOST and (more := os.read(descriptor, min(1 << 16, _MOST + 1 - len(content)))):
            content += more
        return bytes(content)
    finally:
        os.close(descriptor)
