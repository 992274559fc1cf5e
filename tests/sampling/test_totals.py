"""What adds up: counters only grow, and a peak lives as long as its container."""

from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.accounting import account, account_failure, opened
from exporter.errors import Failure, Reason
from exporter.model import LivePods, PodNames
from tests.builders import GIB, U1, allocated, given, gpu, in_pod, lists, names_of, rows, snapshot_of

NAMES = names_of("a/main", "b/main")


def holding(**used):
    """A snapshot in which pods hold so many GiB on one GPU."""
    pids = {pod: number for number, pod in enumerate(sorted(used), start=11)}
    return snapshot_of(
        gpu(lists(rows(*((pids[pod], amount * GIB) for pod, amount in used.items())))),
        places={pid: in_pod(pod) for pod, pid in pids.items()},
        names=NAMES,
    )


def peaks_after(*snapshots):
    totals = opened()
    for snapshot in snapshots:
        totals = account(totals, snapshot)
    return {name.pod: peak // GIB for (name, _), peak in totals.peaks.items()}


def test_a_peak_is_the_highest_use():
    assert peaks_after(holding(a=1), holding(a=5), holding(a=2)) == {"a": 5}


def test_p4_the_peak_of_a_container_that_is_gone_is_forgotten():
    assert peaks_after(holding(a=5, b=1), holding(b=1)) == {"b": 1}
    assert peaks_after(holding(a=5), holding(b=1), holding(a=1)) == {"a": 1}


def test_a_peak_outlasts_cycles_in_which_nobody_can_tell():
    lost = snapshot_of(gpu(failure=Failure(Reason.GPU_LOST, "")))
    blind = snapshot_of(
        gpu(), places=Failure(Reason.BLIND_PID_NAMESPACE, ""), names=NAMES, allocations=allocated(given("a", U1))
    )
    assert peaks_after(holding(a=5), lost, holding(a=1)) == {"a": 5}
    assert peaks_after(holding(a=5), blind, holding(a=1)) == {"a": 5}


def test_a_failed_cycle_is_counted():
    totals = account_failure(opened(), "sampler", Reason.INTERNAL)
    assert totals.errors == {("sampler", Reason.INTERNAL): 1}
    assert totals.cycles == {"complete": 0, "partial": 0, "failed": 1}


@for_all(st.lists(st.sampled_from(["well", "ill", "none"]), max_size=12))
def test_b95_counters_never_fall_and_count_every_cycle(cycles):
    totals = opened()
    for kind in cycles:
        before = totals
        if kind == "none":
            totals = account_failure(totals, "sampler", Reason.INTERNAL)
        else:
            names = Failure(Reason.MISSING, "") if kind == "ill" else PodNames({}, {})
            totals = account(totals, snapshot_of(gpu(), names=names, live=LivePods(frozenset({"x"}))))
        for key, count in before.errors.items():
            assert totals.errors[key] >= count
        assert sum(totals.cycles.values()) == sum(before.cycles.values()) + 1
    assert totals.cycles == {
        "complete": cycles.count("well"),
        "partial": cycles.count("ill"),
        "failed": cycles.count("none"),
    }
