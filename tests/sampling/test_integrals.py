"""What adds up over time: byte-seconds by hand, gaps, unknowns, what is gone; and the laws of bills."""

from collections import Counter
from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.accounting import account, account_failure, opened
from exporter.errors import Failure, Reason
from exporter.integrals import Bounds, integrate
from exporter.model import (
    AllocationReading,
    Amount,
    ContainerName,
    ContainerState,
    DomainKey,
    Integrals,
    MemoryClass,
    Snapshot,
)
from tests import strategies as made
from tests.builders import GIB, MIB, U1, gpu, in_pod, lists, memory, names_of, rows, snapshot_of
from tests.strategies import attributed

BOUNDS = Bounds(gap=15.0, retain=300.0)
KEY = DomainKey(0, U1)
HOUR = 3600


def container(pod, *, used=None, **known):
    return ContainerState(ContainerName("ns", pod, "main"), KEY, used, None, None, **known)


def at(time, *containers):
    """A snapshot at a monotonic time."""
    return Snapshot(1e9 + time, None, (), containers, (), {}, monotonic=time)


def held(time, **used):
    """A snapshot in which pods hold so many bytes of one GPU."""
    return at(time, *(container(pod, used=size) for pod, size in used.items()))


def after(*snapshots, bounds=BOUNDS):
    found = Integrals()
    for snapshot in snapshots:
        found = integrate(found, snapshot, bounds)
    return found


def sums(found, pod="a"):
    """The sums of a pod by amount; those that were never known are not there."""
    integral = found.containers[ContainerName("ns", pod, "main"), KEY]
    return {amount: total for amount, total in zip(Amount, integral.sums, strict=True) if total is not None}


def used(found, pod="a"):
    return sums(found, pod)[Amount.USED]


# --- by hand ------------------------------------------------------------------------------------------------------


def test_four_pods_with_a_quarter_each_make_one_gpu_hour():
    pids = dict(zip("abcd", range(11, 15), strict=True))
    quarter = 20 * GIB
    found = Integrals()
    for second in range(0, HOUR + 1, 5):
        snapshot = snapshot_of(
            gpu(lists(rows(*((pid, quarter) for pid in pids.values()))), memory(used=80 * GIB, reserved=0)),
            places={pid: in_pod(pod) for pod, pid in pids.items()},
            names=names_of(*(f"{pod}/main" for pod in pids)),
            at=1000.0 + second,
        )
        found = integrate(found, snapshot, BOUNDS)
    capacity = 80 * GIB
    assert [used(found, pod) / capacity / HOUR for pod in pids] == [0.25] * 4
    assert sum(used(found, pod) for pod in pids) / capacity / HOUR == 1
    assert found.gap == 0


def test_committed_byte_seconds_are_the_integral_by_hand():
    def holding(size):
        return container("a", used=size * GIB, requested=10 * GIB, limit=12 * GIB)

    found = after(
        at(0.0, holding(4)),  # 5 s: 4 used, 10 committed
        at(5.0, holding(11)),  # 2.5 s: 11 used, 11 committed
        at(7.5, holding(16)),  # 10 s: 16 used, 16 committed, 4 over
        at(17.5, holding(12)),  # 5 s: at the limit is not over it
        at(22.5, holding(0)),
    )
    assert sums(found) == {
        Amount.USED: (5 * 4 + 2.5 * 11 + 10 * 16 + 5 * 12) * GIB,
        Amount.REQUESTED: 22.5 * 10 * GIB,
        Amount.COMMITTED: (5 * 10 + 2.5 * 11 + 10 * 16 + 5 * 12) * GIB,
        Amount.OVERRUN: 10 * 4 * GIB,
        Amount.OVERRUNNING: 10,
    }


def test_the_thread_ratio_adds_up_to_seconds():
    found = after(
        at(0.0, container("a", mps_thread_ratio=0.5)), at(8.0, container("a", mps_thread_ratio=0.25)), at(12.0)
    )
    assert sums(found) == {Amount.THREAD_RATIO: 8 * 0.5 + 4 * 0.25}


def test_a_counter_is_there_at_0_when_its_container_is_first_seen():
    assert sums(after(held(0.0, a=GIB))) == {Amount.USED: 0, Amount.COMMITTED: 0}
    assert sums(after(held(0.0), at(5.0, container("a", used=0, requested=1, limit=1, mps_thread_ratio=0.1)))) == (
        dict.fromkeys(Amount, 0)
    )


def test_devices_add_up_by_class():
    def snapshot(time, **classes):
        return snapshot_of(
            gpu(lists(rows((11, classes["mine"] * GIB))), memory(used=classes["used"] * GIB, reserved=GIB)),
            places={11: in_pod("a")},
            names=names_of("a/main"),
            at=time,
        )

    found = after(snapshot(0.0, mine=3, used=4), snapshot(10.0, mine=1, used=4), snapshot(12.0, mine=0, used=0))
    totals = dict(zip(MemoryClass, found.devices[KEY].sums, strict=True))
    assert totals[MemoryClass.CONTAINERS] == used(found) == (10 * 3 + 2 * 1) * GIB
    assert totals[MemoryClass.REMAINDER] == (10 * 1 + 2 * 3) * GIB
    assert totals[MemoryClass.HOST] == 0
    assert totals[MemoryClass.UNREAD] is None
    assert sum(total for total in totals.values() if total is not None) == 12 * 80 * GIB


# --- time that does not count -------------------------------------------------------------------------------------


def test_a_gap_of_more_than_three_intervals_is_counted_and_in_no_sum():
    found = after(held(0.0, a=1), held(15.0, a=1), held(30.5, a=1), held(35.5, a=1))
    assert used(found) == 15 + 5
    assert found.gap == 15.5


def test_time_in_which_a_value_is_not_known_is_missing_in_that_sum_only():
    found = after(
        at(0.0, container("a", used=2, requested=4, limit=1)),
        at(5.0, container("a", requested=4, limit=1)),
        at(10.0, container("a", used=8, requested=4, limit=1)),
        at(15.0, container("a", used=8, requested=4, limit=1)),
    )
    assert sums(found) == {
        Amount.USED: 5 * 2 + 5 * 8,
        Amount.REQUESTED: 15 * 4,
        Amount.COMMITTED: 5 * 4 + 5 * 4 + 5 * 8,  # while use is not known, what was asked for stands
        Amount.OVERRUN: 5 * 1 + 5 * 7,
        Amount.OVERRUNNING: 10,
    }
    assert found.gap == 0


def test_a_gpu_that_is_lost_stands_still_and_goes_on():
    well = gpu(lists(), memory(used=0, reserved=0))
    lost = gpu(failure=Failure(Reason.GPU_LOST, ""))
    found = after(
        snapshot_of(well, at=0.0), snapshot_of(lost, at=5.0), snapshot_of(well, at=10.0), snapshot_of(at=12.0)
    )
    assert dict(zip(MemoryClass, found.devices[KEY].sums, strict=True))[MemoryClass.FREE] == (5 + 2) * 80 * GIB


# --- what is gone -------------------------------------------------------------------------------------------------


def test_p4_what_is_gone_keeps_its_counters_for_the_retention_and_no_longer():
    bounds = Bounds(gap=15.0, retain=20.0)
    seen = [held(0.0, a=3), held(5.0, a=3)]
    gone = [held(time) for time in (10.0, 15.0, 20.0, 25.0)]
    found = after(*seen, *gone, bounds=bounds)
    assert used(found) == 3 * 10  # what it held counts until the snapshot that no longer has it
    assert not after(*seen, *gone, held(30.0), bounds=bounds).containers


def test_what_comes_back_within_the_retention_goes_on_and_later_begins_anew():
    bounds = Bounds(gap=15.0, retain=20.0)
    gone = [held(time) for time in (10.0, 15.0, 20.0, 25.0, 30.0)]
    soon = [held(0.0, a=3), held(5.0, a=3), *gone[:4], held(30.0, a=2), held(35.0, a=2)]
    assert used(after(*soon, bounds=bounds)) == 3 * 10 + 2 * 5
    late = [held(0.0, a=3), held(5.0, a=3), *gone, held(35.0, a=2), held(40.0, a=2)]
    assert used(after(*late, bounds=bounds)) == 2 * 5


def test_churn_leaves_no_more_than_the_retention_behind():
    bounds = Bounds(gap=15.0, retain=60.0)
    found = Integrals()
    for cycle in range(10_000):
        found = integrate(found, held(5.0 * cycle, **{f"pod-{cycle}": GIB}), bounds)
        assert len(found.containers) <= 1 + 60 / 5


# --- laws ---------------------------------------------------------------------------------------------------------

# Eighths of seconds and few mebibytes: floats hold each product and each sum, so that laws are equations.
steps = st.integers(1, 200).map(lambda eighths: eighths / 8)  # of which some are gaps
sizes = st.none() | st.integers(0, 512).map(lambda n: n * MIB)
ratios = st.none() | st.integers(0, 4).map(lambda n: n / 4)
pods = st.fixed_dictionaries({"used": sizes, "requested": sizes, "limit": sizes, "mps_thread_ratio": ratios})
nodes = st.dictionaries(st.sampled_from("abc"), pods, max_size=3)
courses = st.lists(st.tuples(steps, nodes), min_size=1, max_size=8)
SHORT = Bounds(gap=15.0, retain=30.0)


def of_course(course):
    """A course as snapshots."""
    time = 0.0
    for step, node in course:
        time += step
        yield at(time, *(container(pod, **known) for pod, known in node.items()))


@for_all(courses)
def test_b95_no_sum_falls_while_it_is_there(course):
    found = Integrals()
    for snapshot in of_course(course):
        before, found = found, integrate(found, snapshot, SHORT)
        assert found.gap >= before.gap
        for key in before.containers.keys() & found.containers.keys():
            for old, new in zip(before.containers[key].sums, found.containers[key].sums, strict=True):
                assert old is None or (new is not None and new >= old)


@for_all(courses)
def test_committed_is_at_least_what_is_used_and_what_is_requested(course):
    for key, integral in after(*of_course(course), bounds=SHORT).containers.items():
        known = dict(zip(Amount, integral.sums, strict=True))
        for amount in (Amount.USED, Amount.REQUESTED):
            assert known[amount] is None or known[Amount.COMMITTED] >= known[amount], key
        if known[Amount.OVERRUN] is not None:
            assert known[Amount.OVERRUN] <= known[Amount.USED]


@for_all(courses, st.randoms(use_true_random=False))
def test_b15_the_order_of_containers_changes_nothing(course, random):
    def mixed(snapshot):
        states = list(snapshot.containers)
        random.shuffle(states)
        return replace(snapshot, containers=tuple(states))

    snapshots = list(of_course(course))
    assert after(*map(mixed, snapshots), bounds=SHORT) == after(*snapshots, bounds=SHORT)


@for_all(courses, st.data())
def test_an_interval_in_two_parts_adds_up_to_the_whole(course, data):
    snapshots = list(of_course(course))
    cut = data.draw(st.integers(1, max(1, len(snapshots) - 1)))
    if cut == len(snapshots) or snapshots[cut].monotonic - snapshots[cut - 1].monotonic > SHORT.gap:
        return
    between = (snapshots[cut - 1].monotonic + snapshots[cut].monotonic) / 2
    halves = [*snapshots[:cut], replace(snapshots[cut - 1], monotonic=between), *snapshots[cut:]]
    forever = replace(SHORT, retain=1e9)  # what was seen later is kept longer
    whole, parts = after(*snapshots, bounds=forever), after(*halves, bounds=forever)
    assert {key: found.sums for key, found in parts.containers.items()} == {
        key: found.sums for key, found in whole.containers.items()
    }
    assert parts.gap == whole.gap


@for_all(st.lists(st.tuples(steps, made.gpus_of_every_mode), min_size=2, max_size=4), made.places, made.named)
def test_byte_seconds_of_all_classes_are_those_of_the_capacity(course, places, names):
    found = Integrals()
    time = 0.0
    capacity, not_partitioned, not_known = Counter(), set(), set()
    last = []
    for step, gpus in course:
        time += step
        snapshot = replace(attributed(gpus, places, names, AllocationReading(())), monotonic=time)
        found = integrate(found, snapshot, replace(SHORT, retain=1e9))
        if step <= SHORT.gap:
            capacity.update({domain.key: step * domain.capacity for domain in last if domain.capacity is not None})
        last = [domain for device in snapshot.devices for domain in device.domains]
        not_partitioned |= {domain.key for domain in last if domain.over_attributed}
        not_known |= {domain.key for domain in last if MemoryClass.CONTAINERS not in domain.classes}
    for key, integral in found.devices.items():
        totals = dict(zip(MemoryClass, integral.sums, strict=True))
        if key not in not_partitioned:
            assert sum(total or 0 for total in totals.values()) == capacity[key]
        if key not in not_known:
            mine = [container for (_, domain), container in found.containers.items() if domain == key]
            assert sum(container.sums[0] or 0 for container in mine) == totals[MemoryClass.CONTAINERS]


# --- beside the other totals --------------------------------------------------------------------------------------


def test_totals_carry_the_integrals_on():
    totals = opened()
    for snapshot in (held(0.0, a=1), held(5.0, a=1), held(30.0, a=1)):
        totals = account(totals, snapshot, BOUNDS)
    assert used(totals.integrals) == 5
    assert totals.integrals.gap == 25
    assert account_failure(totals, "sampler", Reason.INTERNAL).integrals == totals.integrals
