from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.caps.policy import Change, Policy, Rule, apply
from exporter.caps.requests import CapRequest, Limits, Reaction, Share, limits, resolved

MIB, GIB = 1 << 20, 1 << 30
CAPACITY = 80 * GIB
HALF, QUARTER = Share(Fraction(1, 2)), Share(Fraction(1, 4))


def decide(rule: Rule, request: CapRequest, capacity: int | None = CAPACITY):
    decision = apply(Policy(rule), "ns", request, capacity=capacity)
    return decision.request, [note.change for note in decision.notes]


def test_without_a_policy_everything_holds_as_asked():
    asked = CapRequest("main", 4 * GIB, 8 * GIB, active_thread_percentage=30, on_overrun=Reaction.EVICT)
    assert decide(Rule(), asked) == (asked, [])
    assert decide(Rule(), CapRequest("main")) == (CapRequest("main", on_overrun=Reaction.WARN), [])


@pytest.mark.parametrize("default", [8 * GIB, Share(Fraction(1, 10))])
def test_a_default_is_a_limit_for_those_who_ask_for_none_and_no_request(default):
    held, changes = decide(Rule(memory_default=default), CapRequest("main"))
    assert limits(held, CAPACITY) == Limits(None, 8 * GIB)
    assert changes == [Change.MEMORY_DEFAULT]
    asked = CapRequest("main", 20 * GIB, 20 * GIB)
    assert decide(Rule(memory_default=default), asked)[0].limit == 20 * GIB


@pytest.mark.parametrize(
    ("ceiling", "request_", "expected"),
    [
        (8 * GIB, CapRequest("m", 4 * GIB, 6 * GIB), Limits(4 * GIB, 6 * GIB)),
        (8 * GIB, CapRequest("m", 4 * GIB, 16 * GIB), Limits(4 * GIB, 8 * GIB)),
        (8 * GIB, CapRequest("m", 10 * GIB, 16 * GIB), Limits(8 * GIB, 8 * GIB)),
        (8 * GIB, CapRequest("m"), Limits(None, 8 * GIB)),
        (8 * GIB, CapRequest("m", HALF, HALF), Limits(8 * GIB, 8 * GIB)),
        (60 * GIB, CapRequest("m", HALF, HALF), Limits(40 * GIB, 40 * GIB)),
        (QUARTER, CapRequest("m", HALF, HALF), Limits(20 * GIB, 20 * GIB)),
        (HALF, CapRequest("m", QUARTER, QUARTER), Limits(20 * GIB, 20 * GIB)),
        (QUARTER, CapRequest("m", 30 * GIB, 50 * GIB), Limits(20 * GIB, 20 * GIB)),
        (QUARTER, CapRequest("m", 10 * GIB, 50 * GIB), Limits(10 * GIB, 20 * GIB)),
        (QUARTER, CapRequest("m", 10 * GIB, HALF), Limits(10 * GIB, 20 * GIB)),
    ],
)
def test_a_ceiling_lowers_limit_and_request(ceiling, request_, expected):
    held, changes = decide(Rule(memory_ceiling=ceiling), request_)
    assert limits(held, CAPACITY) == expected
    assert changes == ([Change.MEMORY_CEILING] if resolved(request_.limit, CAPACITY) != expected.limit else [])


def test_bytes_and_shares_do_not_meet_without_a_capacity():
    held, changes = decide(Rule(memory_ceiling=QUARTER), CapRequest("m", 30 * GIB, 30 * GIB), None)
    assert (held.requested, held.limit) == (None, None)
    assert changes == [Change.MEMORY_UNDECIDED]
    held, changes = decide(Rule(memory_ceiling=20 * GIB), CapRequest("m", 30 * GIB, 30 * GIB), None)
    assert (held.limit, changes) == (20 * GIB, [Change.MEMORY_CEILING])
    held, changes = decide(Rule(memory_ceiling=QUARTER), CapRequest("m", HALF, HALF), None)
    assert (held.limit, changes) == (QUARTER, [Change.MEMORY_CEILING])


@pytest.mark.parametrize(
    ("rule", "asked", "expected", "changes"),
    [
        (Rule(threads_default=25), None, 25, [Change.THREADS_DEFAULT]),
        (Rule(threads_default=25), 40, 40, []),
        (Rule(threads_ceiling=50), 40, 40, []),
        (Rule(threads_ceiling=50), 80, 50, [Change.THREADS_CEILING]),
        (Rule(threads_ceiling=50), None, 50, [Change.THREADS_CEILING]),
        (Rule(threads_default=25, threads_ceiling=50), None, 25, [Change.THREADS_DEFAULT]),
    ],
)
def test_threads(rule, asked, expected, changes):
    held, found = decide(rule, CapRequest("m", active_thread_percentage=asked))
    assert (held.active_thread_percentage, found) == (expected, changes)


@pytest.mark.parametrize(
    ("rule", "asked", "expected", "lowered"),
    [
        (Rule(), None, "warn", False),
        (Rule(reaction=Reaction.FREEZE), None, "freeze", False),
        (Rule(reaction=Reaction.FREEZE), Reaction.WARN, "warn", False),
        (Rule(harshest=Reaction.FREEZE), Reaction.EVICT, "freeze", True),
        (Rule(harshest=Reaction.FREEZE), Reaction.FREEZE, "freeze", False),
    ],
)
def test_a_reaction_is_no_harsher_than_allowed(rule, asked, expected, lowered):
    held, changes = decide(rule, CapRequest("m", on_overrun=asked))
    assert (held.on_overrun, changes) == (expected, [Change.REACTION] if lowered else [])


def test_reactions_are_ordered_mildest_first():
    assert sorted(Reaction, key=lambda reaction: reaction.severity) == ["warn", "freeze", "terminate", "evict"]


def test_a_namespace_without_a_rule_has_the_defaults():
    policy = Policy(Rule(memory_ceiling=8 * GIB), {"big": Rule()})
    assert apply(policy, "other", CapRequest("m")).request.limit == 8 * GIB
    assert apply(policy, "big", CapRequest("m")).request.limit is None


amounts = st.integers(MIB, 100 * GIB) | st.integers(1, 100).map(lambda n: Share(Fraction(n, 100)))
percentages = st.none() | st.integers(1, 100)
asked_for = st.builds(
    lambda pair, threads, reaction: CapRequest("m", *pair, active_thread_percentage=threads, on_overrun=reaction),
    st.just((None, None)) | st.tuples(amounts, amounts),
    percentages,
    st.none() | st.sampled_from(Reaction),
)
rules = st.builds(
    Rule,
    st.none() | amounts,
    st.none() | amounts,
    percentages,
    percentages,
    st.just(Reaction.WARN),
    st.sampled_from(Reaction),
)
capacities = st.none() | st.integers(1, 96 * 1024).map(lambda n: n * MIB)


@given(rules, asked_for, capacities)
def test_what_is_decided_is_under_every_ceiling_and_never_more_than_was_asked(rule, asked, capacity):
    held, _ = decide(rule, asked, capacity)
    before, after = limits(asked, capacity), limits(held, capacity)
    ceiling = resolved(rule.memory_ceiling, capacity)
    if ceiling is not None and capacity is not None:
        assert after.limit is not None
        assert after.limit <= ceiling
    if before.limit is not None and after.limit is not None:
        assert after.limit <= before.limit
    if before.requested is not None and after.requested is not None:
        assert after.requested <= before.requested
    if rule.threads_ceiling is not None:
        assert (held.active_thread_percentage or 100) <= rule.threads_ceiling
    assert held.on_overrun is not None
    assert held.on_overrun.severity <= rule.harshest.severity


@given(rules, asked_for, capacities)
def test_deciding_twice_decides_the_same(rule, asked, capacity):
    held, changes = decide(rule, asked, capacity)
    if Change.MEMORY_UNDECIDED not in changes:
        assert decide(rule, held, capacity) == (held, [])
    assert decide(Rule(), held, capacity) == (held, [])


@given(asked_for)
def test_a_policy_that_sets_nothing_changes_nothing(asked):
    held, changes = decide(Rule(), asked)
    assert (held, changes) == (replace(asked, on_overrun=asked.on_overrun or Reaction.WARN), [])
