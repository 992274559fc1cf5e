"""The cgroups of containers: what the kubelet and a runtime call them, and a cgroup v2 file system of files.

Names follow the kubelet's cgroup drivers, QoS classes and the three runtimes, so that the exporter's reading of them
can be tried on every combination. Files hold what was written to them; only device memory is charged, and nothing is
enforced.
"""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path

from simulator.dmem import Dmem

_V1_CONTROLLERS = ("name=systemd", "pids", "memory", "devices", "cpu,cpuacct", "blkio")


@unique
class Driver(StrEnum):
    """Who makes the cgroups of pods."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


@unique
class QoS(StrEnum):
    """The QoS class of a pod; each but the first has a cgroup of its own."""

    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BESTEFFORT = "besteffort"


@unique
class Runtime(StrEnum):
    """The container runtime."""

    CONTAINERD = "containerd"
    CRIO = "crio"
    DOCKER = "docker"


_SCOPE_PREFIX = {Runtime.CONTAINERD: "cri-containerd", Runtime.CRIO: "crio", Runtime.DOCKER: "docker"}


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """The cgroup of one container. Paths start at the node's cgroup root."""

    pod_uid: str
    container_id: str
    driver: Driver = Driver.SYSTEMD
    qos: QoS = QoS.BURSTABLE
    runtime: Runtime = Runtime.CONTAINERD

    @property
    def pod_path(self) -> str:
        """The path of the pod's cgroup."""
        if self.driver is Driver.CGROUPFS:
            level = "" if self.qos is QoS.GUARANTEED else f"/{self.qos}"
            return f"/kubepods{level}/pod{self.pod_uid}"
        level = "" if self.qos is QoS.GUARANTEED else f"/kubepods-{self.qos}.slice"
        stem = "kubepods" if self.qos is QoS.GUARANTEED else f"kubepods-{self.qos}"
        return f"/kubepods.slice{level}/{stem}-pod{self.pod_uid.replace('-', '_')}.slice"

    @property
    def path(self) -> str:
        """The path of the container's cgroup."""
        if self.driver is Driver.SYSTEMD:
            return f"{self.pod_path}/{_SCOPE_PREFIX[self.runtime]}-{self.container_id}.scope"
        prefix = "crio-" if self.runtime is Runtime.CRIO else ""
        return f"{self.pod_path}/{prefix}{self.container_id}"

    @property
    def text(self) -> str:
        """/proc/<pid>/cgroup of its processes on cgroup v2."""
        return f"0::{self.path}\n"

    @property
    def text_v1(self) -> str:
        """/proc/<pid>/cgroup of its processes on cgroup v1."""
        lines = zip(range(len(_V1_CONTROLLERS), 0, -1), _V1_CONTROLLERS, strict=True)
        return "".join(f"{number}:{controller}:{self.path}\n" for number, controller in lines)


class Cgroupfs:
    """A cgroup v2 tree in `root`/fs/cgroup, where `root` stands for /sys.

    `dmem` are the regions of the dmem controller and their bytes; None: a kernel without it.
    """

    def __init__(self, root: Path, *, dmem: Mapping[str, int] | None = None) -> None:
        self.root = root / "fs" / "cgroup"
        self.root.mkdir(parents=True, exist_ok=True)
        self._controllers = "cpuset cpu io memory pids\n" if dmem is None else "cpuset cpu io memory pids dmem\n"
        (self.root / "cgroup.controllers").write_text(self._controllers)
        (self.root / "cgroup.procs").touch()
        self.dmem = None if dmem is None else Dmem(self.root, dmem)

    def put(self, path: str, *, pids: Collection[int] = (), files: Mapping[str, str] | None = None) -> Path:
        """Make a cgroup and those above it, or change it; `files` are further control files and their texts.

        Returns:
            Its directory.
        """
        folder = self.root
        for name in path.strip("/").split("/"):
            folder = folder / name
            if not folder.exists():
                folder.mkdir()
                for control, text in _control_files(self._controllers).items():
                    (folder / control).write_text(text)
                if self.dmem is not None:
                    self.dmem.enable(folder)
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in sorted(pids)))
        (folder / "cgroup.events").write_text(f"populated {int(bool(pids))}\nfrozen 0\n")
        for control, text in (files or {}).items():
            (folder / control).write_text(text)
        return folder

    def remove(self, path: str) -> None:
        """Remove a cgroup and all below it. One that is not there is no error."""
        shutil.rmtree(self.root / path.strip("/"), ignore_errors=True)


def _control_files(controllers: str) -> dict[str, str]:
    """What a new cgroup reads."""
    return {
        "cgroup.procs": "",
        "cgroup.events": "populated 0\nfrozen 0\n",
        "cgroup.controllers": controllers,
        "cgroup.type": "domain\n",
        "cgroup.freeze": "0\n",
        "memory.current": "0\n",
        "memory.max": "max\n",
        "memory.high": "max\n",
    }
