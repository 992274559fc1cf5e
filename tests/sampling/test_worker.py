"""One thread for what may never return."""

import threading

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.worker import Worker


class Time:
    now = 100.0

    def __call__(self):
        return self.now


def make(time=None, max_age=0.0):
    return Worker("w", clock=Clock(monotonic=time or Time()), max_age=max_age)


def test_an_answer_comes_with_its_seconds():
    worker = make()
    worker.ask(lambda: 7)
    assert worker.answer(until=200.0) == (7, 0.0)
    worker.stop()


def test_an_exception_is_a_failure_and_the_worker_lives_on():
    worker = make()
    worker.ask(lambda: 1 / 0)
    outcome, _ = worker.answer(until=200.0)
    assert isinstance(outcome, Failure)
    assert outcome.reason is Reason.INTERNAL
    assert "ZeroDivisionError" in outcome.detail
    worker.ask(lambda: 8)
    assert worker.answer(until=200.0)[0] == 8
    worker.stop()


def test_a_call_is_waited_for_once_and_its_late_answer_is_dropped():
    time, release, entered = Time(), threading.Event(), threading.Event()
    worker = make(time)
    asked = []

    def slow():
        asked.append(None)
        entered.set()
        release.wait(10)
        return "old"

    worker.ask(slow)
    entered.wait(10)
    time.now = 103.0
    outcome, seconds = worker.answer(until=103.0)
    assert (outcome.reason, seconds) == (Reason.TIMEOUT, 3.0)
    for _ in range(5):
        worker.ask(slow)  # it is still out: no second call
        assert worker.answer(until=1e9)[0].reason is Reason.TIMEOUT  # and no second wait, which would last for ever
    assert len(asked) == 1
    assert worker.busy
    release.set()
    while worker.busy:
        pass
    worker.ask(lambda: "new")
    assert worker.answer(until=1e9)[0] == "new"
    worker.stop()


@pytest.mark.parametrize(("elapsed", "used"), [(7.0, True), (7.6, False)])
def test_b69_a_slow_answer_is_the_next_rounds_if_it_is_not_too_old(elapsed, used):
    time, entered, release = Time(), [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]
    worker = make(time, max_age=7.5)
    rounds = iter(range(2))

    def slow():
        number = next(rounds)
        entered[number].set()
        release[number].wait(10)
        return number

    worker.ask(slow)
    entered[0].wait(10)
    time.now += 2
    assert worker.answer(until=time.now)[0].reason is Reason.TIMEOUT
    release[0].set()
    while worker.busy:
        pass
    time.now = 100.0 + elapsed
    worker.ask(slow)
    entered[1].wait(10)
    outcome, _ = worker.answer(until=time.now)
    assert outcome == 0 if used else outcome.reason is Reason.TIMEOUT
    assert worker.answer(until=time.now)[0].reason is Reason.TIMEOUT  # it is the answer of one round only
    release[1].set()
    worker.stop()


def test_an_answer_in_time_goes_before_a_late_one():
    time, entered, release = Time(), threading.Event(), threading.Event()
    worker = make(time, max_age=60.0)

    def slow():
        entered.set()
        release.wait(10)
        return "late"

    worker.ask(slow)
    entered.wait(10)
    assert worker.answer(until=time.now)[0].reason is Reason.TIMEOUT
    release.set()
    while worker.busy:
        pass
    worker.ask(lambda: "in time")
    assert worker.answer(until=1e9)[0] == "in time"
    worker.stop()
