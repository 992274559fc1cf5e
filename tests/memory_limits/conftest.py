"""The exporter's own MemoryLimits and pynvml over the simulated driver library and simulated cgroups."""

import ctypes
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

from exporter.clock import Clock
from exporter.model import ContainerMemory, ContainerRef, Device, LimitReading, Reading
from exporter.sources.library_use import LibraryUse
from exporter.sources.memory_limits import MemoryLimits
from simulator.cgroupfs import Cgroupfs, ContainerCgroup
from simulator.dmem import region
from simulator.nvml import counters, library, state
from simulator.procfs import Procfs

GIB = 1 << 30
GETTER = "nvmlDeviceGetMemoryLimits_v1"


def device(number: int = 0, *, mig_mode: bool = False) -> Device:
    bus_id = f"00000000:{0x17 + number:02X}:00.0"
    return Device(number, f"GPU-{number}", "NVIDIA H100 80GB HBM3", pci_bus_id=bus_id, mig_mode=mig_mode)


def cgroup(pod: int, container: int = 0, **fields: object) -> ContainerCgroup:
    """The cgroup of a container; pods and containers are numbered."""
    return ContainerCgroup(f"0a1b2c3d-0000-4000-8000-{pod:012d}", f"{pod:032x}{container:032x}", **fields)


def ref(place: ContainerCgroup) -> ContainerRef:
    return ContainerRef(place.pod_uid, place.container_id)


@dataclass
class Machine:
    """A node's driver, cgroups and procfs, and sources that read it."""

    directory: Path
    dmem: bool
    limits: state.LimitsBackend
    clock: Clock = field(default_factory=Clock)
    sources: list[MemoryLimits] = field(default_factory=list)

    def __post_init__(self) -> None:
        regions = {}
        if self.limits is state.LimitsBackend.DMEM:
            regions = {region(device(number).pci_bus_id): 80 * GIB for number in range(2)}
        self.tree = Cgroupfs(self.directory / "sys", dmem=regions if self.dmem else None)
        self.processes = Procfs(self.directory / "proc")
        self.write()

    def write(
        self, *faults: state.Fault, held: dict[ContainerCgroup, int] | None = None, gpus: tuple[int, ...] = (0, 1)
    ) -> None:
        """The driver, with what containers hold on GPU 0 of its own table."""
        cgroups = tuple(state.Cgroup(str(self.folder(place.path)), used=used) for place, used in (held or {}).items())
        state.write(
            self.directory / "state",
            state.State(
                tuple(
                    state.Gpu(
                        device(number).uuid,
                        memory=state.Memory(80 * GIB),
                        pci_bus_id=device(number).pci_bus_id,
                        cgroups=cgroups if number == 0 else (),
                    )
                    for number in gpus
                ),
                driver=state.Driver("615.71.09", limits=self.limits),
                faults=faults,
            ),
        )

    def charge(self, held: dict[ContainerCgroup, int]) -> None:
        """What containers hold on GPU 0, by the kernel."""
        key = region(device(0).pci_bus_id)
        self.tree.dmem.charge({self.folder(place.path): {key: used} for place, used in held.items()})

    def folder(self, path: str) -> Path:
        return self.tree.root / path.strip("/")

    def put(self, *places: ContainerCgroup) -> None:
        for place in places:
            self.tree.put(place.path)

    def limit(self, path: str, hard: int, *, soft: int = 0, gpu: int = 0) -> None:
        """Set limits as an enforcer does."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
        wanted = pynvml.c_nvmlSetMemoryLimits_v1_t(str(self.folder(path)).encode(), soft, hard)
        pynvml.nvmlDeviceSetMemoryLimits_v1(handle, wanted)

    def source(self, deadline: float = 5.0, *, use: LibraryUse | None = None) -> MemoryLimits:
        made = MemoryLimits(
            self.directory / "sys", self.directory / "proc", deadline=deadline, clock=self.clock, use=use
        )
        self.sources.append(made)
        return made

    def calls(self, symbol: str = GETTER) -> int:
        found = counters.read(self.directory / "calls").get(symbol)
        return found.total if found else 0


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("libraries")
    return lambda name: library.build(root / name, missing=library.GENERATIONS[name])


@pytest.fixture
def machine_of(
    tmp_path: Path, builds: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(limits: state.LimitsBackend, *, dmem: bool = False, generation: str = "615") -> Machine:
        # The loader knows a library by its file, so a copy is a library of this test's own.
        loaded = ctypes.CDLL(str(shutil.copy(builds(generation), tmp_path / library.SONAME)))
        monkeypatch.setattr(pynvml, "nvmlLib", loaded)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
        monkeypatch.setenv(state.ENVIRONMENT, str(tmp_path / "state"))
        monkeypatch.setenv(counters.ENVIRONMENT, str(tmp_path / "calls"))
        made.append(Machine(tmp_path, dmem, limits))
        pynvml.nvmlInit()
        return made[-1]

    yield make
    for machine in made:
        machine.write()  # lets hung calls go
        for source in machine.sources:
            source.stop()


@pytest.fixture
def dmem(machine_of: Callable[..., Machine]) -> Machine:
    return machine_of(state.LimitsBackend.DMEM, dmem=True)


@pytest.fixture
def misc(machine_of: Callable[..., Machine]) -> Machine:
    return machine_of(state.LimitsBackend.MISC)


def value(reading: Reading[LimitReading]) -> LimitReading:
    assert reading.value is not None, reading.failure
    return reading.value


def memory(reading: Reading[LimitReading], place: ContainerCgroup, gpu: int = 0) -> ContainerMemory | None:
    """What is known of a container on a GPU; None: nothing."""
    found = value(reading).containers.get((ref(place), device(gpu).uuid))
    assert found is None or isinstance(found, ContainerMemory), found
    return found
