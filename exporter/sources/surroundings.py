"""Our own rights, and what is installed around us: read once, for people.

Guarantees: it only looks; what can't be read is unknown and never taken for absent rights.
"""

import os
import shutil
from pathlib import Path

from exporter.model import Surroundings
from exporter.sources import dmem
from exporter.sources.procfs import read_whole

# The capabilities that matter to podgpu, by their bit in CapEff (capabilities(7)).
_CAPABILITIES = {1: "DAC_OVERRIDE", 2: "DAC_READ_SEARCH", 5: "KILL", 12: "NET_ADMIN", 19: "SYS_PTRACE", 21: "SYS_ADMIN"}
_OWN_STATUS = Path("/proc/self/status")


def surroundings(*, sysfs: Path, control: str, pods_from: str, status: Path = _OWN_STATUS) -> Surroundings:
    """What is around this process. `status` is its own /proc/<pid>/status, whatever procfs the node is read from."""
    root = sysfs / "fs" / "cgroup"
    return Surroundings(
        uid=os.geteuid(),
        capabilities=_capabilities(status),
        cgroup_version=_version(root),
        dmem=_counts(root),
        control=shutil.which(control) is not None,
        pods_from=pods_from,
    )


def _capabilities(status: Path) -> frozenset[str] | None:
    """The effective ones of those that matter; a mask with all bits is told by those alone."""
    try:
        lines = read_whole(os.fsencode(status)).splitlines()
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith(b"CapEff:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return frozenset(name for bit, name in _CAPABILITIES.items() if mask >> bit & 1)


def _version(root: Path) -> int | None:
    if (root / "cgroup.controllers").exists():
        return 2
    return 1 if any((root / controller).is_dir() for controller in ("memory", "systemd", "pids")) else None


def _counts(root: Path) -> bool:
    try:
        return bool(dmem.regions(read_whole(os.fsencode(root / "dmem.capacity"))))
    except OSError:
        return False
