"""Readings as hypothesis makes them: few names and small numbers, so that what may meet does meet.

`attributed` is how the laws join them, with every other source working.
"""

from dataclasses import replace

from hypothesis import strategies as st

from exporter.attribution import attribute
from exporter.errors import Failure, Reason
from exporter.model import (
    Allocation,
    AllocationReading,
    ContainerName,
    ContainerRef,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DomainReading,
    DriverReading,
    ListKind,
    LivePods,
    MemoryInfo,
    MigDevice,
    Place,
    PodNames,
    ProcessList,
    ProcessReading,
    ProcessRow,
    ProcessUtilization,
    Reading,
    UtilizationWindow,
)
from tests.builders import MIB, gpu, mig_gpu

PIDS = range(1, 10)


def mostly(usual: st.SearchStrategy, *rare: st.SearchStrategy) -> st.SearchStrategy:
    """The usual thing four times in five: where faults are as frequent as facts, no law sees a node that works."""
    return st.integers(0, 4).flatmap(lambda n: st.one_of(*rare) if n == 4 else usual)


pids = st.sampled_from(PIDS)
sizes = st.integers(0, 4096).map(lambda n: n * MIB)
process_rows = st.builds(ProcessRow, pids, mostly(sizes, st.none()))
failures = st.sampled_from([Reason.DRIVER_ERROR, Reason.NOT_SUPPORTED, Reason.TIMEOUT, Reason.NO_PERMISSION]).map(
    lambda reason: Failure(reason, "injected")
)
rows_of_a_list = st.lists(process_rows, min_size=2, max_size=8).map(tuple) | st.just(())
process_lists = mostly(
    rows_of_a_list.map(ProcessList), rows_of_a_list.map(lambda found: ProcessList(found, rejected=1)), failures
)
lists_of_all_kinds = st.fixed_dictionaries(dict.fromkeys(ListKind, process_lists))


memories = mostly(
    st.builds(
        lambda used, free, reserved: MemoryInfo(used + free + (reserved or 0), free, reserved),
        sizes,
        sizes,
        st.none() | sizes,
    ),
    failures,
)
windows = (
    st.none()
    | failures
    | st.builds(
        UtilizationWindow,
        st.dictionaries(pids, st.none() | st.floats(0, 1)).map(
            lambda found: tuple(ProcessUtilization(pid, sm) for pid, sm in found.items())
        ),
        st.integers(0, 1),
    )
)
whole_gpus = st.builds(
    lambda reading, window: reading if reading.failure else replace(reading, process_utilization=window),
    st.builds(gpu, lists_of_all_kinds, memories, failure=mostly(st.none(), failures)),
    windows,
)


@st.composite
def mig_gpus(draw):
    """A GPU under MIG with up to three instances; the first has two compute instances."""
    domains = [
        DomainReading(instance, draw(memories), draw(lists_of_all_kinds))
        for instance in range(1, draw(st.integers(0, 3)) + 1)
    ]
    migs = [MigDevice(f"MIG-{domain.gpu_instance}-0", domain.gpu_instance, 0, "1g.10gb") for domain in domains]
    if domains:
        migs.append(MigDevice("MIG-1-1", 1, 1, "1c.2g.20gb"))
    return mig_gpu(domains, migs)


def numbered(found: list[DeviceReading]) -> list[DeviceReading]:
    """The readings as those of a node's GPUs: each with its index and uuids of its own."""
    return [
        replace(
            reading,
            device=replace(reading.device, index=n, minor=n, uuid=f"GPU-{n}"),
            mig_devices=tuple(replace(mig, uuid=f"{mig.uuid}-of-{n}") for mig in reading.mig_devices),
        )
        for n, reading in enumerate(found)
    ]


gpus = st.lists(whole_gpus, min_size=1, max_size=3).map(numbered)
gpus_of_every_mode = st.lists(st.one_of(whole_gpus, whole_gpus, mig_gpus()), min_size=1, max_size=3).map(numbered)
containers = st.sampled_from(["a/1", "a/2", "b/1", "c/1"])
containers_of_pods = containers.map(lambda c: ContainerRef(f"uid-{c[0]}", c))
process_places = mostly(
    containers_of_pods.map(Place),
    containers_of_pods.map(lambda ref: Place(ref, names_mps_server=True)),
    st.just(Place()),
    st.just(Place(names_mps_server=True)),
    st.sampled_from([Reason.EXITED, Reason.CGROUP_UNREADABLE]).map(lambda reason: Place(reason=reason)),
)
places = st.fixed_dictionaries(dict.fromkeys(PIDS[1:], process_places))  # the first has exited
named = st.lists(containers, unique=True, min_size=1).map(
    lambda found: PodNames(
        {f"uid-{c[0]}": ("ns", c[0]) for c in found}, {c: ContainerName("ns", c[0], c[2]) for c in found}
    )
)
whole_ids = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(
    lambda pair: DeviceRef(f"GPU-{pair[0]}::{pair[1]}", DeviceKind.GPU, uuid=f"GPU-{pair[0]}", replica=str(pair[1]))
)
mig_ids = st.tuples(st.integers(0, 2), st.integers(1, 3)).map(
    lambda pair: DeviceRef(uuid := f"MIG-{pair[1]}-0-of-{pair[0]}", DeviceKind.MIG, uuid=uuid)
)
device_ids = st.one_of(whole_ids, whole_ids, mig_ids)
single_allocations = st.builds(
    Allocation,
    containers.map(lambda c: ContainerName("ns", c[0], c[2])),
    st.just("nvidia.com/gpu"),
    st.lists(device_ids, max_size=3).map(tuple),
)
allocations = st.builds(
    AllocationReading,
    st.lists(single_allocations, min_size=1, max_size=4).map(tuple),
    st.one_of(st.none(), st.lists(device_ids.map(lambda ref: ("nvidia.com/gpu", ref)), max_size=9).map(tuple)),
)


def attributed(gpus, places, names, allocations, *, live=None):
    """The snapshot of these readings; every named pod has a cgroup unless `live` says which have."""
    return attribute(
        driver=Reading("nvml", DriverReading("580", "13.0", tuple(gpus))),
        processes=Reading("procfs", ProcessReading(places)),
        names=Reading("pods", names),
        allocations=Reading("kubelet", allocations),
        live=Reading("cgroups", LivePods(frozenset(names.pods)) if live is None else live),
        timestamp=1.0,
    )


def shuffled_gpus(gpus, shuffled):
    """The readings in another order, at every level at which an order means nothing."""

    def mix(reading: DeviceReading) -> DeviceReading:
        domains = [
            replace(
                domain,
                lists={
                    kind: found if isinstance(found, Failure) else replace(found, rows=tuple(shuffled(found.rows)))
                    for kind, found in shuffled(domain.lists.items())
                },
            )
            for domain in reading.domains
        ]
        window = reading.process_utilization
        if isinstance(window, UtilizationWindow):
            window = replace(window, processes=tuple(shuffled(window.processes)))
        return replace(
            reading,
            domains=tuple(shuffled(domains)),
            mig_devices=tuple(shuffled(reading.mig_devices)),
            process_utilization=window,
        )

    return shuffled(mix(reading) for reading in gpus)


def with_rows_twice(reading: DeviceReading) -> DeviceReading:
    """The reading with each row of each list given twice."""
    domains = [
        replace(
            domain,
            lists={
                kind: found if isinstance(found, Failure) else replace(found, rows=found.rows * 2)
                for kind, found in domain.lists.items()
            },
        )
        for domain in reading.domains
    ]
    return replace(reading, domains=tuple(domains))
