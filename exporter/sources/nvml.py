"""The driver, through NVML: every GPU's memory and process lists, each GPU by a worker of its own.

The library is initialised once and kept: starting and stopping it over and over has hung drivers. It is started anew,
with a growing pause, only after an error that says that it is unusable, and never while a call is out.

A GPU that was seen once is remembered, so that it is reported as gone and not merely missing.
"""

import contextlib
import logging
import os
from dataclasses import dataclass, replace

import pynvml

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Device, DeviceReading, DriverReading, Reading
from exporter.sources.library_use import LibraryUse
from exporter.sources.nvml_codes import failure
from exporter.sources.nvml_device import Gpu, GpuGoneError, LifecycleError
from exporter.sources.worker import Worker

log = logging.getLogger(__name__)

_MPS_ENUMERATION = "NVML_MPS_DEVICE_ENUMERATION"  # read by NVML at its start
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between tries to start the library
_REOPEN_AFTER = 60.0  # seconds after which a GPU is identified anew: index, MIG mode and compute mode can change


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A GPU's call said that the whole library is unusable."""

    problem: Failure


class _GpuWorker:
    """One NVML index: opens the GPU that is there now, and reads it."""

    def __init__(self, index: int, *, interval: float, clock: Clock) -> None:
        # A GPU that needs longer than the deadline is shown one cycle late instead of never.
        self.worker: Worker[DeviceReading | _Unusable] = Worker(f"GPU {index}", clock=clock, max_age=1.5 * interval)
        self.device: Device | None = None  # the last one opened here
        self._index = index
        self._interval = interval
        self._clock = clock
        self._gpu: Gpu | None = None
        self._opened_at = 0.0

    def close(self) -> None:
        """Forget the handle: the library was started anew."""
        self._gpu = None

    def read(self) -> DeviceReading | _Unusable | Failure:
        """Runs on the worker's thread."""
        now = self._clock.monotonic()
        try:
            if self._gpu is None or now - self._opened_at > _REOPEN_AFTER:
                self._gpu = Gpu(self._index, interval=self._interval, clock=self._clock)
                self._opened_at = now
                self.device = self._gpu.device
            return self._gpu.read()
        except LifecycleError as error:
            self._gpu = None
            return _Unusable(error.problem)
        except GpuGoneError as error:
            self._gpu = None
            return replace(error.problem, detail=f"GPU {self._index}: {error.problem.detail}")


class NvmlSource:
    """Source "nvml". `read` answers within the deadline (seconds), whatever the driver does.

    `interval` is the time from one reading to the next, in seconds: what is measured over time begins that long ago.
    `use` is shared with all others that call the library.
    """

    def __init__(self, *, deadline: float, interval: float, clock: Clock, use: LibraryUse | None = None) -> None:
        self._deadline = deadline
        self._interval = interval
        self._clock = clock
        self._use = use or LibraryUse()
        self._library: Worker[int] = Worker("nvml", clock=clock)
        self._gpus: dict[int, _GpuWorker] = {}
        self._seen: dict[str, Device] = {}
        self._versions: tuple[str, str] | None = None  # driver and CUDA version; None: not initialised
        self._unusable: Failure | None = None
        self._pause = 0.0
        self._next_try = 0.0
        self._mps_enumeration = False

    def read(self) -> Reading[DriverReading]:
        """Every GPU's reading. A failure only when the library itself gives nothing."""
        begun = self._clock.monotonic()
        outcome = self._read(begun, begun + self._deadline)
        return Reading("nvml", outcome, self._clock.monotonic() - begun)

    def stop(self) -> None:
        """Let the threads end. The library itself is left to the end of the process: a call may still be out."""
        for gpu in self._gpus.values():
            gpu.worker.stop()
        self._library.stop()

    def _read(self, now: float, until: float) -> DriverReading | Failure:
        if self._unusable is not None and now < self._next_try:
            return self._unusable
        self._library.ask(self._prepare)
        count, _ = self._library.answer(until=until)
        if isinstance(count, Failure):
            return count if count.reason is Reason.TIMEOUT else self._give_up(count, now)
        for index in range(count):
            gpu = self._gpus.setdefault(index, _GpuWorker(index, interval=self._interval, clock=self._clock))
            gpu.worker.ask(gpu.read)
        readings: list[DeviceReading] = []
        failures: list[Failure] = []
        for index in range(count):
            gpu = self._gpus[index]
            outcome, _ = gpu.worker.answer(until=until)
            match outcome:
                case _Unusable(problem):
                    return self._give_up(problem, now)
                case DeviceReading():
                    readings.append(outcome)
                case Failure() if gpu.device is not None:
                    readings.append(DeviceReading(gpu.device, failure=outcome))
                case Failure():
                    failures.append(outcome)
        self._unusable, self._pause = None, 0.0
        driver_version, cuda_version = self._versions or ("", "")
        return DriverReading(
            driver_version,
            cuda_version,
            self._with_lost(readings),
            tuple(failures),
            mps_enumeration=self._mps_enumeration,
        )

    def _give_up(self, problem: Failure, now: float) -> Failure:
        """The library is unusable: try again after a pause that doubles."""
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._next_try = now + self._pause
        self._unusable = problem
        return problem

    def _prepare(self) -> int | Failure:
        """Runs on the library's thread: start the library where needed, and count the GPUs."""
        call = "nvmlInit"
        try:
            if self._unusable is not None and self._versions is not None and not self._stop_library():
                return self._unusable
            if self._versions is None:
                if os.environ.pop(_MPS_ENUMERATION, None) is not None:
                    self._mps_enumeration = True
                    log.warning("%s is ignored: with it NVML shows no processes", _MPS_ENUMERATION)
                pynvml.nvmlInit()
                call = "nvmlSystemGetDriverVersion"
                driver = pynvml.nvmlSystemGetDriverVersion()
                self._versions = (driver if isinstance(driver, str) else driver.decode(), _cuda_version())
            call = "nvmlDeviceGetCount"
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            return failure(int(error.value), call=call)
        if count == 0:
            return Failure(Reason.NO_GPUS, "the driver lists no GPU; check that the node has one and that it is bound")
        return count

    def _stop_library(self) -> bool:
        """Stop the library, unless a call is out: stopping it below a running call crashes the process."""
        with self._use.stopping() as alone:
            if not alone or any(gpu.worker.busy for gpu in self._gpus.values()):
                return False
            self._versions = None
            for gpu in self._gpus.values():
                gpu.close()
            with contextlib.suppress(pynvml.NVMLError):  # it may well be uninitialised already
                pynvml.nvmlShutdown()
        return True

    def _with_lost(self, readings: list[DeviceReading]) -> tuple[DeviceReading, ...]:
        """One reading per GPU that was ever seen: of two for one GPU the one that worked, none means lost."""
        by_uuid: dict[str, DeviceReading] = {}
        for reading in readings:
            if reading.failure is None or reading.device.uuid not in by_uuid:
                by_uuid[reading.device.uuid] = reading
            self._seen[reading.device.uuid] = reading.device
        for uuid, device in self._seen.items():
            if uuid not in by_uuid:
                lost = Failure(Reason.GPU_LOST, f"{uuid} was here before and the driver does not list it any more")
                by_uuid[uuid] = DeviceReading(device, failure=lost)
        return tuple(sorted(by_uuid.values(), key=lambda reading: (reading.device.index, reading.device.uuid)))


def _cuda_version() -> str:
    """The CUDA version that the driver supports. The unversioned call: the newer one loads libcuda, which is slow."""
    try:
        version = int(pynvml.nvmlSystemGetCudaDriverVersion())
    except pynvml.NVMLError:
        return ""
    return f"{version // 1000}.{version % 1000 // 10}"
