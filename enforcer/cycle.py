"""One cycle of the enforcer, from the look at the node to what pods are told: reconcile, watch, react, tell.

What is remembered between cycles is how often a pod was told something, and the last few samples of what is over its
cap. Both only make podgpu slower to speak and to act after a restart.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from enforcer.actions import described, mechanism, verb
from enforcer.clients import all_known
from enforcer.model import Action, CapState, EvictPod
from enforcer.notices import Ledger, Notice, due
from enforcer.observation import Observation
from enforcer.outcomes import Done, Outcome
from enforcer.overruns import Window, uses
from enforcer.plan import count
from enforcer.reactions import Harsh, Watched, react, settled
from enforcer.reconcile import Mechanisms, Mode, Reconciler, Report
from enforcer.wording import annotation_errors, policy, standings, unusable_daemon
from exporter.caps.book import NodeCaps
from exporter.caps.requests import Reaction
from exporter.clock import Clock
from exporter.errors import Failure, Reason

log = logging.getLogger(__name__)

_NO_API = Failure(Reason.MISSING, "there is no API server to ask: mount the service account and set --node-name")


class Teller(Protocol):
    """Whatever takes a notice to its pod."""

    def send(self, notice: Notice) -> None:
        """Have a notice sent. Returns at once."""


@dataclass(slots=True)
class Tally:
    """What has been counted since the start."""

    actions: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by mechanism, action, result
    overruns: Counter[Reaction] = field(default_factory=Counter)
    held_back: int = 0

    def acted(self, action: Action, result: str) -> None:
        """Count an action."""
        self.actions[mechanism(action), verb(action), result] += 1


class Cycle:
    """Runs cycles. For one thread. `evict` is None where there is no API server to ask."""

    def __init__(
        self,
        reconciler: Reconciler,
        mechanisms: Mechanisms,
        *,
        mode: Mode,
        caps: Callable[[Observation], NodeCaps],
        evict: Callable[[EvictPod], Outcome] | None,
        teller: Teller | None,
        window: Window,
        tally: Tally,
        clock: Clock,
    ) -> None:
        self._reconciler = reconciler
        self._mechanisms = mechanisms
        self._mode = mode
        self._caps = caps
        self._evict = evict
        self._teller = teller
        self._window = window
        self._tally = tally
        self._clock = clock
        self._watched = Watched()
        self._ledger = Ledger()

    def run(self) -> Mapping[CapState, int] | None:
        """One cycle. Returns how many caps stand where; None where that is not known."""
        report = self._reconciler.reconcile()
        if report.observation is None:
            return None
        notices = list(self._standings(report)) if self._mode is not Mode.OFF else []
        if self._mode is not Mode.OFF:
            notices += self._watch(report.observation)
        self._tell(notices)
        return count(report.states)

    def _watch(self, looked: Observation) -> list[Notice]:
        """Follow what is over its cap, and do what that leads to."""
        caps = looked.wanted.caps
        processes = looked.readings.processes.value
        owners = {
            pid: place.container.pod_uid
            for pid, place in (processes.places if processes is not None else {}).items()
            if place.container is not None
        }
        reacted = react(
            self._watched,
            caps,
            uses(caps, looked.snapshot.containers, owners),
            looked.seen,
            all_clients=all_known(looked.readings.limits.mps, processes),
            window=self._window,
            now=self._clock.monotonic(),
            acting=self._mode is Mode.ENFORCE,
        )
        self._watched = reacted.watched
        self._tally.overruns.update(reacted.began.values())
        notices = list(reacted.notices)
        for action in reacted.actions:
            if action.pod.uid not in self._watched.suspects:  # one that could not be ended a moment ago makes it so
                notices += self._act(action)
        return notices

    def _act(self, action: Harsh) -> tuple[Notice, ...]:
        if self._mode is not Mode.ENFORCE:
            log.info("would %s", described(action))
            self._tally.acted(action, "planned")
            return ()
        outcome = self._done(action)
        result = "done" if isinstance(outcome, Done) else "failed" if isinstance(outcome, Failure) else "pending"
        self._tally.acted(action, result)
        log.warning("%s: %s", described(action), outcome)
        self._watched, notices = settled(self._watched, action, outcome)
        return notices

    def _done(self, action: Harsh) -> Outcome:
        if isinstance(action, EvictPod):
            return self._evict(action) if self._evict is not None else _NO_API
        return self._mechanisms.apply(action)

    def _standings(self, report: Report) -> Iterable[Notice]:
        """What is so of each pod's caps, and what stands in their way."""
        looked = report.observation
        if looked is None or self._mode is Mode.AUDIT:
            return
        yield from standings(looked.wanted.caps, report.states, looked.seen)
        ids = {(pod.namespace, pod.name): pod for pod in looked.wanted.pods.values()}
        for key, read in self._caps(looked).pods.items():
            if read.errors and key in ids:
                yield from annotation_errors(ids[key], read.errors)
        for pod in sorted({key.pod for key in looked.wanted.decided}):
            mine = [decided for key, decided in sorted(looked.wanted.decided.items()) if key.pod == pod]
            yield from policy(pod, mine)
        pods = {cap.key.pod for cap in looked.wanted.caps}
        for pipe_directory, daemon in looked.snapshot.mps.items():
            if isinstance(daemon, Failure):
                yield from unusable_daemon(pods, pipe_directory, daemon)

    def _tell(self, notices: Iterable[Notice]) -> None:
        told = due(self._ledger, notices, now=self._clock.monotonic())
        self._ledger = told.ledger
        self._tally.held_back += told.held_back
        for notice in told.notices:
            log.info("%s/%s: %s: %s", notice.pod.namespace, notice.pod.name, notice.reason, notice.message)
            if self._teller is not None:
                self._teller.send(notice)
