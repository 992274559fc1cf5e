"""The daemon in the simulated node's procfs, as the exporter would see the real one.

Its pid there is its real one plus a million, so that it is nobody else's. It is what the daemon calls itself everywhere
while the node has a procfs. A daemon that is killed can't sign off: who simulates the node does it, by `dead`.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from simulator.procfs import Process

ENVIRONMENT = "PODGPU_SIM_PROCFS"
_OFFSET = 1_000_000
_CGROUP = "0::/system.slice/nvidia-mps.service\n"


def shown_pid(procfs: Path | None) -> int:
    """The pid that this process is known by."""
    return os.getpid() if procfs is None else _OFFSET + os.getpid()


def sign_on(procfs: Path, options: Sequence[str]) -> None:
    """Appear, with the options that the daemon was started with."""
    name = "nvidia-cuda-mps-control"
    process = Process(
        shown_pid(procfs),
        _start_ticks(),
        name,
        (name, *options),
        _CGROUP,
        environ={key: value for key, value in os.environ.items() if key.startswith("CUDA_")},
    )
    fresh = procfs / f".new-mps-{os.getpid()}"
    fresh.mkdir(parents=True)
    for file, content in process.files().items():
        (fresh / file).write_bytes(content)
    (fresh / "root").symlink_to("/")
    fresh.rename(procfs / str(process.pid))


def sign_off(procfs: Path) -> None:
    """Disappear."""
    _remove(procfs, procfs / str(shown_pid(procfs)))


def dead(procfs: Path) -> None:
    """Let daemons disappear that ended without signing off."""
    for folder in procfs.iterdir():
        if is_daemon(folder) and not _lives(real_pid(folder), folder):
            _remove(procfs, folder)


def is_daemon(folder: Path) -> bool:
    """Whether a folder of the simulated procfs is a daemon's."""
    return folder.name.isdigit() and int(folder.name) > _OFFSET


def real_pid(folder: Path) -> int:
    """The pid that the daemon of a folder really has."""
    return int(folder.name) - _OFFSET


def _lives(pid: int, folder: Path) -> bool:
    try:
        now = Path(f"/proc/{pid}/stat").read_text()
        then = (folder / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return now.rpartition(")")[2].split()[0] != "Z" and _ticks(now) == _ticks(then)


def _remove(procfs: Path, folder: Path) -> None:
    gone = procfs / f".old-mps-{folder.name}"
    try:
        folder.rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone)


def _start_ticks() -> int:
    return _ticks(Path("/proc/self/stat").read_text())


def _ticks(stat: str) -> int:
    return int(stat.rpartition(")")[2].split()[19])
