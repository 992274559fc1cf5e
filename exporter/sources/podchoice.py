"""This node's pods, from the best source that there is at the moment.

In this order: the kubelet's Pods API, the API server, the log links. The first two are followed by threads of their
own, and a reading says what they have told so far; the log links are read by the reading itself, and only while
neither of the others is heard.

Guarantees: a reading asks nothing of the kubelet or the API server; whatever fails, a name that was known stays known,
because a uid never gets another name, and the reading says why and since when nothing newer was told (`stale`); the
API server is left alone while the kubelet tells; one line in the log whenever another source comes into force.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import PodNames, Reading
from exporter.sources.podfeed import PodFeed
from exporter.sources.pods import SOURCE, LogLinkNames

log = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds that a kubelet may be away until the API server is asked: a restart takes fewer
FIRST_WAIT = 0.5  # seconds that the first reading waits for the kubelet, which answers in a few milliseconds

_LOGS = LogLinkNames.name
_NOBODY = "nowhere: no source is heard"


class _Links(Protocol):
    def read(self) -> Reading[PodNames]:
        """The names that the log links give now."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """A source that is followed, and what it had told at the time of a reading."""

    feed: PodFeed
    names: PodNames | None
    failure: Failure | None
    heard_at: float

    @classmethod
    def of(cls, feed: PodFeed) -> Self:
        told = feed.read()
        return cls(feed, told.names, told.failure, told.heard_at)

    @property
    def has_failed(self) -> bool:
        """False also for a source that was only just begun."""
        return self.failure is not None and self.feed.decided.is_set()

    def as_failure(self, now: float) -> Failure | None:
        if self.failure is None:
            return None
        age = f"; known pods are as of {now - self.heard_at:.0f} s ago" if self.names is not None else ""
        return Failure(self.failure.reason, f"{self.feed.name}: {self.failure.detail}{age}")


class PodChoice:
    """Reads from whichever source is there. A source that is None is not to be used.

    `pods_socket` is where the kubelet's Pods API would be. With log links to fall back on it is looked for at each
    reading; without them the kubelet is followed although its socket is not there, and a reading says so.
    """

    def __init__(
        self,
        *,
        kubelet: Callable[[], PodFeed] | None,
        api: Callable[[], PodFeed] | None,
        links: _Links | None,
        pods_socket: str,
        clock: Clock,
        first_wait: float = FIRST_WAIT,
    ) -> None:
        self._make_kubelet = kubelet
        self._make_api = api
        self._links = links
        self._socket = pods_socket
        self._monotonic = clock.monotonic
        self._first_wait = first_wait
        self._kubelet: PodFeed | None = None
        self._api: PodFeed | None = None
        self._away_since = self._monotonic()  # since when the kubelet has not been heard
        self._in_force = ""

    @property
    def in_force(self) -> str:
        """The source that gave the last reading, in words; empty before the first one, and while none is heard."""
        return "" if self._in_force == _NOBODY else self._in_force

    def read(self) -> Reading[PodNames]:
        """The pods as they are known now."""
        begun = self._monotonic()
        told = self._told()
        fresh = next((each for each in told if each.names is not None and each.failure is None), None)
        if fresh is not None and fresh.names is not None:
            self._comes_into_force(fresh.feed.name, told)
            return Reading(SOURCE, fresh.names, self._monotonic() - begun)
        return Reading(SOURCE, self._without_fresh(told), self._monotonic() - begun)

    def stop(self) -> None:
        """Follow no source any more."""
        for feed in (self._kubelet, self._api):
            if feed is not None:
                feed.stop()
        self._kubelet = self._api = None

    def _told(self) -> list[_Heard]:
        """What the sources that are followed have told, the best one first. Begins and ends following them."""
        if self._kubelet is None and self._make_kubelet is not None and self._is_there():
            self._kubelet = self._make_kubelet()
            self._kubelet.start()
            self._kubelet.decided.wait(self._first_wait)
        told = [_Heard.of(self._kubelet)] if self._kubelet is not None else []
        now = self._monotonic()
        if told and told[0].failure is None:
            self._away_since = now
            if self._api is not None:
                self._api.stop()
                self._api = None
        elif self._make_api is not None:
            if self._api is None and (self._kubelet is None or now - self._away_since >= PATIENCE):
                self._api = self._make_api()
                self._api.start()
            told += [_Heard.of(self._api)] if self._api is not None else []
        return told

    def _is_there(self) -> bool:
        return self._links is None or os.path.exists(self._socket)

    def _without_fresh(self, told: list[_Heard]) -> PodNames | Failure:
        """What was told before, and what the log links say of pods that came later."""
        stale = next((each.as_failure(self._monotonic()) for each in told if each.has_failed), None)
        known = next((each.names for each in told if each.names is not None), None)
        links = self._links.read().outcome if self._links is not None else None
        if isinstance(links, PodNames):
            self._comes_into_force(_LOGS, told)
            known = known or PodNames({}, {})
            return replace(
                known,
                pods={**links.pods, **known.pods},
                containers={**links.containers, **known.containers},
                stale=stale,
            )
        self._comes_into_force(_NOBODY, told)
        if known is not None:
            return replace(known, stale=stale)
        return stale or links or Failure(Reason.MISSING, "the API server has not been asked yet")

    def _comes_into_force(self, name: str, told: list[_Heard]) -> None:
        if name != self._in_force:
            why = "; ".join(f"{each.feed.name}: {each.failure}" for each in told if each.has_failed)
            log.info("pods now come from %s%s", name, f" ({why})" if why else "")
            self._in_force = name
