"""Whatever happens: who is acted on, what must have come before, and how often."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from enforcer.model import EvictPod, TerminateClient
from enforcer.outcomes import Done, Pending
from enforcer.reactions import NODE_MOST, NODE_SPAN, POD_PAUSE
from exporter.caps.requests import Reaction
from exporter.errors import Failure, Reason
from tests.overruns.conftest import CAP, OVER, UNDER, Node, cap, pod

PODS = 9
OUTCOMES = {"done": Done(), "pending": Pending("not yet"), "failed": Failure(Reason.TIMEOUT, "no answer")}

happenings = st.fixed_dictionaries(
    {
        "seconds": st.sampled_from([1.0, 2.0, 2.0, 2.0, 31.0, 70.0]),
        "over": st.sets(st.integers(0, PODS - 1)) | st.just(frozenset(range(PODS))),
        "unknown": st.sets(st.integers(0, PODS - 1), max_size=2),
        "joins": st.lists(st.tuples(st.integers(1, 40), st.integers(0, PODS - 1)), max_size=3),
        "twice": st.sets(st.integers(1, 40), max_size=1),
        "answers": st.sampled_from([True, True, True, False]),
        "pods_known": st.sampled_from([True, True, True, False]),
        "outcome": st.sampled_from([*OUTCOMES, "done", "done"]),
    }
)
histories = st.tuples(
    st.lists(st.sampled_from(list(Reaction)), min_size=PODS, max_size=PODS), st.lists(happenings, max_size=40)
)

crowded = st.lists(  # everybody is over nearly always, so that nothing but the pace holds it back
    st.fixed_dictionaries(
        {
            "seconds": st.sampled_from([2.0, 5.0, 20.0, 61.0]),
            "over": st.just(frozenset(range(PODS))),
            "unknown": st.just(frozenset()),
            "joins": st.lists(st.tuples(st.integers(1, 60), st.integers(0, PODS - 1)), max_size=4),
            "twice": st.just(frozenset()),
            "answers": st.just(True),
            "pods_known": st.just(True),
            "outcome": st.sampled_from(["done", "pending"]),
        }
    ),
    min_size=20,
    max_size=40,
)


def live(reactions, history):
    """What was done, by cycle: when, the node as it was, who was being evicted, the actions, how they ended."""
    it = Node([cap(number, reaction) for number, reaction in enumerate(reactions)])
    told = []
    for happening in history:
        it.now += happening["seconds"]
        for found in it.caps:
            number = int(found.key.pod.uid[-3:])
            if number in happening["unknown"]:
                it.used.pop(found.key, None)
            else:
                it.used[found.key] = OVER if number in happening["over"] else UNDER
        for pid, number in happening["joins"]:
            if pid not in it.clients:
                it.joins(pid, number, started=float(pid))
        it.second_server = tuple(happening["twice"])
        it.all_clients, it.pods_known = happening["answers"], happening["pods_known"]
        now, uses, seen, leaving = it.now, it.uses(), it.seen(), set(it.watched.leaving)
        actions = it.decide()
        it.now = now
        for action in actions:
            it.do(action, OUTCOMES[happening["outcome"]])
        told.append((now, uses, seen, leaving, actions, happening["outcome"]))
    return told


@given(histories)
@settings(max_examples=50)
def test_law_only_a_pod_whose_cap_says_so_is_acted_on_and_only_by_its_own_clients(found):
    reactions, history = found
    for _, _, seen, _, actions, _ in live(reactions, history):
        twice = seen.daemons.get("/other")
        doubtful = {client.pid for client in twice.servers[0].clients} if twice else set()
        for action in actions:
            assert seen.pods is not None
            reaction = reactions[int(action.pod.uid[-3:])]
            if isinstance(action, EvictPod):
                assert reaction is Reaction.EVICT
            else:
                assert reaction in (Reaction.TERMINATE, Reaction.EVICT)
                assert seen.clients[action.pid].pod_uid == action.pod.uid
                assert action.pid not in doubtful


@given(histories)
@settings(max_examples=50)
def test_law_nothing_harsh_begins_without_three_samples_of_five_above_since_the_last(found):
    reactions, history = found
    samples = defaultdict(list)
    for _, uses, _, leaving, actions, _ in live(reactions, history):
        for key, use in uses.items():
            samples[key.pod].append(use.used > CAP)
        for target in {action.pod for action in actions if action.pod.uid not in leaving}:
            assert sum(samples[target][-5:]) >= 3
            assert samples[target][-1]
            samples[target] = []


@given(histories)
@settings(max_examples=50)
def test_law_no_pod_is_evicted_after_a_client_could_not_be_ended_nor_while_it_has_one(found):
    reactions, history = found
    failed = set()
    for _, _, seen, _, actions, outcome in live(reactions, history):
        assert failed.isdisjoint(action.pod for action in actions)
        for action in actions:
            if isinstance(action, EvictPod):
                assert all(client.pod_uid != action.pod.uid for client in seen.clients.values())
            elif outcome == "failed":
                failed.add(action.pod)


@given(st.lists(st.sampled_from([Reaction.TERMINATE, Reaction.EVICT]), min_size=PODS, max_size=PODS), crowded)
@settings(max_examples=40)
def test_law_a_pod_is_acted_on_once_a_minute_and_six_in_ten(reactions, history):
    acts = []  # when an act began, and on whom
    rounds = defaultdict(int)  # of the eviction under way
    for now, _, _, leaving, actions, _ in live(reactions, history):
        for target in sorted({action.pod for action in actions}):
            mine = [action for action in actions if action.pod == target]
            if target.uid not in leaving:
                acts.append((now, target))
                rounds[target] = 0
            if isinstance(mine[0], EvictPod) or reactions[int(target.uid[-3:])] is Reaction.TERMINATE:
                assert len(mine) == 1
            else:
                rounds[target] += 1
                assert rounds[target] <= 3
    for at, target in acts:
        assert sum(0 <= then - at < POD_PAUSE for then, other in acts if other == target) == 1
        assert sum(0 <= then - at < NODE_SPAN for then, _ in acts) <= NODE_MOST


@given(histories | st.tuples(st.just([Reaction.EVICT] * PODS), crowded))
@settings(max_examples=50)
def test_law_the_api_server_is_asked_about_a_pod_once_a_minute(found):
    asked = {}
    for now, _, _, _, actions, _ in live(*found):
        for action in actions:
            if isinstance(action, EvictPod):
                assert now - asked.get(action.pod, float("-inf")) >= POD_PAUSE
                asked[action.pod] = now


@given(st.lists(happenings, max_size=40))
@settings(max_examples=20)
def test_law_where_all_caps_only_warn_nothing_is_ever_done(history):
    for _, _, _, _, actions, _ in live([Reaction.WARN, Reaction.FREEZE, Reaction.WARN] * 3, history):
        assert actions == ()


def test_the_histories_hold_what_the_laws_are_about():
    """Not a law of the product: that the laws above are not empty."""
    happening = {
        "seconds": 2.0,
        "over": set(range(PODS)),
        "unknown": set(),
        "joins": [(1, 0), (2, 1)],
        "twice": set(),
        "answers": True,
        "pods_known": True,
        "outcome": "done",
    }
    reactions = [Reaction.TERMINATE, Reaction.EVICT, *[Reaction.WARN] * (PODS - 2)]
    actions = [action for _, _, _, _, found, _ in live(reactions, [happening] * 10) for action in found]
    assert {(type(action), action.pod) for action in actions} >= {
        (TerminateClient, pod(0)),
        (TerminateClient, pod(1)),
    }
