"""When the sampler asks for slices: while the kubelet tells of claims, and never otherwise."""

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import (
    DRA_DRIVER,
    Allocation,
    AllocationReading,
    ContainerName,
    DeviceKind,
    DeviceRef,
    DraAttributes,
    DraDevice,
    DraType,
    DriverReading,
    LivePods,
    ProcessReading,
    Reading,
    SliceReading,
)
from exporter.sampler import Sampler, Sources
from tests.builders import GIB, U1, allocated, given, gpu, in_pod, lists, names_of, rows, uid

WITHOUT = Reading("kubelet", allocated(given("a", U1)))
DEVICE = DraDevice(DRA_DRIVER, "n", "gpu-7")
WITH = Reading(
    "kubelet",
    AllocationReading(
        (
            Allocation(
                ContainerName("ns", "a", "main"), DRA_DRIVER, (DeviceRef("/".join(DEVICE), DeviceKind.GPU, minor=7),)
            ),
        )
    ),
)
KNOWN = Reading("resourceslices", SliceReading({DEVICE: DraAttributes(DraType.GPU, uuid=U1)}))


class Fixed:
    """A source that says what it is told to, and remembers what it was asked."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.asked = []

    def read(self, *arguments, **options):
        self.asked.append(arguments)
        return self.outcome

    def stop(self):
        pass


@pytest.fixture
def published():
    return []


@pytest.fixture
def sources():
    driver = DriverReading("580", "13.0", (gpu(lists(rows((11, GIB)))),))
    return Sources(
        driver=Fixed(Reading("nvml", driver)),
        processes=Fixed(Reading("procfs", ProcessReading({11: in_pod("a")}))),
        pods=Fixed(Reading("pods", names_of("a/main"))),
        kubelet=Fixed(WITH),
        live=Fixed(Reading("cgroups", LivePods(frozenset({uid("a")})))),
        slices=Fixed(KNOWN),
    )


@pytest.fixture
def cycle(sources, published):
    sampler = Sampler(
        sources,
        interval=5.0,
        deadline=2.0,
        clock=Clock(monotonic=lambda: 100.0, unix=lambda: 1e9),
        publish=lambda snapshot, totals: published.append(snapshot),
    )
    return lambda: sampler.cycle() or published[-1]


def shown(snapshot):
    return [state.source for state in snapshot.sources]


def test_claims_are_looked_up_and_joined(cycle, sources):
    snapshot = cycle()
    assert sources.slices.asked == [(frozenset({DEVICE}),)]
    assert [(s.name.pod, s.allocated, s.slots, s.share) for s in snapshot.containers] == [("a", True, 1, 1.0)]
    assert "resourceslices" in shown(snapshot)


def test_without_claims_nobody_is_asked_and_no_such_source_is_shown(cycle, sources):
    sources.kubelet.outcome = WITHOUT
    assert "resourceslices" not in shown(cycle())
    assert sources.slices.asked == []


def test_when_the_last_claim_ends_the_source_is_gone(cycle, sources):
    cycle()
    sources.kubelet.outcome = WITHOUT
    assert "resourceslices" not in shown(cycle())
    assert len(sources.slices.asked) == 1


def test_while_the_kubelet_fails_the_claims_it_last_told_of_are_looked_up(cycle, sources):
    cycle()
    sources.kubelet.outcome = Reading("kubelet", Failure(Reason.UNAVAILABLE, "refused"))
    assert "resourceslices" in shown(cycle())
    assert sources.slices.asked == [(frozenset({DEVICE}),)] * 2


def test_a_failure_is_counted_and_costs_the_allocation_only(cycle, sources):
    sources.slices.outcome = Reading("resourceslices", Failure(Reason.NO_PERMISSION, "the rule"))
    snapshot = cycle()
    assert [(s.name.pod, s.used, s.allocated) for s in snapshot.containers] == [("a", GIB, None)]
    assert [s.failure for s in snapshot.sources if s.source == "resourceslices"] == [sources.slices.outcome.failure]
