"""One GPU, asked by one worker: its identity once, its memory, process lists and utilisation each cycle."""

from typing import Any, TypeVar

import pynvml

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import (
    Device,
    DeviceReading,
    DomainReading,
    ListKind,
    MemoryInfo,
    MigDevice,
    ProcessList,
    ProcessRow,
    UtilizationWindow,
)
from exporter.sources.nvml_codes import CodeClass, classify, failure
from exporter.sources.nvml_lists import ProcessLists
from exporter.sources.nvml_rows import MOST_MEMORY
from exporter.sources.nvml_utilization import UtilizationSamples

T = TypeVar("T")

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_SLACK = 4 * 1024 * 1024  # total, free and reserved come from a manager that counts in KiB; they agree within this


class LifecycleError(Exception):
    """The whole library is unusable; it must be initialised again before any GPU can be asked."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(str(problem))
        self.problem = problem


class GpuGoneError(Exception):
    """This GPU's handle is worthless."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _text(value: str | bytes) -> str:
    # Old bindings return bytes; a label must never show b'...'.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Gpu:
    """An open GPU. All methods run on this GPU's worker.

    Raises `LifecycleError` when the library is unusable and `GpuGoneError` when the GPU is; both end this object.
    Every other trouble is a value inside the reading. `interval` is the time from one reading to the next, in seconds.
    """

    def __init__(self, index: int, *, interval: float, clock: Clock) -> None:
        self._absent: dict[tuple[str, bool], Failure] = {}
        self._lists = ProcessLists()
        self._samples = UtilizationSamples(interval=interval, clock=clock)
        self._known_total: int | None = None
        self._profiles: dict[str, str] = {}
        handle = self._ask("nvmlDeviceGetHandleByIndex_v2", pynvml.nvmlDeviceGetHandleByIndex, index)
        if isinstance(handle, Failure):
            raise GpuGoneError(handle)
        self._handle = handle
        uuid = self._ask("nvmlDeviceGetUUID", pynvml.nvmlDeviceGetUUID, handle)
        if isinstance(uuid, Failure):
            raise GpuGoneError(uuid)
        self.device = self._identify(index, _text(uuid))

    # What pynvml returns depends on the function and is untyped, hence Any.
    def _ask(self, call: str, function: Any, *arguments: Any, mig: bool = False) -> Any:  # noqa: ANN401
        """The result of one pynvml function, or the failure. Remembers calls that will never be answered."""
        if (call, mig) in self._absent:
            return self._absent[call, mig]
        try:
            return function(*arguments)
        except pynvml.NVMLLibraryMismatchError:
            code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        except pynvml.NVMLError as error:
            code = int(error.value)
        problem = failure(code, call=call)
        match classify(code):
            case CodeClass.LIFECYCLE:
                raise LifecycleError(problem)
            case CodeClass.GPU_GONE:
                raise GpuGoneError(problem)
            case CodeClass.ABSENT:
                self._absent[call, mig] = problem
        return problem

    def _identify(self, index: int, uuid: str) -> Device:
        def optional(call: str, function: Any) -> Any:  # noqa: ANN401
            answer = self._ask(call, function, self._handle)
            return None if isinstance(answer, Failure) else answer

        name = optional("nvmlDeviceGetName", pynvml.nvmlDeviceGetName)
        minor = optional("nvmlDeviceGetMinorNumber", pynvml.nvmlDeviceGetMinorNumber)
        pci = optional("nvmlDeviceGetPciInfo_v3", pynvml.nvmlDeviceGetPciInfo)
        capability = optional("nvmlDeviceGetCudaComputeCapability", pynvml.nvmlDeviceGetCudaComputeCapability)
        mode = optional("nvmlDeviceGetComputeMode", pynvml.nvmlDeviceGetComputeMode)
        persistence = optional("nvmlDeviceGetPersistenceMode", pynvml.nvmlDeviceGetPersistenceMode)
        mig = self._ask("nvmlDeviceGetMigMode", pynvml.nvmlDeviceGetMigMode, self._handle)
        if isinstance(mig, Failure) and mig.reason is not Reason.NOT_SUPPORTED:
            raise GpuGoneError(mig)  # taken for whole, a GPU under MIG would show nothing but refusals
        return Device(
            index=index,
            uuid=uuid,
            name=_text(name) if isinstance(name, str | bytes) else "",
            minor=minor if isinstance(minor, int) else None,
            pci_bus_id=_text(pci.busId) if pci is not None else "",
            compute_capability=(capability[0], capability[1]) if capability is not None else None,
            compute_mode=_COMPUTE_MODES.get(mode, "") if isinstance(mode, int) else "",
            persistence=bool(persistence) if persistence is not None else None,
            mig_mode=None if isinstance(mig, Failure) else bool(mig[0]),
        )

    def read(self) -> DeviceReading:
        """Memory, process lists and utilisation of every memory domain of this GPU."""
        if not self.device.mig_mode:
            domain = self._read_domain(None, [self._handle])
            return DeviceReading(
                self.device,
                (domain,),
                utilization=self._read_utilization(),
                process_utilization=self._read_samples(),
            )
        instances: dict[int, list[object]] = {}
        mig_devices = []
        for handle, mig_device in self._mig_handles():
            instances.setdefault(mig_device.gpu_instance, []).append(handle)
            mig_devices.append(mig_device)
        return DeviceReading(
            self.device,
            tuple(self._read_domain(instance, instances[instance]) for instance in sorted(instances)),
            tuple(mig_devices),
        )

    def _read_domain(self, gpu_instance: int | None, handles: list[object]) -> DomainReading:
        """One memory domain. Under MIG it has a handle per compute instance; all of them report the same memory."""
        memory = self._read_memory(handles[0], mig=gpu_instance is not None)
        capacity = memory.total if isinstance(memory, MemoryInfo) else None
        limited = False
        if gpu_instance is None:
            # A GPU does not shrink. Seen from a cgroup with a GPU memory limit, the driver shows the limit instead.
            self._known_total = max(self._known_total or 0, capacity or 0) or None
            limited = capacity is not None and capacity != self._known_total
            capacity = self._known_total
        if limited:
            memory = Failure(
                Reason.INCONSISTENT,
                "the driver shows less memory than before: this process sits in a cgroup with a GPU memory limit",
            )
        lists = {kind: _join([self._read_list(h, kind, capacity) for h in handles]) for kind in ListKind}
        return DomainReading(gpu_instance, memory, lists, memory_view_limited=limited)

    def _read_list(self, handle: object, kind: ListKind, capacity: int | None) -> ProcessList | Failure:
        return _unless_over(self._lists.read(handle, kind, capacity_bytes=capacity))

    def _read_samples(self) -> UtilizationWindow | Failure:
        return _unless_over(self._samples.read(self._handle))

    def _read_memory(self, handle: object, *, mig: bool) -> MemoryInfo | Failure:
        """Source: nvmlDeviceGetMemoryInfo_v2, else the first version, whose "used" contains what is reserved."""
        answer = self._ask(
            "nvmlDeviceGetMemoryInfo_v2", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2, mig=mig
        )
        reserved: int | None = None
        if not isinstance(answer, Failure):
            reserved = int(answer.reserved)
        elif answer.reason is Reason.NOT_SUPPORTED:
            answer = self._ask("nvmlDeviceGetMemoryInfo", pynvml.nvmlDeviceGetMemoryInfo, handle, mig=mig)
        if isinstance(answer, Failure):
            return answer
        memory = MemoryInfo(int(answer.total), int(answer.free), reserved)
        return _plausible(memory, reported_used=int(answer.used))

    def _read_utilization(self) -> float | None:
        answer = self._ask("nvmlDeviceGetUtilizationRates", pynvml.nvmlDeviceGetUtilizationRates, self._handle)
        if isinstance(answer, Failure) or not 0 <= answer.gpu <= 100:
            return None
        return float(answer.gpu) / 100.0

    def _mig_handles(self) -> list[tuple[object, MigDevice]]:
        """The MIG devices of this moment. Never kept: the driver reuses a handle's value for another instance.

        Only "not found" is an empty slot. With any other answer a part of the GPU would be missing unseen, so the whole
        GPU is given up for this cycle (GpuGoneError).
        """
        count = self._certain("nvmlDeviceGetMaxMigDeviceCount", pynvml.nvmlDeviceGetMaxMigDeviceCount, self._handle)
        found: list[tuple[object, MigDevice]] = []
        for slot in range(count):
            handle = self._ask(
                "nvmlDeviceGetMigDeviceHandleByIndex", pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, slot
            )
            if isinstance(handle, Failure):
                if handle.reason is Reason.NOT_FOUND:
                    continue  # the slots behind it may be in use
                raise GpuGoneError(handle)
            uuid = _text(self._certain("nvmlDeviceGetUUID", pynvml.nvmlDeviceGetUUID, handle))
            gpu_instance = self._certain("nvmlDeviceGetGpuInstanceId", pynvml.nvmlDeviceGetGpuInstanceId, handle)
            compute_instance = self._certain(
                "nvmlDeviceGetComputeInstanceId", pynvml.nvmlDeviceGetComputeInstanceId, handle
            )
            profile = self._profiles.get(uuid) or self._mig_profile(handle)
            found.append((handle, MigDevice(uuid, gpu_instance, compute_instance, profile)))
        self._profiles = {mig_device.uuid: mig_device.profile for _, mig_device in found}
        return found

    def _certain(self, call: str, function: Any, *arguments: Any) -> Any:  # noqa: ANN401
        """As `_ask`, for what nothing can be said without. Raises GpuGoneError."""
        answer = self._ask(call, function, *arguments, mig=True)
        if isinstance(answer, Failure):
            raise GpuGoneError(answer)
        return answer

    def _mig_profile(self, handle: object) -> str:
        """The profile as NVIDIA writes it, such as 1g.10gb: from the name, else from the instance's attributes."""
        name = self._ask("nvmlDeviceGetName", pynvml.nvmlDeviceGetName, handle, mig=True)
        if not isinstance(name, Failure) and " MIG " in _text(name):
            return _text(name).rpartition(" MIG ")[2]
        answer = self._ask("nvmlDeviceGetAttributes_v2", pynvml.nvmlDeviceGetAttributes, handle, mig=True)
        if isinstance(answer, Failure):
            return ""
        profile = f"{answer.gpuInstanceSliceCount}g.{round(answer.memorySizeMB / 1024)}gb"
        if answer.computeInstanceSliceCount == answer.gpuInstanceSliceCount:
            return profile
        return f"{answer.computeInstanceSliceCount}c.{profile}"


def _unless_over(answer: T | Failure) -> T | Failure:
    """The answer, unless its failure ends more than this call. Raises LifecycleError and GpuGoneError."""
    if isinstance(answer, Failure) and answer.reason in (Reason.DRIVER_NOT_LOADED, Reason.LIBRARY_MISMATCH):
        raise LifecycleError(answer)
    if isinstance(answer, Failure) and answer.reason is Reason.GPU_LOST:
        raise GpuGoneError(answer)
    return answer


def _join(answers: list[ProcessList | Failure]) -> ProcessList | Failure:
    """The lists of a domain's compute instances as one. One that failed makes the whole incomplete."""
    rows: list[ProcessRow] = []
    truncated, rejected = False, 0
    for answer in answers:
        if isinstance(answer, Failure):
            return answer
        rows.extend(answer.rows)
        truncated = truncated or answer.truncated
        rejected += answer.rejected
    return ProcessList(tuple(rows), truncated=truncated, rejected=rejected)


def _plausible(memory: MemoryInfo, *, reported_used: int) -> MemoryInfo | Failure:
    """The memory, unless its numbers contradict each other (drivers have returned free above total, and blanks)."""
    if memory.total <= 0:
        return Failure(Reason.NOT_SUPPORTED, "the driver reports no memory of its own for this GPU")
    # The driver's "used" is compared both ways, with and without the reserved part: versions differ on it.
    apart = min(abs(reported_used - memory.used), abs(reported_used - memory.used - (memory.reserved or 0)))
    more_than_all = max(memory.free, memory.reserved or 0) > memory.total
    contradiction = more_than_all or memory.used < -_SLACK or apart > _SLACK
    if contradiction or memory.total > MOST_MEMORY:
        return Failure(
            Reason.INCONSISTENT,
            f"memory of {memory.total} bytes with {memory.free} free, {memory.reserved} reserved, {reported_used} used",
        )
    if memory.used < 0:
        return MemoryInfo(memory.total, memory.free + memory.used, memory.reserved)
    return memory
