"""The state of the simulated driver, and the text file that carries it to the library.

The library reads the file named by `PODGPU_SIM_NVML_STATE` and looks on each call whether it changed. `write` replaces
it by rename, so no caller ever sees half a state. Nothing is checked for sense beyond its form: a state in which more
is used than there is, or a row whose process does not exist, is exactly what a test may want.

The library never writes the file. Memory limits that a program sets through NVML are kept by the cgroups' own files
(dmem), or beside the state in `<state file>.limits` (misc), where every other process finds them, and the compute mode
that it sets in `<state file>.compute_mode.<uuid>`; `write` leaves all of these alone.

The format: lines of fields with one blank between them. `-` stands for None; texts are percent-encoded; memory is in
bytes; a GPU is named by its place among the `gpu` lines, from 0. The first line is `podgpu-nvml 1`, then

    driver <version> <nvml version> <cuda, 12040 = 12.4> <init code> <bytes of a _v3 row, 24 or 32> <privileged 0|1>
           <limits off|dmem|misc> <may limit 0|1>
    gpu <uuid> <name> <minor> <pci bus id> <cc major> <cc minor> <compute mode> <persistence 0|1> <mig current>
        <mig pending> <gpu %> <memory %> <confidential bytes> <total> <reserved> <used> <free>
    instance <gpu> <gi> <profile> <slices> <total> <reserved> <used> <free>
    mig <gpu> <gi> <ci> <slot> <uuid> <slices> <multiprocessors>
    row <gpu> <compute|graphics|mps> <pid> <used> <gi> <ci> <protected>
    sample <gpu> <pid> <microseconds since the epoch; -n: n before each call> <sm> <memory> <encoder> <decoder>
           <jpeg> <ofa>
    cgroup <gpu> <soft> <hard> <used> <path>
    fault <symbol|*> <gpu|*> <first call> <calls, 0 = all> <code> <delay ms> <hang 0|1> <grows>

each on one line. An unreadable file means that no driver is loaded; a line that makes no sense is named on standard
error and makes every call answer UNKNOWN.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum, unique
from pathlib import Path
from urllib.parse import quote

from simulator.nvml.library import SYMBOLS

ENVIRONMENT = "PODGPU_SIM_NVML_STATE"

#: The limit that is none.
UNLIMITED = 2**64 - 1


@unique
class RowKind(StrEnum):
    """The process list that a row stands in."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@unique
class LimitsBackend(StrEnum):
    """Who keeps the memory limits of cgroups.

    OFF: nobody; NOT_SUPPORTED. DMEM: the kernel, in the dmem.* files of the cgroups, which are read and written here.
    MISC: the driver's own table, flat; the nearest entry's, else NOT_SUPPORTED.
    """

    OFF = "off"
    DMEM = "dmem"
    MISC = "misc"


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory domain in bytes. `used` is without `reserved`; `free` is the rest, unless a test wants another."""

    total: int
    _: KW_ONLY
    used: int = 0
    reserved: int = 0
    free: int | None = None


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One compute instance. `slot` is its index among the MIG devices of the GPU (0 to 6, holes allowed)."""

    uuid: str
    _: KW_ONLY
    slot: int
    compute_instance: int = 0
    slices: int = 1
    multiprocessors: int = 16


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """One GPU instance; all its MIG devices report its memory."""

    id: int
    _: KW_ONLY
    profile: str
    slices: int
    memory: Memory
    devices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One process in one list, in bytes; None: the driver does not tell.

    A process in several lists needs a row for each. Under MIG a row belongs to an instance, or to all compute instances
    of a GPU instance when `compute_instance` is None. `protected` is the confidential part of `used`.
    """

    pid: int
    _: KW_ONLY
    used: int | None
    kind: RowKind = RowKind.COMPUTE
    gpu_instance: int | None = None
    compute_instance: int | None = None
    protected: int | None = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Utilisation of one process, in percent.

    `time` is in microseconds since the epoch. A negative one is before the call that asks, whenever that is: the sample
    of a driver that goes on sampling while the state stays as it is.
    """

    pid: int
    _: KW_ONLY
    time: int
    sm: int
    memory: int = 0
    encoder: int = 0
    decoder: int = 0
    jpeg: int = 0
    ofa: int = 0


@dataclass(frozen=True, slots=True)
class Cgroup:
    """For MISC: the bytes that the processes of a cgroup hold on one GPU, and limits from before they held any."""

    path: str
    _: KW_ONLY
    used: int = 0
    limits: tuple[int, int] | None = None  # soft, hard


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; its index is its place in the state. None: not told, not supported."""

    uuid: str
    _: KW_ONLY
    memory: Memory | None
    name: str = "NVIDIA H100 80GB HBM3"
    minor: int | None = 0
    pci_bus_id: str = "00000000:17:00.0"
    compute_capability: tuple[int, int] = (9, 0)
    compute_mode: int = 0  # NVML_COMPUTEMODE_*, until a program sets another one
    persistence: bool = True
    mig_mode: bool | None = None
    mig_pending: bool | None = None  # None: as it is now
    utilization: tuple[int, int] | None = (0, 0)  # percent: kernels ran, memory was accessed
    confidential: int | None = None  # bytes of protected memory
    instances: tuple[GpuInstance, ...] = ()
    rows: tuple[Row, ...] = ()
    samples: tuple[Sample, ...] = ()
    cgroups: tuple[Cgroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong in the calls of a symbol: from the `first`-th matching call on, for `calls` calls.

    Calls are counted by each process from the moment it first reads this very fault; a fault that was taken away and
    comes back counts anew. "*" is every symbol but init and shutdown. Of several faults that match a call the delays
    add up and the first code counts. `hang` blocks until the state no longer holds the fault. `grows` hides that many
    rows from the call, as if their processes started right after it.
    """

    symbol: str
    _: KW_ONLY
    gpu: int | None = None  # None: on any GPU, and where there is none
    first: int = 1
    calls: int | None = None  # None: all that follow
    code: int = 0
    delay_ms: int = 0
    hang: bool = False
    grows: int = 0

    def __post_init__(self) -> None:
        if self.symbol != "*" and self.symbol not in SYMBOLS:
            raise ValueError(f"not a symbol of the simulated library: {self.symbol}")
        if not (self.code or self.delay_ms or self.hang or self.grows):
            raise ValueError(f"a fault of {self.symbol} that does nothing")
        if self.first < 1 or (self.calls is not None and self.calls < 1):
            raise ValueError(f"a fault of {self.symbol} that no call meets")


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver as a whole. `init_code` is what init answers when the driver is not well (9: not loaded).

    `early_rows`: the first 535 drivers wrote `_v3` rows of 32 bytes, with the protected memory in them.
    `privileged`: under MIG, the caller may ask the GPU itself for memory and lists. `may_limit`: the caller is root,
    and may set memory limits of cgroups, and compute modes.
    """

    version: str = "580.65.06"
    _: KW_ONLY
    nvml_version: str = "13.580.65.06"
    cuda_version: int = 13000
    init_code: int = 0
    early_rows: bool = False
    privileged: bool = False
    limits: LimitsBackend = LimitsBackend.OFF
    may_limit: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """A node's GPUs, and what shall go wrong."""

    gpus: tuple[Gpu, ...] = ()
    _: KW_ONLY
    driver: Driver = field(default_factory=Driver)
    faults: tuple[Fault, ...] = ()


def to_text(state: State) -> str:
    """The content of the state file."""
    return "".join(f"{line}\n" for line in _lines(state))


def write(path: Path, state: State) -> None:
    """Replace the state file at once; a library that is in use sees the new state at its next call."""
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(to_text(state))
        # Inodes are reused, and the kernel's own stamp moves by timer ticks only: without a stamp of our own, two quick
        # changes could leave a file that looks like the one before.
        now = time.time_ns()
        os.utime(fresh, ns=(now, now))
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def _lines(state: State) -> Iterator[str]:
    yield "podgpu-nvml 1"
    driver = state.driver
    yield (
        f"driver {_text(driver.version)} {_text(driver.nvml_version)} {driver.cuda_version} {driver.init_code} "
        f"{32 if driver.early_rows else 24} {driver.privileged:d} {driver.limits} {driver.may_limit:d}"
    )
    for index, gpu in enumerate(state.gpus):
        yield from _gpu(index, gpu)
    for fault in state.faults:
        yield (
            f"fault {fault.symbol} {'*' if fault.gpu is None else fault.gpu} {fault.first} {fault.calls or 0} "
            f"{fault.code} {fault.delay_ms} {fault.hang:d} {fault.grows}"
        )


def _gpu(index: int, gpu: Gpu) -> Iterator[str]:
    pending = gpu.mig_mode if gpu.mig_pending is None else gpu.mig_pending
    major, minor = gpu.compute_capability
    by_kernels, by_memory = gpu.utilization or (None, None)
    yield (
        f"gpu {_text(gpu.uuid)} {_text(gpu.name)} {_number(gpu.minor)} {_text(gpu.pci_bus_id)} {major} {minor} "
        f"{gpu.compute_mode} {gpu.persistence:d} {_number(gpu.mig_mode)} {_number(pending)} {_number(by_kernels)} "
        f"{_number(by_memory)} {_number(gpu.confidential)} {_memory(gpu.memory)}"
    )
    for instance in gpu.instances:
        yield f"instance {index} {instance.id} {_text(instance.profile)} {instance.slices} {_memory(instance.memory)}"
        for device in instance.devices:
            yield (
                f"mig {index} {instance.id} {device.compute_instance} {device.slot} {_text(device.uuid)} "
                f"{device.slices} {device.multiprocessors}"
            )
    for row in gpu.rows:
        yield (
            f"row {index} {row.kind} {row.pid} {_number(row.used)} {_number(row.gpu_instance)} "
            f"{_number(row.compute_instance)} {_number(row.protected)}"
        )
    for sample in gpu.samples:
        yield (
            f"sample {index} {sample.pid} {sample.time} {sample.sm} {sample.memory} {sample.encoder} {sample.decoder} "
            f"{sample.jpeg} {sample.ofa}"
        )
    for cgroup in gpu.cgroups:
        soft, hard = cgroup.limits or (None, None)
        yield f"cgroup {index} {_number(soft)} {_number(hard)} {cgroup.used} {_text(cgroup.path)}"


def _text(text: str) -> str:
    return quote(text, safe="/:")


def _number(value: int | None) -> str:
    return "-" if value is None else str(int(value))


def _memory(memory: Memory | None) -> str:
    if memory is None:
        return "- - - -"
    free = memory.free
    if free is None:
        free = max(0, memory.total - memory.reserved - memory.used)
    return f"{memory.total} {memory.reserved} {memory.used} {free}"
