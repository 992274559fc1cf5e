"""How often a pod is told the same thing, and how much at all."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enforcer.model import PodId
from enforcer.notices import AGAIN, LONGEST, MOST_REMEMBERED, MOST_TEXTS, Ledger, NoticeReason, due, notice

POD = PodId("team", "job", "uid-1", "uid-1")
OTHER = PodId("team", "other", "uid-2", "uid-2")


def bad(text="no such container", pod=POD):
    return notice(pod, NoticeReason.ANNOTATION_ERROR, text)


def test_a_message_is_one_printable_line_of_at_most_a_kibibyte():
    assert notice(POD, NoticeReason.POLICY, "a\n\tb\x1b[31m  c\r").message == "a b\ufffd[31m c"
    long = notice(POD, NoticeReason.POLICY, "ä" * 5000).message
    assert len(long.encode()) <= LONGEST
    assert long.endswith("ä…")


@given(st.text(max_size=2000))
def test_law_whatever_the_text(text):
    message = notice(POD, NoticeReason.POLICY, text).message
    assert message.isprintable() or message == ""
    assert len(message.encode()) <= LONGEST


def test_every_reason_is_what_kubernetes_takes_and_has_a_kind():
    for reason in NoticeReason:
        assert reason.isalnum()
        assert reason[0].isupper()
        assert len(reason) <= 128
        assert reason.kind in ("Normal", "Warning")


def test_a_key_is_of_pod_reason_and_text():
    keys = {bad().key, bad("else").key, bad(pod=OTHER).key, notice(POD, NoticeReason.POLICY, "no such container").key}
    assert len(keys) == 4
    assert bad().key == bad().key


def test_a_warning_that_stays_is_given_again_after_ten_minutes():
    found = due(Ledger(), [bad(), bad()], now=0.0)
    assert found.notices == (bad(),)
    for now in (1.0, 300.0, AGAIN - 0.1):
        found = due(found.ledger, [bad()], now=now)
        assert found.notices == ()
    assert due(found.ledger, [bad()], now=AGAIN).notices == (bad(),)


def test_what_is_no_warning_is_said_once_while_it_stays_true():
    applied = notice(POD, NoticeReason.CAP_APPLIED, "In force.")
    found = due(Ledger(), [applied], now=0.0)
    assert found.notices == (applied,)
    for minute in range(1, 200):
        found = due(found.ledger, [applied], now=minute * 60.0)
        assert found.notices == ()
    for later in (60.0, AGAIN):
        found = due(found.ledger, [], now=199 * 60.0 + later)
    assert due(found.ledger, [applied], now=300 * 60.0).notices == (applied,)


def test_another_text_is_told_at_once_but_only_a_few_of_them():
    found, told = due(Ledger(), [], now=0.0), []
    for number in range(20):
        found = due(found.ledger, [bad(f"error {number}")], now=float(number))
        told += found.notices
        assert found.held_back == (number >= MOST_TEXTS)
    assert len(told) == MOST_TEXTS
    overrun = notice(POD, NoticeReason.OVERRUN, "too much")
    assert due(found.ledger, [overrun, bad(pod=OTHER)], now=21.0).notices == (overrun, bad(pod=OTHER))


def test_what_is_remembered_is_bounded_and_forgotten():
    many = [bad(pod=PodId("team", str(number), f"uid-{number}")) for number in range(MOST_REMEMBERED + 10)]
    found = due(Ledger(), many, now=0.0)
    assert (len(found.ledger.told), found.held_back) == (MOST_REMEMBERED, 10)
    assert due(found.ledger, [], now=AGAIN).ledger.told == {}


@given(
    st.lists(
        st.tuples(st.floats(0.0, 400.0), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 7)))),
        max_size=30,
    )
)
@settings(max_examples=60)
def test_law_in_any_ten_minutes_a_pod_gets_a_text_once_and_a_reason_a_few_times(history):
    reasons = [NoticeReason.CAP_APPLIED, NoticeReason.OVERRUN, NoticeReason.POLICY]
    ledger, now, sent = Ledger(), 0.0, []
    for seconds, offered in history:
        now += seconds
        found = due(ledger, [notice((POD, OTHER)[p], reasons[r], f"text {t}") for p, r, t in offered], now=now)
        ledger = found.ledger
        sent += [(now, one) for one in found.notices]
        assert found.held_back + len(found.notices) <= len(set(offered))
    for at, _ in sent:
        recent = [one for then, one in sent if 0 <= then - at < AGAIN]
        assert len(set(recent)) == len(recent)
        assert max(Counter((one.pod, one.reason) for one in recent).values()) <= MOST_TEXTS


@pytest.mark.parametrize("reason", list(NoticeReason))
def test_every_reason_can_be_told(reason):
    assert len(due(Ledger(), [notice(POD, reason, "x")], now=0.0).notices) == 1
