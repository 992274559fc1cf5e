"""The cycle: what is published, what a fault costs, when the sampler is stuck."""

import threading

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import AllocationReading, DriverReading, LivePods, PodNames, ProcessReading, Reading
from exporter.sampler import Sampler, Sources
from tests.builders import GIB, allocated, given, gpu, in_pod, lists, names_of, rows, uid


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Fixed:
    """A source that says what it is told to, and remembers what it was asked."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.asked = []
        self.options = []

    def read(self, *arguments, **options):
        self.asked.append(arguments)
        self.options.append(options)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def stop(self):
        self.asked.append("stop")


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def sources():
    driver = DriverReading("580", "13.0", (gpu(lists(rows((11, GIB), (12, GIB)))),))
    return Sources(
        driver=Fixed(Reading("nvml", driver)),
        processes=Fixed(Reading("procfs", ProcessReading({11: in_pod("a"), 12: in_pod("a")}))),
        pods=Fixed(Reading("pods", names_of("a/main"))),
        kubelet=Fixed(Reading("kubelet", allocated(given("a", gpu().device.uuid)))),
        live=Fixed(Reading("cgroups", LivePods(frozenset({uid("a")})))),
    )


@pytest.fixture
def published():
    return []


@pytest.fixture
def sampler(sources, time, published):
    return Sampler(
        sources,
        interval=5.0,
        deadline=2.0,
        clock=Clock(monotonic=time, unix=lambda: 1e9 + time.now, boottime=lambda: time.now),
        publish=lambda snapshot, totals: published.append((snapshot, totals)),
    )


def test_a_cycle_joins_the_sources_and_publishes_once(sampler, sources, published):
    sampler.cycle()
    ((snapshot, totals),) = published
    assert sources.processes.asked == [(frozenset({11, 12}),)]
    assert [(state.name.pod, state.used, state.allocated) for state in snapshot.containers] == [("a", 2 * GIB, True)]
    assert snapshot.timestamp == 1e9 + 100
    assert totals.cycles == {"complete": 1, "partial": 0, "failed": 0}
    assert totals.last_success == dict.fromkeys(("cgroups", "kubelet", "nvml", "pods", "procfs"), 1e9 + 100)


def test_a_failing_source_is_counted_and_makes_the_cycle_partial(sampler, sources, published):
    sources.kubelet.outcome = Reading("kubelet", Failure(Reason.UNAVAILABLE, "refused"))
    sampler.cycle()
    sampler.cycle()
    _, totals = published[-1]
    assert totals.errors == {("kubelet", Reason.UNAVAILABLE): 2}
    assert totals.cycles["partial"] == 2
    assert "kubelet" not in totals.last_success


def test_a_source_that_raises_costs_itself(sampler, sources, published):
    sources.pods.outcome = RuntimeError("a bug")
    sampler.cycle()
    snapshot, totals = published[-1]
    assert totals.errors == {("pods", Reason.INTERNAL): 1}
    assert snapshot.containers


def test_a_cycle_that_fails_publishes_nothing_and_the_next_one_does(sampler, sources, published):
    good = sources.driver.outcome
    sources.driver.outcome = RuntimeError("a bug")
    sampler.cycle()
    assert published == []
    sources.driver.outcome = good
    sampler.cycle()
    _, totals = published[-1]
    assert totals.errors == {("sampler", Reason.INTERNAL): 1}
    assert totals.cycles == {"complete": 1, "partial": 0, "failed": 1}


def test_cycles_add_up_over_the_monotonic_clock_and_longer_gaps_are_counted(sampler, time, published):
    for pause in (5.0, 15.0, 15.5):
        sampler.cycle()
        time.now += pause
    sampler.cycle()
    integrals = published[-1][1].integrals
    assert [integral.sums[0] for integral in integrals.containers.values()] == [2 * GIB * 20.0]
    assert integrals.gap == 15.5


def test_the_counters_of_what_is_gone_are_dropped_after_the_time_that_the_sampler_was_given(sources, time, published):
    clock = Clock(monotonic=time, unix=time, boottime=time)
    sampler = Sampler(
        sources,
        interval=5.0,
        deadline=2.0,
        clock=clock,
        publish=lambda _, totals: published.append(totals),
        retain=10.0,
    )
    sampler.cycle()
    sources.driver.outcome = Reading("nvml", DriverReading("580", "13.0", ()))
    for _ in range(3):
        time.now += 5.0
        sampler.cycle()
    assert [len(totals.integrals.containers) for totals in published] == [1, 1, 1, 0]


def test_the_sampler_is_stuck_when_no_cycle_ends(sampler, time):
    sampler.cycle()
    time.now += 3 * 5 + 2
    assert sampler.stuck() is None
    time.now += 1
    assert sampler.stuck() == "no sampling cycle has ended for 18 s"
    sampler.cycle()
    assert sampler.stuck() is None


def test_each_kind_of_trouble_is_logged_once_and_its_end_too(sampler, sources, caplog):
    caplog.set_level("INFO")
    good = sources.kubelet.outcome
    sources.kubelet.outcome = Reading("kubelet", Failure(Reason.UNAVAILABLE, "refused"))
    for _ in range(3):
        sampler.cycle()
    sources.kubelet.outcome = good
    for _ in range(3):
        sampler.cycle()
    assert [record.getMessage() for record in caplog.records] == [
        "source kubelet: unavailable: refused",
        "source kubelet: well again",
    ]


def test_beats_are_steady_and_those_missed_are_skipped(sampler, sources, time, published):
    stop = Waiter(time, ends_after=4)
    lengths = iter([1.0, 12.0, 1.0, 1.0])
    read = sources.driver.read

    def slow(*arguments):
        time.now += next(lengths)
        return read(*arguments)

    sources.driver.read = slow
    sampler.run(stop)
    # Cycles begin at 100, 105, (110 and 115 are missed) 120 and 125.
    assert [snapshot.timestamp - 1e9 for snapshot, _ in published] == [101.0, 117.0, 121.0, 126.0]
    assert sources.driver.asked[-1] == "stop"


class Waiter(threading.Event):
    """A stop event whose wait lets the time pass at once."""

    def __init__(self, time, *, ends_after):
        super().__init__()
        self._time = time
        self._left = ends_after

    def wait(self, timeout=None):
        self._time.now += timeout
        self._left -= 1
        if not self._left:
            self.set()
        return self.is_set()


def test_empty_sources_give_an_empty_snapshot(sources, sampler, published):
    sources.driver.outcome = Reading("nvml", Failure(Reason.NO_GPUS, "none"))
    sources.pods.outcome = Reading("pods", PodNames({}, {}))
    sources.kubelet.outcome = Reading("kubelet", AllocationReading(()))
    sampler.cycle()
    assert published[-1][0].devices == ()
    assert sources.processes.asked == [(frozenset(),)]


def test_processes_are_told_when_the_driver_had_listed_them(sources, sampler, time):
    listed = sources.driver.read

    def slow():
        time.now += 1.5
        return listed()

    sources.driver.read = slow
    sampler.cycle()
    assert sources.processes.options == [{"listed_at": 101.5}]
