"""What the kernel and the driver say of the GPU memory of cgroups: charges and limits by container and by pod.

Per GPU there is one who counts. Where the kernel's dmem controller knows the GPU, its files are read, and the driver
is not asked. Else the driver's own table is, each GPU by a worker of its own, and only for the containers that the
caller names on it.

NVML opens the path that it is given in our own mount namespace, so it gets the path that we read ourselves. That is
/sys/fs/cgroup where the host's /sys is mounted there, as NVIDIA asks for. Below another folder it is the same tree only
if that folder is a bind mount of the host's cgroup file system; a copy, or a cgroup namespace of our own, would be
another one.

Guarantees: only what was read in this cycle is told; `max` is no limit and never a number; what cannot be told apart
from "nothing" is missing. With a driver before 615 and no dmem files for its GPUs it costs one failed open. GPUs in MIG
mode have no limits of this kind and are left out. It writes nothing and sets nothing.
"""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Backend, CgroupMemory, ContainerMemory, ContainerRef, Device, LimitReading, Reading
from exporter.sources import dmem
from exporter.sources.container_cgroups import ContainerCgroups, Directories, own_directory
from exporter.sources.library_use import LibraryUse
from exporter.sources.nvml_limits import NO_GETTER, Getter, GpuLimits
from exporter.sources.procfs import read_whole
from exporter.sources.worker import Worker

SOURCE = "memory_limits"

_NOT_UNIFIED = Failure(
    Reason.NOT_SUPPORTED, "GPU memory of cgroups needs cgroup v2, and --path.sysfs shows no such tree in fs/cgroup"
)

_Texts = tuple[bytes, bytes, bytes]  # of dmem.current, dmem.max and dmem.min


class _Gpu:
    """The worker that asks the driver about one GPU."""

    def __init__(self, uuid: str, *, clock: Clock, use: LibraryUse) -> None:
        self.worker: Worker[GpuLimits] = Worker(f"memory limits of {uuid}", clock=clock)
        self.getter = Getter(uuid, use=use)


class MemoryLimits:
    """Source "memory_limits". `read` answers within the deadline (seconds), whatever the driver does.

    `sysfs` and `procfs` are the host's /sys and /proc; `use` is shared with all others that call NVML. Not for use by
    several threads at once.
    """

    def __init__(
        self, sysfs: Path, procfs: Path, *, deadline: float, clock: Clock, use: LibraryUse | None = None
    ) -> None:
        self._root = sysfs / "fs" / "cgroup"
        self._procfs = procfs
        self._deadline = deadline
        self._clock = clock
        self._use = use or LibraryUse()
        self._cgroups = ContainerCgroups(self._root, clock=clock)
        self._gpus: dict[str, _Gpu] = {}
        self._without_getter = False

    def read(self, wanted: Mapping[Device, Collection[ContainerRef]]) -> Reading[LimitReading]:
        """Charges and limits of the containers that are `wanted` on each GPU; a GPU without any is asked about us.

        A failure NOT_SUPPORTED holds until the exporter, the driver or the kernel is another one.
        """
        begun = self._clock.monotonic()
        try:
            outcome = self._read(wanted, until=begun + self._deadline)
        except OSError as error:
            outcome = Failure(Reason.UNREADABLE, f"{error.filename}: {error.strerror}; mount the host's /sys read-only")
        return Reading(SOURCE, outcome, self._clock.monotonic() - begun)

    def stop(self) -> None:
        """Let the threads end. Does not wait: a call may never return."""
        for gpu in self._gpus.values():
            gpu.worker.stop()

    def _read(self, wanted: Mapping[Device, Collection[ContainerRef]], *, until: float) -> LimitReading | Failure:
        regions = self._regions()
        devices = {device: set(refs) for device, refs in wanted.items() if not device.mig_mode}
        keys = {device: dmem.region(device.pci_bus_id) for device in devices}
        by_kernel = {device: key for device, key in keys.items() if key is not None and key in regions}
        by_driver = [] if self._without_getter else [device for device in devices if device not in by_kernel]
        if devices and not by_kernel and not by_driver:
            return NO_GETTER
        if not self._cgroups.unified:
            return _NOT_UNIFIED
        places = self._cgroups.find(set().union(*(devices[device] for device in (*by_kernel, *by_driver))))
        if not places and any(devices.values()) and not self._cgroups.visible:
            return Failure(
                Reason.MISSING,
                f"no pod's cgroup is visible below {self._root}: mount the host's /sys and name it with --path.sysfs",
            )
        own = own_directory(self._procfs, self._root)
        for device in by_driver:
            self._ask(device, {ref: places[ref] for ref in devices[device] if ref in places}, own)
        found: dict[tuple[ContainerRef, str], ContainerMemory | Failure] = {}
        limited: list[bool | None] = []
        backends = {device.uuid: Backend.DMEM for device in by_kernel}
        files = _Files()
        for device, key in by_kernel.items():
            for ref in devices[device] & places.keys():
                if (known := files.container(places[ref], key)) is not None:
                    found[ref, device.uuid] = known
            limited.append(None if own is None else files.limited(own, key))
        for device in by_driver:
            answer, _ = self._gpus[device.uuid].worker.answer(until=until)
            if answer is NO_GETTER:
                self._without_getter = True
                continue
            backends[device.uuid] = Backend.MISC
            if isinstance(answer, Failure):
                found |= {(ref, device.uuid): answer for ref in devices[device] & places.keys()}
                limited.append(None)
            else:
                found |= {(ref, device.uuid): known for ref, known in answer.containers.items()}
                limited.append(answer.own_limited)
        if self._without_getter and not by_kernel:
            return NO_GETTER
        return LimitReading(_with_shared(found, devices), own_limited=_any(limited), backends=backends)

    def _regions(self) -> Collection[str]:
        """The GPUs whose memory the kernel counts; none where the kernel has no dmem controller."""
        try:
            return dmem.regions(read_whole(os.fsencode(self._root / "dmem.capacity")))
        except FileNotFoundError:
            return ()

    def _ask(self, device: Device, wanted: Mapping[ContainerRef, Directories], own: str | None) -> None:
        if device.uuid not in self._gpus:
            self._gpus[device.uuid] = _Gpu(device.uuid, clock=self._clock, use=self._use)
        gpu = self._gpus[device.uuid]
        gpu.worker.ask(lambda: gpu.getter.read(wanted, own=own))


class _Files:
    """The dmem files, each read once a cycle however many GPUs and containers need it."""

    def __init__(self) -> None:
        self._read: dict[str, _Texts | Failure | None] = {}

    def container(self, directories: Directories, region: str) -> ContainerMemory | Failure | None:
        """A container's memory and its pod's. A cgroup without these files counts into the next one above it."""
        own = None if directories.own is None else self._memory(directories.own, region)
        pod = None if directories.pod is None else self._memory(directories.pod, region)
        if isinstance(own, Failure):
            return own
        if isinstance(pod, Failure):
            return pod
        return None if own is None and pod is None else ContainerMemory(own=own, pod=pod)

    def limited(self, directory: str, region: str) -> bool | None:
        """Whether a cgroup has a limit of its own."""
        memory = self._memory(directory, region)
        return None if isinstance(memory, Failure) else memory is not None and memory.hard is not None

    def _memory(self, directory: str, region: str) -> CgroupMemory | Failure | None:
        if directory not in self._read:
            self._read[directory] = _read_files(directory)
        texts = self._read[directory]
        if texts is None or isinstance(texts, Failure):
            return texts
        current, hard, soft = texts
        return dmem.memory(region, current=current, hard=hard, soft=soft)


def _read_files(directory: str) -> _Texts | Failure | None:
    path = os.fsencode(directory)
    try:
        return read_whole(path + b"/dmem.current"), read_whole(path + b"/dmem.max"), read_whole(path + b"/dmem.min")
    except (FileNotFoundError, ProcessLookupError):
        return None  # the controller is not enabled here, or the cgroup has just gone
    except OSError as error:
        if not os.path.isdir(directory):  # gone while its file was open
            return None
        return Failure(Reason.UNREADABLE, f"{os.fsdecode(error.filename or path)}: {error.strerror}")


def _with_shared(
    found: Mapping[tuple[ContainerRef, str], ContainerMemory | Failure],
    devices: Mapping[Device, Collection[ContainerRef]],
) -> dict[tuple[ContainerRef, str], ContainerMemory | Failure]:
    """Mark what is only known of a pod of which more than one container is on the GPU.

    Directories would not tell: most runtimes give a pod's sandbox one as well, and that never holds GPU memory.
    """
    counts = {device.uuid: Counter(ref.pod_uid for ref in refs) for device, refs in devices.items()}
    return {
        (ref, uuid): replace(known, shared=True)
        if isinstance(known, ContainerMemory) and known.own is None and counts[uuid][ref.pod_uid] > 1
        else known
        for (ref, uuid), known in found.items()
    }


def _any(limited: Collection[bool | None]) -> bool | None:
    """True if any is; False only if all are known not to be."""
    if True in limited:
        return True
    return False if limited and None not in limited else None
