"""What the driver of a simulated node says: its state at a time of the scenario, and its library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from simulator.nvml import library, state
from simulator.paths import Paths
from simulator.scenario import Container, Gpu, Pod, Process, Scenario

_SAMPLE_AGE = 20_000  # microseconds from the driver's newest sample to whenever it is asked


@dataclass(frozen=True, slots=True)
class Running:
    """A process that exists at some time, and the container that it runs in (None: the host)."""

    pid: int
    process: Process
    pod: Pod | None
    container: Container | None


def state_of(
    scenario: Scenario,
    running: Sequence[Running],
    seconds: float,
    *,
    cgroups: Mapping[int, tuple[state.Cgroup, ...]] | None = None,
) -> state.State:
    """The driver's state while these processes run; `cgroups` are those of its own table of limits, by GPU index."""
    major, _, minor = scenario.cuda.partition(".")
    return state.State(
        tuple(
            replace(_gpu(gpu, running, seconds), cgroups=(cgroups or {}).get(gpu.index, ())) for gpu in scenario.gpus
        ),
        driver=state.Driver(
            scenario.driver,
            nvml_version=f"{major}.{scenario.driver}",
            cuda_version=int(major) * 1000 + int(minor or 0) * 10,
            early_rows=_generation(scenario.driver) == "535.54",
            limits=state.LimitsBackend(scenario.memory_limits),
        ),
    )


def build_library(paths: Paths, scenario: Scenario) -> None:
    """Build the driver library of the scenario's driver. Raises LibraryBuildError."""
    library.build(paths.library, missing=library.GENERATIONS[_generation(scenario.driver)])


def _gpu(gpu: Gpu, running: Sequence[Running], seconds: float) -> state.Gpu:
    mine = [entry for entry in running if entry.process.gpu == gpu.index]
    rows = tuple(
        state.Row(
            entry.pid,
            used=None if entry.process.memory is None else entry.process.memory.at(seconds),
            kind=state.RowKind(kind),
            gpu_instance=entry.process.gpu_instance,
            compute_instance=None if entry.process.gpu_instance is None else entry.process.compute_instance,
        )
        for entry in mine
        for kind in entry.process.lists
    )
    return state.Gpu(
        gpu.uuid,
        name=gpu.name,
        minor=gpu.minor,
        pci_bus_id=gpu.pci_bus_id,
        compute_capability=gpu.compute_capability,
        compute_mode=3 if gpu.sharing == "mps" else 0,
        mig_mode=bool(gpu.mig) if gpu.compute_capability >= (8, 0) else None,
        utilization=(gpu.utilization, 0),
        memory=state.Memory(gpu.memory, used=gpu.overhead + _held(mine, None, seconds), reserved=gpu.reserved),
        instances=_instances(gpu, mine, seconds),
        rows=rows,
        samples=_samples(mine, seconds),
    )


def _instances(gpu: Gpu, running: Sequence[Running], seconds: float) -> tuple[state.GpuInstance, ...]:
    """The GPU instances: memory and profile from their first compute instance, in use what their processes hold."""
    found = []
    for instance in dict.fromkeys(mig.gpu_instance for mig in gpu.mig):
        parts = [mig for mig in gpu.mig if mig.gpu_instance == instance]
        slices = sum(part.slices for part in parts)
        used = parts[0].overhead + _held(running, instance, seconds)
        found.append(
            state.GpuInstance(
                instance,
                profile=f"{slices}g.{round(parts[0].memory / (1 << 30))}gb",
                slices=slices,
                memory=state.Memory(parts[0].memory, used=used),
                devices=tuple(
                    state.MigDevice(
                        gpu.mig_uuid(instance, part.compute_instance),
                        slot=part.slot,
                        compute_instance=part.compute_instance,
                        slices=part.slices,
                    )
                    for part in parts
                ),
            )
        )
    return tuple(found)


def _samples(running: Sequence[Running], seconds: float) -> tuple[state.Sample, ...]:
    """A sample for each process that is busy; the driver has none of one that is not."""
    percents = ((entry.pid, entry.process.sm.at(seconds)) for entry in running)
    return tuple(state.Sample(pid, time=-_SAMPLE_AGE, sm=percent) for pid, percent in percents if percent)


def _held(running: Sequence[Running], instance: int | None, seconds: float) -> int:
    """Bytes held by processes: on one GPU instance, or (None) on the whole GPU."""
    return sum(
        entry.process.memory.at(seconds)
        for entry in running
        if entry.process.memory is not None and instance in (None, entry.process.gpu_instance)
    )


def _generation(version: str) -> str:
    """The newest driver generation of the simulated library that is not newer than a driver version."""

    def number(text: str) -> list[int]:
        return [int(part) for part in text.split(".")[:2]]

    known = [name for name in library.GENERATIONS if number(name) <= number(version)]
    return known[-1] if known else next(iter(library.GENERATIONS))
