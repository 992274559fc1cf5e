"""From a pid of the driver's lists to the place where that process lives.

A pid is a number that the kernel gives away again, so a pid alone proves nothing: an identity is the pair (pid, start
time). A cgroup text belongs to an identity only when the same start time was read on both sides of it; for a process
that the previous cycle already knew, that cycle's start time is one of the two sides.

Guarantees: one bad process costs its own place only; nothing is taken over from a process that no longer has its pid;
where the pids of this procfs are not those of the driver, no process is placed at all. The cgroup is read anew for
every process in every cycle, because processes are moved between cgroups while they run.

It reads stat, cgroup and, for what calls itself an MPS server, cmdline. It never reads what needs CAP_SYS_PTRACE, or
what the workload can shape (environ, mountinfo, root).
"""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from cachetools import LRUCache

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Place, ProcessReading, Reading
from exporter.sources import cgroups

SOURCE = "procfs"

_CAP = 64 * 1024  # twelve cgroup v1 lines of the longest path are 48 KiB
_CHUNK = 4096

# The kernel numbers its initial namespaces by hand: PROC_PID_INIT_INO and PROC_CGROUP_INIT_INO.
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
_INITIAL_CGROUP_NAMESPACE = "cgroup:[4026531835]"

# The kernel cuts names to 15 characters, so the server and its control daemon have the same one.
_MPS_COMM = b"nvidia-cuda-mps"
_MPS_SERVER = b"nvidia-cuda-mps-server"

_PF_EXITING = 0x4

_BLIND = Failure(
    Reason.BLIND_PID_NAMESPACE,
    detail="the processes seen here are not the node's, so the driver's pids are of no use: set hostPID: true",
)

_EXITED = Place(reason=Reason.EXITED)
_REUSED = Place(reason=Reason.PID_REUSED)
_NO_TEXT = Place(reason=Reason.CGROUP_UNREADABLE)


def read_whole(path: bytes) -> bytes:
    """The bytes of a file, read in one go as procfs wants it, at most 64 KiB."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _CHUNK)
        if len(content) < _CHUNK:
            return content
        while len(content) < _CAP and (more := os.read(descriptor, _CAP - len(content))):
            content += more
        return content
    finally:
        os.close(descriptor)


def evidence(root: Path, pid: int) -> tuple[int | None, str | None]:
    """For people: when a process started (clock ticks since boot), and its cgroup text. None: not to be had."""
    folder = b"%b/%d" % (os.fsencode(root), pid)
    try:
        start = parse_stat(read_whole(folder + b"/stat")).start
        return start, read_whole(folder + b"/cgroup").decode("utf-8", "replace").strip()
    except (OSError, ValueError, IndexError):
        return None, None


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/<pid>/stat that identity needs. `start` is in clock ticks since boot."""

    comm: bytes
    exiting: bool
    start: int


@dataclass(frozen=True, slots=True)
class _Identity:
    """A process that the last cycle placed, with the paths to read it again."""

    stat_path: bytes
    cgroup_path: bytes
    stat: Stat
    text: bytes
    place: Place
    server: bool


class ProcfsSource:
    """Places processes by the procfs at `root`.

    `root` is the host's /proc as our own pid namespace shows it. Not for use by several threads at once.
    """

    def __init__(
        self,
        root: Path,
        *,
        read_file: Callable[[bytes], bytes] = read_whole,
        clock: Clock | None = None,
    ) -> None:
        self._root = os.fsencode(root)
        self._read_file = read_file
        self._monotonic = (clock or Clock()).monotonic
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._private = False
        self._identities: dict[int, _Identity] = {}  # those of the last call, so never more than the driver lists
        self._parsed: LRUCache[tuple[bytes, bool], Place] = LRUCache(maxsize=1024)

    def read(self, pids: Collection[int], *, listed_at: float | None = None) -> Reading[ProcessReading]:
        """Place the processes that have these pids now.

        Args:
            pids: Pids as the driver lists them.
            listed_at: When the driver had answered, in seconds of CLOCK_BOOTTIME. A process that started later cannot
                be the one that was listed, and is PID_REUSED.

        Returns:
            One place for each pid; a failure where this procfs does not show the processes of the node.
        """
        began = self._monotonic()
        if (failure := self.namespace_failure()) is not None:
            return Reading(SOURCE, outcome=failure, seconds=self._monotonic() - began)
        private = self.private_cgroup_namespace()
        latest = None if listed_at is None else int(listed_at * self._ticks_per_second)
        if private != self._private:  # every text means something else now
            self._private, self._identities = private, {}
        previous, self._identities = self._identities, {}
        places = {pid: self._place(pid, known=previous.get(pid), latest=latest) for pid in pids}
        return Reading(SOURCE, outcome=ProcessReading(places), seconds=self._monotonic() - began)

    def namespace_failure(self) -> Failure | None:
        """Why no pid of the driver may be looked up here, or None.

        Inside the kernel's initial pid namespace all is well. A node that is itself a container (kind, minikube) has a
        namespace of its own, in which hostPID works too; there, PID 1 must be shown to be outside our own container,
        and this procfs to be of our own namespace. What cannot be shown is taken as blind.
        """
        own = self._root + b"/self"
        if self._link(own + b"/ns/pid") == _INITIAL_PID_NAMESPACE:
            return None
        if not os.path.isdir(own):
            return Failure(
                Reason.MISSING, detail=f"{os.fsdecode(self._root)} is not a procfs: check --path.procfs and its mount"
            )
        try:
            own_text = self._read_file(own + b"/cgroup")
            first_text = self._read_file(self._root + b"/1/cgroup")
            own_pids = _namespace_pids(self._read_file(own + b"/status"))
        except OSError:
            return _BLIND
        # A procfs of an outer namespace shows us with two pids. The driver answers in our own namespace's pids.
        if len(own_pids) != 1 or first_text == own_text:
            return _BLIND
        private = self.private_cgroup_namespace()
        first = cgroups.parse(first_text, private_cgroupns=private)
        if first.reason is not None:
            return _BLIND
        if first.container is not None:
            ours = cgroups.parse(own_text, private_cgroupns=private).container
            # An empty pod uid is how a private cgroup namespace shows a container of our own pod (its pause container).
            if not first.container.pod_uid or (ours is not None and ours.pod_uid == first.container.pod_uid):
                return _BLIND
        return None

    def private_cgroup_namespace(self) -> bool:
        """Whether cgroup paths are relative to our own container.

        A namespace other than the kernel's initial one is not enough: in a node that is a container, a privileged pod
        shares the node's. The root of a container's own namespace is where the container itself is.
        """
        link = self._link(self._root + b"/self/ns/cgroup")
        if link in (_INITIAL_CGROUP_NAMESPACE, ""):
            return False  # no link: the kernel has no cgroup namespaces
        try:
            own_text = self._read_file(self._root + b"/self/cgroup")
        except OSError:
            return True
        return all(line.endswith(b":/") for line in own_text.splitlines())

    def _place(self, pid: int, *, known: _Identity | None, latest: int | None) -> Place:
        """Place one process, and remember it for the next call."""
        try:
            return self._identify(pid, known=known, latest=latest)
        except (FileNotFoundError, ProcessLookupError):
            return _EXITED
        except PermissionError:
            return Place(reason=Reason.NO_PERMISSION)
        except (OSError, ValueError, IndexError):
            return Place(reason=Reason.UNREADABLE)

    def _identify(self, pid: int, *, known: _Identity | None, latest: int | None) -> Place:
        """Read cgroup and start time until they belong together.

        Two tries, because a process can be replaced between two reads; one more when the first try only showed that
        what we knew is out of date.

        Raises:
            OSError: stat could not be read.
            ValueError: stat is not what proc(5) says.
            IndexError: Likewise.
        """
        read = self._read_file
        if known is not None:
            stat_path, cgroup_path = known.stat_path, known.cgroup_path
        else:
            stat_path, cgroup_path = b"%b/%d/stat" % (self._root, pid), b"%b/%d/cgroup" % (self._root, pid)
        unresolved = _REUSED
        for _ in range(2 if known is None else 3):
            before = known.stat if known is not None else parse_stat(read(stat_path))
            text = self._cgroup(cgroup_path)
            server = known is not None and known.server
            if before.comm == _MPS_COMM and not server:
                server = self._is_mps_server(pid)
            after = parse_stat(read(stat_path))
            if after.start != before.start:
                known, unresolved = None, _REUSED
                continue
            if not text:
                unresolved = _NO_TEXT
                continue
            if latest is not None and after.start > latest:
                return _REUSED
            if known is None or known.text != text or known.server != server or known.stat.comm != after.comm:
                place = self._parse(text)
                known = _Identity(stat_path, cgroup_path, after, text, place, server)
            self._identities[pid] = known
            place = known.place
            if after.exiting and not _survives_exit(place, text):
                return _EXITED
            return replace(place, names_mps_server=True) if server and after.comm == _MPS_COMM else place
        return unresolved

    def _cgroup(self, path: bytes) -> bytes:
        """The cgroup text; empty where the kernel refuses it while the process lives."""
        try:
            text = self._read_file(path)
        except (FileNotFoundError, ProcessLookupError):
            raise
        except OSError:
            return b""
        return text if len(text) < _CAP else b""

    def _is_mps_server(self, pid: int) -> bool:
        """Whether the process was started as nvidia-cuda-mps-server, by the first word of its command line."""
        try:
            command_line = self._read_file(b"%b/%d/cmdline" % (self._root, pid))
        except OSError:
            return False
        return command_line.split(b"\0", 1)[0].rpartition(b"/")[2] == _MPS_SERVER

    def _parse(self, text: bytes) -> Place:
        """Parse a cgroup text; processes of one container have the same one."""
        if len(text) > _CHUNK:  # a workload can make its paths long: not at the price of our memory
            return cgroups.parse(text, private_cgroupns=self._private)
        key = (text, self._private)
        place = self._parsed.get(key)
        if place is None:
            place = self._parsed[key] = cgroups.parse(text, private_cgroupns=self._private)
        return place

    def _link(self, path: bytes) -> str:
        """Where a link points; empty when there is none or it may not be read."""
        try:
            return os.fsdecode(os.readlink(path))
        except OSError:
            return ""


def parse_stat(content: bytes) -> Stat:
    """Take /proc/<pid>/stat apart. The name in parentheses may itself hold parentheses, spaces and line ends.

    Raises:
        ValueError: The text has no such form.
        IndexError: The text is too short.
    """
    end = content.rindex(b")")
    fields = content[end + 2 :].split(b" ", 20)  # from field 3, the state
    return Stat(
        comm=content[content.index(b"(") + 1 : end],
        exiting=fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING),
        start=int(fields[19]),
    )


def _survives_exit(place: Place, text: bytes) -> bool:
    """Whether the place of a dying process can still be told from its cgroup text.

    On cgroup v1 every process that has begun to exit reads `/`, which would make it the host's. Only the v2 line
    keeps the path.
    """
    if place.container is not None:
        return True
    return place.reason is None and text.startswith(b"0::") and text.count(b"\n") <= 1


def _namespace_pids(status: bytes) -> list[bytes]:
    """Our own pids in this procfs's namespace and those below it, from the NSpid line of status."""
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            return line.split()[1:]
    return []
