"""A procfs of files: what the exporter reads of a node's processes, made up.

It has the files whose text decides something (stat, cgroup, cmdline, comm, status, environ, and our own namespaces),
in the kernel's format. Each file is replaced as a whole, and a process appears and vanishes with all its files, so a
reader sees what a reader of the real one may see and nothing torn. It does not simulate counters: every process has
used no CPU time.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

INITIAL_PID_NAMESPACE = 4026531836
INITIAL_CGROUP_NAMESPACE = 4026531835
CONTAINER_PID_NAMESPACE = 4026532758
CONTAINER_CGROUP_NAMESPACE = 4026532823

_PF_EXITING = 0x4
_PF_KTHREAD = 0x200000
_COMM_LENGTH = 15


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `start_time` is in clock ticks since boot; `comm` is cut to 15 bytes as the kernel does."""

    pid: int
    start_time: int
    comm: str
    argv: tuple[str, ...]
    cgroup_text: str
    state: str = "S"
    flags: int = 0x400000
    environ: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0

    def files(self) -> dict[str, bytes]:
        """Its files and their contents."""
        comm = self.comm.encode()[:_COMM_LENGTH]
        stat = [b"1", b"%d" % self.pid, b"%d" % self.pid, b"0", b"-1", b"%d" % self.flags, *[b"0"] * 10]
        code = b"4096" if self.argv else b"0"  # where its program lies; 0: it is within exec, or none
        stat += [b"1", b"0", b"%d" % self.start_time, *[b"0"] * 3, code, *[b"0"] * 26]
        state = {"Z": "Z (zombie)", "R": "R (running)", "D": "D (disk sleep)", "X": "X (dead)"}.get(
            self.state, "S (sleeping)"
        )
        return {
            "stat": b"%d (%b) %b %b\n" % (self.pid, comm, self.state.encode(), b" ".join(stat)),
            "cgroup": self.cgroup_text.encode(),
            "cmdline": b"" if self.state == "Z" else b"".join(word.encode() + b"\0" for word in self.argv),
            "comm": comm + b"\n",
            "environ": b""
            if self.state == "Z"
            else b"".join(f"{name}={value}".encode() + b"\0" for name, value in self.environ.items()),
            "status": b"Name:\t"
            + comm.replace(b"\n", b"\\n")
            + f"\nState:\t{state}\nTgid:\t{self.pid}\nPid:\t{self.pid}\n"
            f"Uid:\t{self.uid}\t{self.uid}\t{self.uid}\t{self.uid}\nNSpid:\t{self.pid}\n".encode(),
        }


class Procfs:
    """Writes a procfs below `root`.

    It starts with PID 1 and kthreadd, seen by an agent in the node's own pid namespace. With `blind`, it is what an
    agent without hostPID sees: its own container, whose first process it is itself.
    """

    def __init__(self, root: Path, *, blind: bool = False) -> None:
        self.root = root
        self._processes: dict[int, Process] = {}
        self._serial = count()
        root.mkdir(parents=True, exist_ok=True)
        if blind:
            self.put(Process(1, 4000, "podgpu", ("podgpu", "exporter"), "0::/\n"))
            self.set_self(
                "0::/\n", pid_namespace=CONTAINER_PID_NAMESPACE, cgroup_namespace=CONTAINER_CGROUP_NAMESPACE, pids=(1,)
            )
        else:
            self.put(Process(1, 1, "systemd", ("/sbin/init",), "0::/init.scope\n"))
            self.put(Process(2, 1, "kthreadd", (), "0::/\n", flags=_PF_KTHREAD))
            self.set_self("0::/system.slice/podgpu.service\n")

    def set_self(
        self,
        cgroup_text: str,
        *,
        pid_namespace: int = INITIAL_PID_NAMESPACE,
        cgroup_namespace: int = INITIAL_CGROUP_NAMESPACE,
        pids: tuple[int, ...] = (900,),
    ) -> None:
        """Set what the agent sees of itself; `pids` are its pids in this procfs's namespace and those below it."""
        namespaces = self.root / "self" / "ns"
        namespaces.mkdir(parents=True, exist_ok=True)
        self._link(namespaces / "pid", f"pid:[{pid_namespace}]")
        self._link(namespaces / "cgroup", f"cgroup:[{cgroup_namespace}]")
        self._write(self.root / "self" / "cgroup", cgroup_text.encode())
        nspid = "\t".join(str(pid) for pid in pids)
        self._write(self.root / "self" / "status", f"Name:\tpodgpu\nPid:\t{pids[0]}\nNSpid:\t{nspid}\n".encode())

    def put(self, process: Process) -> None:
        """Start a process, change it, or (with another start time) give its pid to a new one."""
        folder = self.root / str(process.pid)
        previous = self._processes.get(process.pid)
        if previous is not None and previous.start_time == process.start_time:
            for name, content in process.files().items():
                self._write(folder / name, content)
        else:
            if previous is not None:
                self.remove(process.pid)
            fresh = self.root / f".new-{next(self._serial)}"
            fresh.mkdir()
            for name, content in process.files().items():
                (fresh / name).write_bytes(content)
            fresh.rename(folder)
        self._processes[process.pid] = process

    def make_zombie(self, pid: int, *, cgroup_text: str | None = None) -> None:
        """Let a process end without being reaped; `cgroup_text` is what its cgroup reads from now on."""
        process = self._processes[pid]
        self.put(replace(process, state="Z", cgroup_text=process.cgroup_text if cgroup_text is None else cgroup_text))

    def remove(self, pid: int) -> None:
        """Reap a process. One that is not there is no error: a scenario may end what has ended."""
        if self._processes.pop(pid, None) is None:
            return
        dead = self.root / f".old-{next(self._serial)}"
        (self.root / str(pid)).rename(dead)
        shutil.rmtree(dead)

    def _write(self, path: Path, content: bytes) -> None:
        fresh = self.root / f".new-{next(self._serial)}"
        fresh.write_bytes(content)
        fresh.replace(path)

    def _link(self, path: Path, target: str) -> None:
        fresh = self.root / f".new-{next(self._serial)}"
        os.symlink(target, fresh)
        fresh.replace(path)
