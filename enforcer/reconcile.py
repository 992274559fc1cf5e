"""The loop: what is wanted, what is there, the steps between, each read back; and again until there is none left.

Level-triggered: each round starts from what is there, so nothing that matters is only in memory, and a restart at any
point goes on from where things stand. What is in memory is how often a step has failed, so that it is tried again after
a growing pause and not at once.

Guarantees: a step that fails ends its pod's turn and nobody else's; with records that can't be read nothing is done at
all; `audit` does nothing but say what it would do; `off` asks for no caps, which undoes what is ours.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from typing import Protocol

from enforcer.actions import described
from enforcer.model import Action, CapKey, CapState, LimitCgroup, Records, Step
from enforcer.observation import Observation, Observer
from enforcer.outcomes import Done, Outcome
from enforcer.plan import plan
from exporter.clock import Clock
from exporter.errors import Failure, Reason

log = logging.getLogger(__name__)

ROUNDS = 8  # a cap takes four at most: namespace, door, receipt, and seeing that nothing is left
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds until a step that failed is tried again


@unique
class Mode(StrEnum):
    """How much the enforcer may do."""

    OFF = "off"
    AUDIT = "audit"
    ENFORCE = "enforce"


class Mechanisms(Protocol):
    """Whatever does the steps, and keeps the records of what it did."""

    def records(self) -> Records | Failure:
        """What this enforcer has set."""

    def apply(self, action: Action) -> Outcome:
        """Do an action and read it back."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a reconciliation found and did. `observation` is the last look; None where there was none."""

    observation: Observation | None
    states: Mapping[CapKey, CapState] = field(default_factory=dict)
    outcomes: tuple[tuple[Step, Outcome], ...] = ()
    planned: tuple[Step, ...] = ()  # in audit: what would have been done
    failure: Failure | None = None  # why nothing could be planned


@dataclass(slots=True)
class _Failing:
    failures: int
    until: float


class Reconciler:
    """Reconciles the node when it is told to. For one thread.

    `counted` is told of each action and how it ended.
    """

    def __init__(
        self,
        observer: Observer,
        mechanisms: Mechanisms,
        *,
        mode: Mode,
        clock: Clock,
        counted: Callable[[Action, str], None],
    ) -> None:
        self._observer = observer
        self._mechanisms = mechanisms
        self._mode = mode
        self._clock = clock
        self._counted = counted
        self._failing: dict[str, _Failing] = {}
        self._said: set[str] = set()  # what audit has already logged
        self._without_cgroup: set[str] = set()

    def reconcile(self) -> Report:
        """Bring the node to where its caps hold, as far as that goes now."""
        outcomes: list[tuple[Step, Outcome]] = []
        for _ in range(ROUNDS):
            records = self._mechanisms.records()
            if isinstance(records, Failure):
                log.error("nothing is done: %s", records)
                return Report(None, failure=records, outcomes=tuple(outcomes))
            looked = self._observer.observe(records, without_cgroup=frozenset(self._without_cgroup))
            if self._mode is Mode.OFF:  # no gate opens either: its pod wants to be held
                planned = plan((), replace(looked.seen, gated=frozenset()))
            else:
                planned = plan(looked.wanted.caps, looked.seen)
            if self._mode is Mode.AUDIT:
                self._audit(planned.steps)
                return Report(looked, planned.states, planned=planned.steps)
            done = self._do(planned.steps)
            outcomes += done
            if not any(isinstance(outcome, Done) for _, outcome in done):
                break
        states = _with_failures(planned.states, outcomes)
        return Report(looked, states, tuple(outcomes))

    def _do(self, steps: tuple[Step, ...]) -> list[tuple[Step, Outcome]]:
        """Do the steps, except those that failed a moment ago, and those that come after one that did."""
        now = self._clock.monotonic()
        done: list[tuple[Step, Outcome]] = []
        waiting: set[str] = set()
        planned = {repr(step.action) for step in steps}
        self._failing = {action: failing for action, failing in self._failing.items() if action in planned}
        for step in steps:
            action = repr(step.action)
            failing = self._failing.get(action)
            if step.pod_uid in waiting or (failing is not None and now < failing.until):
                waiting.add(step.pod_uid)
                continue
            outcome = self._mechanisms.apply(step.action)
            done.append((step, outcome))
            self._counted(step.action, _result(outcome))
            if isinstance(outcome, Done):
                self._failing.pop(action, None)
                log.info("%s: %s", described(step.action), outcome.detail or "done")
                continue
            waiting.add(step.pod_uid)
            failures = (failing.failures if failing is not None else 0) + 1
            pause = min(_FIRST_PAUSE * 2.0 ** (failures - 1), _LONGEST_PAUSE)
            self._failing[action] = _Failing(failures, now + pause)
            self._note(step.action, outcome, first=failing is None)
        return done

    def _note(self, action: Action, outcome: Outcome, *, first: bool) -> None:
        """Say once what does not work; and of a GPU whose driver has no such limits after all, do not ask again."""
        if first:
            log.warning("%s: %s", described(action), outcome)
        if isinstance(action, LimitCgroup) and isinstance(outcome, Failure) and outcome.reason is Reason.NOT_SUPPORTED:
            self._without_cgroup.add(action.level.gpu_uuid)

    def _audit(self, steps: tuple[Step, ...]) -> None:
        texts = {described(step.action): step.action for step in steps}
        for text, action in texts.items():
            if text not in self._said:
                log.info("would %s", text)
                self._counted(action, "planned")
        self._said = set(texts)


def _with_failures(
    states: Mapping[CapKey, CapState], outcomes: list[tuple[Step, Outcome]]
) -> Mapping[CapKey, CapState]:
    """The states, with those of pods whose last step failed as failed."""
    last = {step.pod_uid: outcome for step, outcome in outcomes}
    failed = {uid for uid, outcome in last.items() if isinstance(outcome, Failure)}
    return {
        key: CapState.FAILED if key.pod.uid in failed and state is not CapState.APPLIED else state
        for key, state in states.items()
    }


def _result(outcome: Outcome) -> str:
    return "done" if isinstance(outcome, Done) else "failed" if isinstance(outcome, Failure) else "pending"
