"""The driver's own table of cgroups ("misc"), one GPU's part of it, through nvmlDeviceGetMemoryLimits_v1.

The table does not nest. The getter answers for the nearest cgroup, from the one asked for upwards, that has an entry,
and does not say which one that was. So a level's answer is compared with that of the level above: what is the same as
above is not its own. Two levels with equal limits and equal charges cannot be told apart; then it is the upper one's.

Guarantees: what the driver will not tell (nothing was ever set there, or the feature is off, which it says in one and
the same way) is missing and never "unlimited"; a cgroup that went away meanwhile is missing too. It sets nothing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pynvml

from exporter.errors import Failure, Reason
from exporter.model import Backend, CgroupMemory, ContainerMemory, ContainerRef
from exporter.sources.container_cgroups import Directories
from exporter.sources.dmem import EVERYTHING
from exporter.sources.library_use import LibraryUse
from exporter.sources.nvml_codes import CodeClass, classify, failure

#: The library, or its Python binding, has no such call, and will not have it before a restart.
NO_GETTER: Final = Failure(
    Reason.NOT_SUPPORTED, "GPU memory of cgroups needs driver 615 or newer; this one's library has no call for it"
)

_CALL = "nvmlDeviceGetMemoryLimits_v1"
_TRIES = 3  # a charge that moves between two reads makes one entry look like two, but not three times in a row

_Answer = CgroupMemory | Failure | None


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What one GPU's getter told. `own_limited` is about our own cgroup; None: not asked, or not told."""

    containers: Mapping[ContainerRef, ContainerMemory | Failure]
    own_limited: bool | None = None


class _GpuError(Exception):
    """The GPU cannot be asked any further in this cycle."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Getter:
    """One GPU's getter. For one thread at a time."""

    def __init__(self, uuid: str, *, use: LibraryUse) -> None:
        self._uuid = uuid
        self._use = use
        self._handle: object | None = None
        self._starts = -1
        self._without: set[str] = set()  # directories that had no entry in this cycle, nor had any above

    def read(self, wanted: Mapping[ContainerRef, Directories], *, own: str | None) -> GpuLimits | Failure:
        """What each container's and pod's cgroup is charged and limited to; `own` is our own directory.

        `shared` is left False: who else counts into a pod is not known here. One call for a container without limits,
        two and a few for one with. May hang; NO_GETTER where the library has no such call.
        """
        if not hasattr(pynvml, _CALL):
            return NO_GETTER
        with self._use.calling() as starts:
            if starts != self._starts:
                self._handle, self._starts = None, starts
            self._without = set()
            try:
                self._open()
                pods: dict[str, _Answer] = {}
                containers = {
                    ref: answer
                    for ref, directories in wanted.items()
                    if (answer := self._levels(directories, pods)) is not None
                }
                return GpuLimits(containers, own_limited=self._limited(own))
            except _GpuError as error:
                if error.problem is not NO_GETTER:
                    self._handle = None
                return error.problem

    def _open(self) -> None:
        if self._handle is not None:
            return
        try:
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except pynvml.NVMLError as error:
            raise _GpuError(failure(int(error.value), call="nvmlDeviceGetHandleByUUID")) from error

    def _levels(self, directories: Directories, pods: dict[str, _Answer]) -> ContainerMemory | Failure | None:
        """What is known of a container and of its pod. `pods` remembers the pods of this cycle."""
        own = None
        if directories.own is not None:
            told = self._ask(directories.own)
            if not isinstance(told, CgroupMemory):
                return told  # None means that no level above has an entry either: the pod need not be asked
            answer = self._own_entry(directories.own, told, above=directories.pod or directories.above)
            if isinstance(answer, Failure):
                return answer
            own = answer
        if directories.pod is None:
            return None if own is None else ContainerMemory(own=own)
        if directories.pod not in pods:
            pods[directories.pod] = self._pod(directories.pod, above=directories.above)
        pod = pods[directories.pod]
        if isinstance(pod, Failure):
            return pod
        return None if own is None and pod is None else ContainerMemory(own=own, pod=pod)

    def _pod(self, directory: str, *, above: str) -> _Answer:
        told = self._ask(directory)
        return self._own_entry(directory, told, above=above) if isinstance(told, CgroupMemory) else told

    def _own_entry(self, directory: str, told: CgroupMemory, *, above: str) -> _Answer:
        """What was told of a cgroup, if that is its own entry; None where it is that of a cgroup above."""
        for _ in range(_TRIES):
            upper = self._ask(above)
            if isinstance(upper, Failure):
                return upper
            if upper is None or replace(upper, charged=told.charged) != told:
                return told
            if upper == told:
                return None
            again = self._ask(directory)
            if not isinstance(again, CgroupMemory) or again == upper:
                return again if isinstance(again, Failure) else None
            told = again
        return told

    def _limited(self, own: str | None) -> bool | None:
        if own is None:
            return None
        answer = self._ask(own)
        if isinstance(answer, Failure):
            return None
        return answer is not None and answer.hard is not None

    def _ask(self, directory: str) -> _Answer:
        """One call at most. None: the driver knows of no entry, or the directory has gone. Raises _GpuError."""
        if directory in self._without:
            return None
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=os.fsencode(directory))
        try:
            pynvml.nvmlDeviceGetMemoryLimits_v1(self._handle, limits)
        except pynvml.NVMLError as error:
            code = int(error.value)
            if code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise _GpuError(NO_GETTER) from error
            if classify(code) in (CodeClass.LIFECYCLE, CodeClass.GPU_GONE):
                raise _GpuError(failure(code, call=_CALL)) from error
            if code in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND):
                self._without.add(directory)
                return None
            if code == pynvml.NVML_ERROR_OPERATING_SYSTEM and not os.path.isdir(directory):
                return None  # the path could not be opened, because the cgroup has gone
            problem = failure(code, call=_CALL)
            return replace(problem, detail=f"{problem.detail}: {directory}")
        hard = int(limits.hardLimit)
        return CgroupMemory(
            Backend.MISC, int(limits.currentUsed), None if hard == EVERYTHING else hard, soft=int(limits.softLimit)
        )
