"""This node's pods from the API server: one list, and then a watch that goes on where the list ended.

Both are restricted to the node, and the list is answered from the server's memory (version 0), so that five thousand
nodes cost a control plane next to nothing: in steady state no list but one each half to whole hour, against events that
got lost, and one open watch, which the server ends each five to ten minutes.

Guarantees: a server that is silent, cut off, overloaded or gone is asked again at random times, ever more rarely, and
not before it asks for; a version that the server no longer knows is never sent twice; half a line is never read as a
line; token and CA are read anew for each request. While the server is away the pods that were known stay.

It will not compare versions, which are opaque, nor take pods for the same because of their names.
"""

import random
import threading
from collections.abc import Callable
from typing import Protocol
from urllib.parse import quote

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.apiserver import Answer, Lines, refusal
from exporter.sources.backoff import Backoff
from exporter.sources.podfeed import PodFeed
from exporter.sources.podjson import Event, parse_event, parse_list

RIGHT = 'the rule apiGroups: [""], resources: [pods], verbs: [list, watch]'
SPREAD = 10.0  # seconds over which the first lists of nodes that start together are spread
LIST_EVERY = 1800.0  # seconds, and up to twice as many
WATCH_FOR = 300.0  # seconds, and up to twice as many; then the server ends the watch
SILENT_FOR = 90.0  # seconds, and up to 150; servers send bookmarks each minute or so
FORBIDDEN = 60.0  # seconds until a request that was not allowed is made again
LONGEST_PAUSE = 600.0  # seconds; a server that asks for more is asked again after this

_GONE = (410, 504)  # the version is too old, or (of a server that is behind) too new


class _Api(Protocol):
    def get(self, path: str) -> Answer | Failure:
        """GET a path with its query."""

    def stream(self, path: str, *, idle: float, total: float) -> Lines | Answer | Failure:
        """GET a path whose answer goes on."""


class ApiServerPods(PodFeed):
    """Follows the pods of one node. `chance` gives numbers from 0 to 1 that spread the requests of many nodes."""

    name = "the API server"

    def __init__(
        self,
        api: _Api,
        *,
        node: str,
        clock: Clock,
        chance: Callable[[], float] = random.random,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        super().__init__(clock, wait=wait)
        self._api = api
        self._node = node
        self._query = f"fieldSelector=spec.nodeName%3D{quote(node, safe='')}"
        self._chance = chance
        self._backoff = Backoff(first=0.5, longest=30.0, chance=chance)
        self._version = ""  # from which the watch goes on; empty: list first
        self._list_due = 0.0
        self._from_cache = True
        self._lines: Lines | None = None
        self._lock = threading.Lock()

    def _before_the_first(self) -> float:
        return SPREAD * self._chance()

    def _follow(self) -> float:
        if not self._node:
            missing = Failure(Reason.MISSING, "the node's name is not known: set PODGPU_NODE_NAME from spec.nodeName")
            return self._failed(missing, at_least=FORBIDDEN)
        if not self._version or self._monotonic() >= self._list_due:
            pause = self._list()
            if pause is not None:
                return pause
        return self._watch()

    def _list(self) -> float | None:
        """All pods. None when it went well, else how long to wait."""
        cached = "&resourceVersion=0" if self._from_cache else ""
        answer = self._api.get(f"/api/v1/pods?{self._query}{cached}")
        self._from_cache = True
        if isinstance(answer, Failure):
            return self._failed(answer)
        if answer.status != 200:
            self._from_cache = answer.status not in _GONE
            return self._refused(answer)
        found = parse_list(answer.body, node=self._node)
        if isinstance(found, Failure):
            return self._failed(found)
        self._version = found.version
        self._list_due = self._monotonic() + LIST_EVERY * (1 + self._chance())
        self.store.replace(found.pods)
        self.decided.set()
        return None

    def _watch(self) -> float:
        """Changes, until the watch ends for whatever reason. Returns how long to wait then."""
        seconds = int(WATCH_FOR * (1 + self._chance()))
        lines = self._api.stream(
            f"/api/v1/pods?{self._query}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}"
            f"&resourceVersion={quote(self._version, safe='')}",
            idle=SILENT_FOR + 60 * self._chance(),
            total=seconds + SILENT_FOR,
        )
        if isinstance(lines, Failure):
            return self._failed(lines)
        if isinstance(lines, Answer):
            return self._refused(lines)
        begun = self._monotonic()
        with self._lock:
            self._lines = lines
        try:
            if self._stopped.is_set():
                return 0.0
            self.store.heard()
            for line in lines:
                event = line if isinstance(line, Failure) else parse_event(line, node=self._node)
                if isinstance(event, Failure):
                    return self._failed(event, worked_for=self._monotonic() - begun)
                if event.kind == "ERROR":
                    return self._error(event, worked_for=self._monotonic() - begun)
                self._take(event)
        finally:
            with self._lock:
                self._lines = None
            lines.close()
        return self._backoff.pause(worked_for=self._monotonic() - begun)  # in order: its time was up

    def _take(self, event: Event) -> None:
        if event.version:
            self._version = event.version
        if event.pod is not None and event.kind == "DELETED":
            self.store.remove(event.pod.uid)
        elif event.pod is not None and event.kind in ("ADDED", "MODIFIED"):
            self.store.put(event.pod)

    def _error(self, event: Event, *, worked_for: float) -> float:
        """An error that came as an event, after the headers said that all is well."""
        if event.code in _GONE:
            self._version = ""
        failure = Failure(Reason.UNAVAILABLE, f"the API server ended the watch with status {event.code}")
        return self._failed(failure, at_least=event.retry_after, worked_for=worked_for)

    def _refused(self, answer: Answer) -> float:
        if answer.status in _GONE:
            self._version = ""
        at_least = FORBIDDEN if answer.status == 403 else 0.0
        return self._failed(refusal(answer, right=RIGHT), at_least=max(at_least, answer.retry_after or 0.0))

    def _failed(self, failure: Failure, *, at_least: float = 0.0, worked_for: float = 0.0) -> float:
        self._lost(failure)
        return self._backoff.pause(at_least=min(at_least, LONGEST_PAUSE), worked_for=worked_for)

    def _interrupt(self) -> None:
        with self._lock:
            if self._lines is not None:
                self._lines.close()
