"""One thread for what may never return."""

import threading

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.worker import Worker


class Time:
    now = 100.0

    def __call__(self):
        return self.now


def make(time=None):
    return Worker("w", clock=Clock(monotonic=time or Time()))


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
