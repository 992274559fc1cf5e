from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Reason
from exporter.metrics import catalog
from exporter.metrics.samples import BuildInfo, samples
from exporter.model import (
    ContainerName,
    ContainerState,
    Device,
    DeviceState,
    DomainKey,
    DomainState,
    ListKind,
    MemoryClass,
    Snapshot,
    SourceState,
    Totals,
)

GIB = 1 << 30
SHARED = ("0", "GPU-aaaa", "")
SLICE = ("1", "GPU-bbbb", "3")
JOB = ("team", "job-0", "main", *SHARED)
NEW, OLD = "/run/new", "/run/old"
DONE = ("team", "done", "main", *SHARED)
STRAY = ("team", "job-1", "main", *SLICE)

# What the snapshot of conftest.py must print: each family, each series, in order.
EXPECTED = {
    catalog.DEVICE_INFO: [
        ((*SHARED, "NVIDIA H200", "00000000:18:00.0", "2", "9.0", "default", "disabled", "enabled"), 1),
        (("1", "GPU-bbbb", "", "NVIDIA H200", "", "", "", "", "enabled", ""), 1),
    ],
    catalog.DEVICE_UP: [(SHARED, 1), (SLICE, 0)],
    catalog.DEVICE_MEMORY_CAPACITY: [(SHARED, 80 * GIB)],
    catalog.DEVICE_MEMORY: [((*SHARED, "containers"), 3 * GIB), ((*SHARED, "free"), 77 * GIB), ((*SHARED, "host"), 0)],
    catalog.DEVICE_MEMORY_OVER_ATTRIBUTED: [(SHARED, 0)],
    catalog.DEVICE_SLOTS: [((*SHARED, "nvidia.com/gpu.shared"), 4)],
    catalog.DEVICE_SM_UTILIZATION: [(SHARED, 0.25)],
    catalog.DEVICE_TENANTS: [((*SHARED, "none"), 2)],
    catalog.DEVICE_UNRESOLVED_PROCESSES: [((*SHARED, "exited"), 2)],
    catalog.MIG_DEVICE_INFO: [((*SLICE, "0", "MIG-cccc", "3g.40gb"), 1)],
    catalog.DRIVER_INFO: [(("615.10", "13.1"), 1)],
    catalog.CONTAINER_MEMORY_USED: [(JOB, 3 * GIB)],
    catalog.CONTAINER_MEMORY_PEAK: [(JOB, 4 * GIB)],
    catalog.CONTAINER_MEMORY_REQUESTED: [(JOB, GIB)],
    catalog.CONTAINER_MEMORY_LIMIT: [(JOB, 2 * GIB)],
    catalog.CONTAINER_MEMORY_OVERRUN: [(JOB, GIB)],
    catalog.DEVICE_MEMORY_BYTE_SECONDS: [
        ((*SHARED, "containers"), 30 * GIB),
        ((*SHARED, "free"), 770 * GIB),
        ((*SHARED, "host"), 0),
    ],
    catalog.CONTAINER_MEMORY_USED_BYTE_SECONDS: [(DONE, 2 * GIB), (JOB, 30.5 * GIB)],
    catalog.CONTAINER_MEMORY_REQUESTED_BYTE_SECONDS: [(JOB, 10 * GIB)],
    catalog.CONTAINER_MEMORY_COMMITTED_BYTE_SECONDS: [(DONE, 2 * GIB), (JOB, 31.5 * GIB)],
    catalog.CONTAINER_MEMORY_OVERRUN_BYTE_SECONDS: [(JOB, 4 * GIB)],
    catalog.CONTAINER_MEMORY_OVERRUN_SECONDS: [(JOB, 10)],
    catalog.CONTAINER_MPS_THREAD_RATIO_SECONDS: [(JOB, 5)],
    catalog.CONTAINER_PROCESSES: [((*JOB, "compute"), 0), ((*JOB, "graphics"), 0), ((*JOB, "mps"), 2)],
    catalog.CONTAINER_PROCESSES_MEMORY_UNKNOWN: [(JOB, 0)],
    catalog.CONTAINER_SLOTS: [(JOB, 1)],
    catalog.CONTAINER_SHARE: [(JOB, 0.25)],
    catalog.CONTAINER_ALLOCATED: [(JOB, 1), (STRAY, 0)],
    catalog.CONTAINER_SM_UTILIZATION: [(JOB, 0.125)],
    catalog.CONTAINER_MEMORY_CHARGED: [(JOB, 2 * GIB)],
    catalog.CONTAINER_MEMORY_LIMIT_APPLIED: [((*JOB, "cgroup"), 2 * GIB), ((*JOB, "mps_namespace"), GIB)],
    catalog.CONTAINER_MEMORY_LIMIT_ENFORCED: [(JOB, 0)],
    catalog.CONTAINER_CONDITION: [((*JOB, "limit_above_cap"), 1), ((*JOB, "outside_mps"), 1)],
    catalog.CONTAINER_MPS_ACTIVE_THREAD_RATIO: [((*JOB, "namespace"), 0.25)],
    catalog.CONTAINER_MPS_CLIENTS: [(JOB, 2)],
    catalog.MPS_DAEMON_UP: [((NEW,), 1), ((OLD,), 1), (("/run/wedged",), 0)],
    catalog.MPS_DAEMON_INFO: [((NEW, "3"), 1), ((OLD, "2"), 1)],
    catalog.MPS_DAEMON_STARTS: [((NEW,), 1), (("/run/wedged",), 0)],
    catalog.MPS_SERVER_INFO: [((NEW, "shared", "0"), 1), ((OLD, "uid_1000", ""), 1)],
    catalog.MPS_SERVER_STATE: [
        ((NEW, "shared", "active"), 1),
        ((NEW, "shared", "fault"), 0),
        ((NEW, "shared", "initializing"), 0),
        ((NEW, "shared", "unknown"), 0),
        ((OLD, "uid_1000", "active"), 0),
        ((OLD, "uid_1000", "fault"), 0),
        ((OLD, "uid_1000", "initializing"), 0),
        ((OLD, "uid_1000", "unknown"), 1),
    ],
    catalog.MPS_SERVER_CLIENTS: [((NEW, "shared"), 2)],
    catalog.MPS_SERVER_STARTS: [((NEW,), 3), (("/run/wedged",), 0)],
    catalog.MPS_ACTIVE_THREAD_RATIO: [
        ((NEW, "shared", "default", "namespace"), 0.1),
        ((NEW, "shared", "j_a", "namespace"), 0.25),
        ((OLD, "", "", "default"), 1),
        ((OLD, "uid_1000", "", "server"), 0.5),
    ],
    catalog.MPS_PINNED_MEMORY_LIMIT: [
        ((NEW, "shared", "j_a", "namespace", ""), GIB),
        ((OLD, "", "", "default", "0"), 4 * GIB),
        ((OLD, "uid_1000", "", "server", "0"), 2 * GIB),
    ],
    catalog.POD_INFO: [(("team", "job-0", "uid-0", "Job", "job", "high", "Burstable"), 1)],
    catalog.ANNOTATION_ERRORS: [(("team", "job-1", "main", "malformed"), 2)],
    catalog.SOURCE_UP: [(("kubelet",), 0), (("nvml",), 1)],
    catalog.SOURCE_DURATION: [(("kubelet",), 1.5), (("nvml",), 0.002)],
    catalog.SOURCE_LAST_SUCCESS: [(("nvml",), 1_760_000_000.25)],
    catalog.SOURCE_ERRORS: [(("kubelet", "malformed"), 1), (("kubelet", "timeout"), 7)],
    catalog.CONDITION: [(("blind_pid_namespace",), 1), (("over_attributed",), 0)],
    catalog.SNAPSHOT_TIMESTAMP: [((), 1_760_000_000.5)],
    catalog.SAMPLER_CYCLES: [(("complete",), 40), (("partial",), 8)],
    catalog.SAMPLING_GAP: [((), 60.5)],
    catalog.BUILD_INFO: [(("0.1.0", "3.11.7"), 1)],
}
HEALTH = {
    *(catalog.SOURCE_UP, catalog.SOURCE_DURATION, catalog.SOURCE_LAST_SUCCESS, catalog.SOURCE_ERRORS),
    *(catalog.MPS_DAEMON_STARTS, catalog.MPS_SERVER_STARTS),
    *(catalog.SNAPSHOT_TIMESTAMP, catalog.SAMPLER_CYCLES, catalog.SAMPLING_GAP, catalog.BUILD_INFO),
}


def by_family(found):
    return {one.family: list(one.rows) for one in found.families}


@pytest.mark.parametrize("family", catalog.FAMILIES, ids=lambda family: family.name)
def test_b96_every_family_prints_exactly_what_the_snapshot_holds(family, snapshot, totals, build):
    assert by_family(samples(snapshot, totals=totals, build=build))[family] == EXPECTED[family]


def test_families_come_in_catalogue_order_without_duplicates(snapshot, totals, build):
    found = samples(snapshot, totals=totals, build=build)
    assert tuple(one.family for one in found.families) == catalog.FAMILIES
    assert found.duplicates == 0


def test_what_is_not_known_has_no_series_and_no_family(totals, build):
    key = DomainKey(0, "GPU-aaaa")
    device = DeviceState(Device(0, "GPU-aaaa", ""), (DomainState(key, up=False),))
    container = ContainerState(ContainerName("n", "p", "c"), key, None, None, None)
    unknown = Snapshot(1.0, None, (device,), (container,), (), {})
    found = by_family(samples(unknown, totals=Totals({}, {}, {}), build=build))
    assert set(found) == {
        *(catalog.DEVICE_INFO, catalog.DEVICE_UP),
        *(catalog.SNAPSHOT_TIMESTAMP, catalog.SAMPLING_GAP, catalog.BUILD_INFO),
    }
    assert found[catalog.DEVICE_UP] == [(SHARED, 0)]
    assert found[catalog.DEVICE_INFO] == [((*SHARED, "", "", "", "", "", "", ""), 1)]


def test_a_snapshot_too_old_keeps_its_health_and_nothing_else(snapshot, totals, build):
    fresh = by_family(samples(snapshot, totals=totals, build=build))
    old = by_family(samples(snapshot, totals=totals, build=build, values=False))
    assert set(old) == HEALTH
    assert old == {family: rows for family, rows in fresh.items() if family in HEALTH}


def test_b115_a_label_set_that_occurs_twice_is_printed_once_and_counted(snapshot, totals, build):
    first = snapshot.containers[0]
    twice = replace(snapshot, containers=(replace(first, used=9 * GIB), *snapshot.containers))
    found = samples(twice, totals=totals, build=build)
    assert by_family(found) == EXPECTED
    # used, peak, requested, limit, overrun, three kinds of processes, memory unknown, slots, share, allocated,
    # utilization, charged, two limits, enforced, two conditions, share of threads, clients
    assert found.duplicates == 21


def test_b118_undecodable_bytes_become_replacement_characters_before_duplicates_are_sought(totals, build):
    key = DomainKey(0, "GPU-aaaa")
    containers = tuple(
        ContainerState(ContainerName("n\u00fc", f"p{byte}", "c"), key, used, None, None)
        for byte, used in (("\udcff", 5), ("\udcfe", 4))
    )
    found = samples(Snapshot(1.0, None, (), containers, (), {}), totals=totals, build=build)
    assert by_family(found)[catalog.CONTAINER_MEMORY_USED] == [(("n\u00fc", "p\ufffd", "c", *SHARED), 4)]
    assert found.duplicates == 1


# --- laws ---------------------------------------------------------------------------------------------------------

sizes = st.integers(0, 3)
# Few names, so that label sets meet; among them what undecodable bytes become.
names = st.sampled_from(["a", "b", "\u00e9", "\udc80", '"\\\n'])
keys = st.builds(DomainKey, st.integers(0, 1), names, st.sampled_from(["", "1"]))
domains = st.builds(
    DomainState,
    keys,
    st.booleans(),
    st.none() | sizes,
    st.dictionaries(st.sampled_from(MemoryClass), sizes),
    st.none() | sizes,
    st.dictionaries(st.sampled_from(Reason), sizes),
    st.dictionaries(names, sizes),
)
devices = st.builds(
    DeviceState,
    st.builds(Device, st.integers(0, 1), names, names),
    st.lists(domains, max_size=2).map(tuple),
    utilization=st.none() | st.floats(0, 1),
)
containers = st.builds(
    ContainerState,
    st.builds(ContainerName, names, names, names),
    keys,
    st.none() | sizes,
    st.none() | st.dictionaries(st.sampled_from(ListKind), sizes),
    st.none() | sizes,
    st.none() | st.booleans(),
    st.none() | sizes,
    st.none() | st.floats(0, 1),
)
snapshots = st.builds(
    Snapshot,
    st.just(1.0),
    st.none() | st.tuples(names, names),
    st.lists(devices, max_size=3).map(tuple),
    st.lists(containers, max_size=5).map(tuple),
    st.lists(st.builds(SourceState, names, st.none(), st.just(0.0)), max_size=3).map(tuple),
    st.just({}),
)
NOTHING = Totals({}, {}, {})
BUILD = BuildInfo("0", "3")


@given(snapshots, st.data())
def test_b15_the_order_of_the_input_changes_nothing(found, data):
    shuffled = replace(
        found,
        devices=tuple(data.draw(st.permutations(found.devices))),
        containers=tuple(data.draw(st.permutations(found.containers))),
        sources=tuple(data.draw(st.permutations(found.sources))),
    )
    assert samples(shuffled, totals=NOTHING, build=BUILD) == samples(found, totals=NOTHING, build=BUILD)


@given(snapshots)
def test_series_are_unique_sorted_complete_in_labels_and_valid_unicode(found):
    printed = samples(found, totals=NOTHING, build=BUILD)
    order = [catalog.FAMILIES.index(one.family) for one in printed.families]
    assert order == sorted(set(order))
    for one in printed.families:
        labels = [row[0] for row in one.rows]
        assert labels
        assert labels == sorted(set(labels))
        assert all(len(values) == len(one.family.labels) for values in labels)
        assert all(value.encode().decode() == value for values in labels for value in values)


@given(st.lists(containers, max_size=8).map(tuple))
def test_of_equal_label_sets_the_lowest_value_stays_and_the_rest_is_counted(states):
    lowest = {}
    known = [state for state in states if state.used is not None]
    bare = tuple(ContainerState(state.name, state.domain, state.used, None, None) for state in known)
    for state in bare:
        name, key = state.name, state.domain
        labels = (name.namespace, name.pod, name.container, str(key.gpu), key.gpu_uuid, key.gpu_instance)
        labels = tuple(value.replace("\udc80", "\ufffd") for value in labels)
        lowest[labels] = min(state.used, lowest.get(labels, state.used))
    found = samples(Snapshot(1.0, None, (), bare, (), {}), totals=NOTHING, build=BUILD)
    assert dict(by_family(found).get(catalog.CONTAINER_MEMORY_USED, [])) == lowest
    assert found.duplicates == len(bare) - len(lowest)
