"""The exporter's own NvmlSource and pynvml over the simulated driver library, all in this process."""

import ctypes
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

from exporter.clock import Clock
from exporter.model import DeviceReading, DriverReading, Reading
from exporter.sources.nvml import NvmlSource
from simulator.nvml import counters, library, state

GIB = 1 << 30
MIB = 1 << 20


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012d}"


def gpu(number: int = 0, **changes: object) -> state.Gpu:
    fields: dict[str, object] = {
        "memory": state.Memory(80 * GIB, used=10 * GIB, reserved=GIB),
        "minor": number,
        "mig_mode": False,
    }
    return state.Gpu(uuid(number), **(fields | changes))


@dataclass
class FakeTime:
    """A clock that a test sets. Waiting for a worker still takes real time."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Driver:
    """A simulated driver, and sources that read it."""

    directory: Path
    time: FakeTime = field(default_factory=FakeTime)
    unix: FakeTime = field(default_factory=lambda: FakeTime(1_700_000_000.0))
    sources: list[NvmlSource] = field(default_factory=list)

    def write(self, *gpus: state.Gpu, **fields: object) -> None:
        state.write(self.directory / "state", state.State(gpus, **fields))

    def source(self, deadline: float = 5.0, *, fixed_time: bool = False, interval: float = 5.0) -> NvmlSource:
        clock = Clock(monotonic=self.time, unix=self.unix) if fixed_time else Clock()
        self.sources.append(NvmlSource(deadline=deadline, interval=interval, clock=clock))
        return self.sources[-1]

    def calls(self) -> dict[str, int]:
        return {symbol: found.total for symbol, found in counters.read(self.directory / "calls").items()}


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The library of each driver generation, built once."""
    root = tmp_path_factory.mktemp("libraries")
    return lambda name: library.build(root / name, missing=library.GENERATIONS[name])


@pytest.fixture
def generation() -> str:
    return "580"


@pytest.fixture
def driver(
    tmp_path: Path, builds: Callable[[str], Path], generation: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Driver]:
    # The loader knows a library by its file, so a copy is a library of this test's own.
    loaded = ctypes.CDLL(str(shutil.copy(builds(generation), tmp_path / library.SONAME)))
    monkeypatch.setattr(pynvml, "nvmlLib", loaded)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    monkeypatch.setenv(state.ENVIRONMENT, str(tmp_path / "state"))
    monkeypatch.setenv(counters.ENVIRONMENT, str(tmp_path / "calls"))
    found = Driver(tmp_path)
    yield found
    for source in found.sources:
        source.stop()


def value(reading: Reading[DriverReading]) -> DriverReading:
    assert reading.value is not None, reading.failure
    return reading.value


def devices(reading: Reading[DriverReading]) -> dict[int, DeviceReading]:
    """The GPUs of a reading, by their number in the state."""
    return {int(found.device.uuid[-12:]): found for found in value(reading).devices}
