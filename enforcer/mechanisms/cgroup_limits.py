"""Memory limits of control groups, through nvmlDeviceSetMemoryLimits_v1; the files of the kernel are never written.

The driver keeps an account of reservations in all groups above, which a write to a file would bypass. No memory is
reserved (soft 0). Whether a limit holds is told by what the exporter reads, and by the code that it reads it with: on
kernels with the dmem controller a limit below the present use is answered with success and not kept, and the driver's
own table refuses it.

Guarantees: a limit is set on a directory that stood there under the name of this container, or pod, in this very call;
what a tenant writes is no part of its path. It does not know whose the limit was before.
"""

import os
from pathlib import Path
from typing import Final

import pynvml

from enforcer.mechanisms.gpu_calls import GpuCalls
from enforcer.model import Level
from enforcer.outcomes import Done, Outcome, Pending
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import CgroupMemory, Device
from exporter.sources import dmem
from exporter.sources.container_cgroups import ContainerCgroups
from exporter.sources.library_use import LibraryUse
from exporter.sources.memory_limits import MemoryLimits
from exporter.sources.nvml_codes import CodeClass, classify, failure
from exporter.sources.procfs import read_whole

_CALL = "nvmlDeviceSetMemoryLimits_v1"

_NO_SETTER: Final = Failure(
    Reason.NOT_SUPPORTED, "memory limits of control groups need driver 615 or newer; this one's library can't set any"
)


class CgroupLimits:
    """`sysfs` and `procfs` are the host's /sys and /proc, `deadline` is in seconds. For one thread at a time."""

    def __init__(self, sysfs: Path, procfs: Path, *, deadline: float, clock: Clock, use: LibraryUse) -> None:
        self._root = sysfs / "fs" / "cgroup"
        self._cgroups = ContainerCgroups(self._root, clock=clock)
        self._calls = GpuCalls(deadline=deadline, clock=clock, use=use)
        self._limits = MemoryLimits(sysfs, procfs, deadline=deadline, clock=clock, use=use)

    def limit(self, level: Level, hard: int) -> Outcome:
        """Limit a control group to `hard` bytes on a GPU."""
        return self._set(level, hard)

    def free(self, level: Level, hard: int | None) -> Outcome:
        """Give a control group back a limit, or (None) none. One that has gone has taken its limit with it."""
        outcome = self._set(level, hard)
        if isinstance(outcome, Failure) and outcome.reason is Reason.MISSING and self._has_gone(level):
            return Done("the control group has gone, and its limit with it")
        return outcome

    def stop(self) -> None:
        """Let the threads end after their present calls."""
        self._calls.stop()
        self._limits.stop()

    def _set(self, level: Level, hard: int | None) -> Outcome:
        directory = self._directory(level)
        if isinstance(directory, Failure):
            return directory
        answer = self._calls.call(level.gpu_uuid, lambda handle: _set_limit(handle, directory, hard))
        if isinstance(answer, Failure):
            return answer
        device, refusal = answer
        memory = self._read(level, device)
        if isinstance(memory, Failure):
            return memory
        if memory is None:
            gone = self._directory(level)
            if isinstance(gone, Failure):
                return gone
            if hard is None and refusal is None:
                return Done(f"no limit of its own on {level.gpu_uuid}")
            if self._by_kernel(device):
                return Failure(
                    Reason.MISSING, f"{directory} has no dmem files: no cgroup.subtree_control above it has +dmem"
                )
            return refusal or Failure(Reason.INCONSISTENT, f"{_CALL}: {directory}: no limit is there to be read back")
        if memory.hard == hard:
            return Done(f"{_shown(hard)} on {level.gpu_uuid}, {memory.charged} bytes in use")
        if hard is not None and memory.charged > hard:
            return Pending(f"{memory.charged} bytes are in use, so that the limit stays {_shown(memory.hard)}")
        return refusal or Pending(f"{_shown(hard)} was set, and {_shown(memory.hard)} is what is kept")

    def _read(self, level: Level, device: Device) -> CgroupMemory | Failure | None:
        """What the exporter would show of this very control group."""
        reading = self._limits.read({device: [level.ref]})
        if reading.failure is not None:
            return reading.failure
        found = reading.value.containers.get((level.ref, device.uuid)) if reading.value is not None else None
        if found is None or isinstance(found, Failure):
            return found
        return found.own if level.ref.container_id else found.pod

    def _by_kernel(self, device: Device) -> bool:
        """Whether the kernel's controller counts the GPU's memory."""
        try:
            capacity = read_whole(os.fsencode(self._root / "dmem.capacity"))
        except OSError:
            return False
        return dmem.region(device.pci_bus_id) in dmem.regions(capacity)

    def _directory(self, level: Level) -> str | Failure:
        try:
            found = self._cgroups.find([level.ref]).get(level.ref)
        except OSError as error:
            return Failure(Reason.UNREADABLE, f"{error.filename}: {error.strerror}; mount the host's /sys")
        directory = None if found is None else found.own if level.ref.container_id else found.pod
        if directory is None:
            of = f"container {level.ref.container_id[:12]}" if level.ref.container_id else f"pod {level.ref.pod_uid}"
            return Failure(Reason.MISSING, f"no control group of {of} below {self._root}")
        return directory

    def _has_gone(self, level: Level) -> bool:
        """Whether it is not there, in a tree in which others are; an empty tree tells nothing."""
        return isinstance(self._directory(level), Failure) and self._cgroups.visible


def _set_limit(handle: object, directory: str, hard: int | None) -> tuple[Device, Failure | None] | Failure:
    """Set a limit. The GPU, for reading back, and the refusal, if it was one of this limit alone."""
    if not hasattr(pynvml, _CALL):
        return _NO_SETTER
    bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
    device = Device(0, pynvml.nvmlDeviceGetUUID(handle), "", pci_bus_id=bus_id)
    wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(
        nameSpace=os.fsencode(directory), softLimit=0, hardLimit=dmem.EVERYTHING if hard is None else hard
    )
    try:
        pynvml.nvmlDeviceSetMemoryLimits_v1(handle, wanted)
    except pynvml.NVMLError as error:
        code = int(error.value)
        if code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return _NO_SETTER
        problem = failure(code, call=f"{_CALL}: {directory}")
        if classify(code) in (CodeClass.LIFECYCLE, CodeClass.GPU_GONE, CodeClass.CONFIGURATION):
            return problem
        return device, problem
    return device, None


def _shown(hard: int | None) -> str:
    return "no limit" if hard is None else f"a limit of {hard} bytes"
