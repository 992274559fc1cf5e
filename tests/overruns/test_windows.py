"""When an overrun begins and ends, by the samples of a window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.overruns import Mark, Track, Window, follow, uses
from exporter.model import ContainerName, ContainerState, DomainKey
from tests.overruns.conftest import CAP, GIB, GPU, MIB, OVER, UNDER, cap, pod

WINDOW = Window()
WITHIN = CAP + 100 * MIB  # 2 % of 10 GiB are 204.8 MiB


def run(samples, *, window=WINDOW, track=None):
    track = Track() if track is None else track
    for used in samples:
        track = follow(track, used, CAP, window)
    return track


@pytest.mark.parametrize(("limit", "tolerance"), [(10 * GIB, int(10 * GIB * 0.02)), (GIB, 64 * MIB), (MIB, 64 * MIB)])
def test_the_tolerance_is_two_percent_and_64_mib_at_least(limit, tolerance):
    assert WINDOW.tolerance(limit) == tolerance
    assert follow(Track(), limit + tolerance, limit, WINDOW).marks == (Mark.WITHIN,)
    assert follow(Track(), limit + tolerance + 1, limit, WINDOW).marks == (Mark.ABOVE,)
    assert follow(Track(), limit, limit, WINDOW).marks == (Mark.UNDER,)


def test_three_of_five_begin_it():
    assert not run([OVER, OVER]).on
    assert run([OVER, OVER, OVER]).on
    assert run([OVER, UNDER, OVER, UNDER, OVER]).on
    assert not run([OVER, OVER, UNDER, UNDER, UNDER, OVER]).on


def test_a_sample_that_is_not_known_is_none():
    assert run([OVER, None, None, None, None, OVER, None, OVER]).on
    assert run([None] * 9) == Track()


def test_it_ends_only_when_a_whole_window_is_under_the_cap_itself():
    begun = run([OVER] * 5)
    assert run([UNDER] * 4, track=begun).on
    assert run([UNDER] * 4 + [WITHIN] + [UNDER] * 4, track=begun).on
    assert run([WITHIN] * 50, track=begun).on
    ended = run([UNDER] * 5, track=begun)
    assert (ended.on, ended.told) == (False, frozenset())


def test_after_something_was_done_only_what_comes_then_counts():
    acted = run([OVER] * 5).judged_anew()
    assert acted.on
    assert not run([OVER, OVER], track=acted).proven(WINDOW)
    assert run([OVER, OVER, OVER], track=acted).proven(WINDOW)


def test_a_cap_that_is_lowered_makes_no_overrun_of_the_past():
    track = run([UNDER] * 5)
    track = follow(track, UNDER, GIB, WINDOW)
    assert not track.on


def test_a_cap_that_is_moved_to_and_fro_ends_nothing():
    track = run([OVER] * 3)
    for limit in (OVER, CAP) * 10:
        track = follow(track, OVER, limit, WINDOW)
        assert track.on


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 2 * CAP)), max_size=40),
    st.integers(1, 6).flatmap(lambda samples: st.tuples(st.integers(1, samples), st.just(samples))),
)
def test_law_it_begins_with_k_of_n_above_and_never_without(samples, sizes):
    above, size = sizes
    window = Window(above=above, samples=size)
    track, known = Track(), []
    for used in samples:
        before, track = track, follow(track, used, CAP, window)
        known += [used] if used is not None else []
        high = sum(found > CAP + window.tolerance(CAP) for found in known[-size:])
        if not before.on:
            assert track.on == (high >= above)
        elif not track.on:
            assert all(found <= CAP for found in known[-size:])
        assert len(track.marks) <= size


# --- what a container uses ----------------------------------------------------------------------------------------


def state(used=OVER, *, pids=(7,), instance="", container="main"):
    name = ContainerName("team", "job-0", container)
    return ContainerState(name, DomainKey(0, GPU, instance), used, None, None, pids=pids)


def test_a_use_goes_to_its_cap():
    found = uses([cap(), cap(container="side")], [state()], {7: pod().uid})
    assert {key.container: use.used for key, use in found.items()} == {"main": OVER}
    assert found[cap().key].pids == {7}


def test_what_is_not_known_is_no_use_and_a_gpu_instance_is_not_its_gpu():
    assert uses([cap()], [state(None)], {}) == {}
    assert uses([cap()], [state(instance="3")], {}) == {}
    assert uses([cap(limit=None)], [state()], {}) == {}


def test_the_processes_of_an_older_pod_of_the_same_name_are_not_held_against_it():
    assert uses([cap()], [state(pids=(7, 8))], {7: pod().uid, 8: pod(1).uid}) == {}
