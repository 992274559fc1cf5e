"""Each reaction, step by step."""

from itertools import pairwise

import pytest

from enforcer.model import EvictPod
from enforcer.notices import NoticeReason
from enforcer.outcomes import Done, Pending
from exporter.caps.requests import Reaction
from exporter.errors import Failure, Reason
from exporter.model import Backend
from tests.overruns.conftest import OVER, UNDER, Node, cap, pod

FAILED = Failure(Reason.DAEMON_WEDGED, "no answer")


def node(reaction, *, clients=(), **more):
    found = Node([cap(0, reaction)], **more)
    found.used[found.caps[0].key] = OVER
    for pid in clients:
        found.joins(pid, started=float(pid))
    return found


def pids(actions):
    return [action.pid if not isinstance(action, EvictPod) else "evict" for action in actions]


def test_warn_says_it_once_in_an_overrun_and_does_nothing():
    it = node(Reaction.WARN, clients=(11,))
    assert it.cycle(400) == []
    assert it.reasons() == [NoticeReason.OVERRUN]
    assert "12Gi" in it.notices[0].message
    assert "2Gi more than its cap of 10Gi" in it.notices[0].message
    assert it.began == [(it.caps[0].key, Reaction.WARN)]
    it.used[it.caps[0].key] = UNDER
    it.cycle(5)
    it.used[it.caps[0].key] = OVER
    it.cycle(5)
    assert it.reasons() == [NoticeReason.OVERRUN] * 2
    assert len(it.began) == 2


@pytest.mark.parametrize(("backend", "says"), [(Backend.DMEM, "is held at"), (None, "can't be held")])
def test_freeze_says_whether_it_can_be(backend, says):
    it = node(Reaction.FREEZE, clients=(11,), backend=backend)
    assert it.cycle(50) == []
    assert it.reasons() == [NoticeReason.OVERRUN]
    assert says in it.notices[0].message


def test_terminate_ends_the_newest_client_and_looks_again():
    it = node(Reaction.TERMINATE, clients=(11, 13, 12))
    assert pids(it.cycle(3)) == [13]
    assert it.log[0][1].server == 77
    assert it.log[0][1].pod == pod()
    assert pids(it.cycle(29)) == []  # a minute has not passed
    assert pids(it.cycle(1)) == [12]
    it.used[it.caps[0].key] = UNDER
    assert it.cycle(100) == []
    assert NoticeReason.TERMINATED in it.reasons()


def test_nothing_is_ended_in_a_moment_when_the_use_is_under_the_cap():
    it = node(Reaction.TERMINATE, clients=(11, 12))
    assert pids(it.cycle(31)) == [12]  # the next may be ended now
    it.used[it.caps[0].key] = UNDER
    assert it.cycle(1) == []
    it.used.clear()
    assert it.cycle(1) == []
    it.used[it.caps[0].key] = OVER
    assert pids(it.cycle(1)) == [11]


def test_a_process_that_is_no_client_is_left_alone():
    it = node(Reaction.TERMINATE)
    assert it.cycle(100) == []
    assert it.reasons() == [NoticeReason.OVERRUN, NoticeReason.NO_REACTION]


def test_clients_of_another_container_are_not_ended_for_this_one():
    it = node(Reaction.TERMINATE)
    it.joins(21, container="side")
    it.joins(22, number=1)
    assert it.cycle(100) == []


def test_a_pid_that_two_servers_list_is_nobodys():
    it = node(Reaction.TERMINATE, clients=(11,), second_server=(11,))
    assert it.cycle(10) == []
    it = node(Reaction.EVICT, clients=(11,), second_server=(11,))
    assert it.cycle(10) == []
    assert NoticeReason.NO_REACTION in it.reasons()


def test_a_client_that_could_not_be_ended_makes_the_pod_suspect():
    it = node(Reaction.TERMINATE, clients=(11, 12))
    assert pids(it.cycle(3, outcome=lambda _: FAILED)) == [12]
    assert it.watched.suspects == {pod().uid}
    assert it.cycle(500) == []
    assert NoticeReason.SUSPECT in it.reasons()
    it.caps = []
    it.cycle(1)
    assert it.watched.suspects == frozenset()


def test_evict_ends_the_clients_first_all_of_them():
    it = node(Reaction.EVICT, clients=(11, 12))
    it.joins(13, container="side", started=99.0)
    assert pids(it.cycle(3)) == [13, 12, 11]
    it.used[it.caps[0].key] = 0  # they are gone
    assert pids(it.cycle(1)) == ["evict"]
    assert it.cycle(500) == []
    assert it.watched.evicted == {pod().uid}
    assert it.reasons()[-1] is NoticeReason.EVICTED


def test_evict_at_once_where_there_is_no_client():
    it = node(Reaction.EVICT)
    assert pids(it.cycle(3)) == ["evict"]


def test_no_eviction_after_a_client_that_could_not_be_ended():
    it = node(Reaction.EVICT, clients=(11, 12))

    def outcome(action):
        return FAILED if action.pid == 12 else Done()

    assert pids(it.cycle(3, outcome=outcome)) == [12, 11]
    it.clients.clear()
    assert it.cycle(500) == []
    assert NoticeReason.SUSPECT in it.reasons()


@pytest.mark.parametrize("hidden", [{"all_clients": False}, {"lists": False}])
def test_no_eviction_where_it_is_not_known_who_the_clients_are(hidden):
    it = node(Reaction.EVICT, **hidden)
    assert it.cycle(100) == []
    assert it.reasons() == [NoticeReason.OVERRUN, NoticeReason.NO_REACTION]


def test_an_eviction_under_way_waits_for_a_daemon_that_does_not_answer_but_not_for_ever():
    it = node(Reaction.EVICT, clients=(11,))
    assert pids(it.cycle(3)) == [11]
    it.all_clients = False
    assert it.cycle(3) == []
    it.all_clients = True
    assert pids(it.cycle(1)) == ["evict"]
    it = node(Reaction.EVICT, clients=(11,))
    it.cycle(3)
    it.all_clients = False
    it.used[it.caps[0].key] = UNDER
    assert it.cycle(40) == []
    assert it.watched.leaving == {}
    assert NoticeReason.EVICTION_REFUSED in it.reasons()


def test_clients_that_come_again_are_not_ended_for_ever():
    it = node(Reaction.EVICT, clients=(11,))
    actions = []
    for _ in range(20):
        actions += it.cycle(1)
        it.joins(11)
    assert pids(actions) == [11] * 3
    assert it.watched.leaving == {}


def test_a_refused_eviction_is_asked_for_again_while_the_overrun_stays():
    it = node(Reaction.EVICT)
    assert pids(it.cycle(33, outcome=lambda _: Pending("a disruption budget"))) == ["evict"] * 2
    assert it.reasons().count(NoticeReason.EVICTION_REFUSED) == 2
    it.used[it.caps[0].key] = UNDER
    assert it.cycle(200) == []
    assert it.watched.leaving == {}


def test_a_client_that_comes_while_a_budget_refuses_is_ended_and_the_pause_stays():
    it = node(Reaction.EVICT)
    assert pids(it.cycle(34, outcome=lambda _: Pending("a disruption budget"))) == ["evict"] * 2
    it.joins(11)
    assert pids(it.cycle(1)) == [11]
    it.cycle(40)
    asked = [now for now, action in it.log if isinstance(action, EvictPod)]
    assert [after - before for before, after in pairwise(asked)] == [60, 60]
    assert it.reasons()[-1] == NoticeReason.EVICTED


def test_a_pod_whose_eviction_was_given_up_rests_for_a_minute():
    it = node(Reaction.EVICT)
    it.cycle(33, outcome=lambda _: Pending("a disruption budget"))
    began = it.now
    for _ in range(49):
        it.joins(11)
        it.cycle(1)
    ended = [now - began for now, action in it.log if not isinstance(action, EvictPod)]
    assert ended == [0, 2, 4, 66, 68, 70]  # given up at 6


def test_an_eviction_under_way_ends_when_nobody_asks_for_it_any_more():
    it = node(Reaction.EVICT, clients=(11,))
    it.cycle(3)
    it.caps = [cap(0, Reaction.WARN)]
    assert it.cycle(50) == []
    assert it.watched.leaving == {}


def test_looks_that_come_in_a_hurry_are_no_samples():
    """Whoever changes a pod makes the enforcer look again at once; a spike must not become an overrun by that."""
    it = node(Reaction.TERMINATE, clients=(11,))
    for _ in range(25):
        it.cycle(1)
        it.now += 0.1 - 2.0
    assert pids([action for _, action in it.log]) == [11]
    assert it.log[0][0] == pytest.approx(1000.0 + 2.0, abs=0.2)  # three samples, a second apart
    calm = node(Reaction.TERMINATE, clients=(11,))
    for _ in range(9):
        assert calm.cycle(1) == []
        calm.now += 0.1 - 2.0
    calm.used[calm.caps[0].key] = UNDER
    assert calm.cycle(100) == []
    assert calm.notices == []


def test_an_eviction_under_way_goes_on_in_a_hurry():
    it = node(Reaction.EVICT, clients=(11,))
    assert pids(it.cycle(3)) == [11]
    it.now += 0.1 - 2.0
    assert pids(it.cycle(1)) == ["evict"]


def test_while_the_pods_are_not_known_nothing_is_done():
    it = node(Reaction.EVICT, pods_known=False)
    assert it.cycle(20) == []
    assert it.notices == []
    it.pods_known = True
    assert pids(it.cycle(1)) == ["evict"]
    assert NoticeReason.OVERRUN in it.reasons()


def test_in_audit_it_says_what_it_would_do_at_the_same_pace():
    it = node(Reaction.EVICT, clients=(11,), acting=False)
    decided = [action for _ in range(40) for action in it.decide()]
    assert decided == [EvictPod(pod())] * 2
    assert "if podgpu enforced here" in it.notices[0].message
    it = node(Reaction.TERMINATE, clients=(11, 12), acting=False)
    assert pids([action for _ in range(40) for action in it.decide()]) == [12, 12]


def test_the_node_limit_goes_to_the_worst_and_the_others_are_told():
    it = Node([cap(number, Reaction.EVICT) for number in range(9)])
    for number, found in enumerate(it.caps):
        it.used[found.key] = OVER + number
    evicted = [action.pod for action in it.cycle(10)]
    assert evicted == [pod(number) for number in (8, 7, 6, 5, 4, 3)]
    assert it.reasons().count(NoticeReason.PUT_OFF) == 3
    it.now += 600
    assert len(it.cycle(1)) == 3


def test_a_restart_forgets_what_was_seen_and_looks_again():
    it = node(Reaction.TERMINATE, clients=(11,))
    it.cycle(2)
    it.watched = type(it.watched)()
    assert it.cycle(2) == []
    assert pids(it.cycle(1)) == [11]
