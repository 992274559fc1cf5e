"""What the driver says in one cycle: GPUs, memory domains, process rows, utilization. Bytes, and shares of 0 to 1."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique

from exporter.errors import Failure


@unique
class ListKind(StrEnum):
    """The three process lists of the driver. One process may stand in several of them with the same total."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class Device:
    """What does not change while a GPU stays: read once per discovery. None: the driver does not tell."""

    index: int  # NVML index; may differ from the CUDA ordinal
    uuid: str  # "GPU-..."
    name: str
    minor: int | None = None  # N of /dev/nvidiaN
    pci_bus_id: str = ""
    compute_capability: tuple[int, int] | None = None
    compute_mode: str = ""
    persistence: bool | None = None
    mig_mode: bool | None = None


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One compute instance of one GPU instance, as NVML's MIG handles show it."""

    uuid: str  # "MIG-..."
    gpu_instance: int
    compute_instance: int
    profile: str = ""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """A memory domain's capacity and how much of it is free and reserved, in bytes.

    `reserved` is None where only the first version of the call answers; what is reserved then counts as used. `used`
    is derived, because drivers disagree on whether their own "used" contains the reserved part; total, free and
    reserved do not leave that open.
    """

    total: int
    free: int
    reserved: int | None = None

    @property
    def used(self) -> int:
        """Bytes in use by anything but the driver's reservation."""
        return self.total - self.free - (self.reserved or 0)


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of one list. `used` is the process's total on this domain in bytes; None: the driver won't tell."""

    pid: int
    used: int | None


@dataclass(frozen=True, slots=True)
class ProcessList:
    """The accepted rows of one list. `truncated`: the kernel stops at 950 processes without saying so."""

    rows: tuple[ProcessRow, ...] = ()
    truncated: bool = False
    rejected: int = 0  # rows that cannot be true (pid 0, memory above capacity)


@dataclass(frozen=True, slots=True)
class DomainReading:
    """One memory domain: a GPU, or one GPU instance under MIG (then `gpu_instance` is its id)."""

    gpu_instance: int | None
    memory: MemoryInfo | Failure
    lists: Mapping[ListKind, ProcessList | Failure]
    memory_view_limited: bool = False  # the driver showed less than the known capacity: we sit in a limited cgroup


@dataclass(frozen=True, slots=True)
class ProcessUtilization:
    """Mean of one process's samples, as the share 0..1 of the SMs' time. None: no sample of it could be used."""

    pid: int
    sm: float | None


@dataclass(frozen=True, slots=True)
class UtilizationWindow:
    """The processes that the driver saw busy since the cycle before, each once. Who is not among them was idle."""

    processes: tuple[ProcessUtilization, ...] = ()
    rejected: int = 0  # samples that cannot be true (pid 0, above 100 %, outside the window)


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One GPU in one cycle. `failure` is set when the GPU itself could not be asked; then there are no domains."""

    device: Device
    domains: tuple[DomainReading, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    utilization: float | None = None  # 0..1, share of time in which at least one kernel ran; None under MIG
    process_utilization: UtilizationWindow | Failure | None = None  # None under MIG, where nobody is asked
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class DriverReading:
    """Everything the driver said in one cycle. `failures`: GPUs that could not even be identified."""

    driver_version: str
    cuda_version: str
    devices: tuple[DeviceReading, ...]
    failures: tuple[Failure, ...] = ()
    mps_enumeration: bool = False  # NVML_MPS_DEVICE_ENUMERATION was set for us, and removed
