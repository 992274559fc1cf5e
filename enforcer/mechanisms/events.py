"""Notices as Events on pods, sent by a thread of their own, so that a slow API server never holds up the loop.

The Events are core/v1 and not events.k8s.io/v1: both are shown everywhere, but only of the former can the count and the
time be changed by whoever made it without reading it first, `kubectl describe pod` of any version shows them, and one
right in one API group (create and patch on events) is enough.

Guarantees: the same notice to the same pod is one Event, whose name follows from pod, reason and text; when it is sent
again that one is counted up, also after a restart; 256 notices wait at most, and what finds no place is counted as
dropped; what can't be sent after three attempts is counted as failed, and logged once for each cause.

It will not decide who is told what, and how often: see `enforcer.notices`.
"""

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from cachetools import LRUCache

from enforcer.mechanisms.api_writer import ApiWriter, segment
from enforcer.mechanisms.eviction import message_of, status_of
from enforcer.notices import Notice
from exporter.clock import Clock
from exporter.errors import Failure
from exporter.sources.apiserver import Answer, refusal
from exporter.sources.backoff import Backoff

log = logging.getLogger(__name__)

COMPONENT = "podgpu-enforcer"
RIGHT = "create and patch on events"
MOST_WAITING = 256
_ATTEMPTS = 3
_MOST_COUNTS = 4096
RESULTS = ("sent", "gone", "failed", "dropped")


class EventSender:
    """Sends notices in the order in which they come. `counts`: what became of them, by `RESULTS`.

    `pause` waits for so many seconds, or until the sender is to stop, and says whether it is.
    """

    def __init__(
        self, api: ApiWriter, *, node: str, clock: Clock, pause: Callable[[float], bool] | None = None
    ) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._stop = threading.Event()
        self._pause = self._stop.wait if pause is None else pause
        self._waiting: queue.Queue[Notice | None] = queue.Queue(MOST_WAITING)
        self._seen: LRUCache[str, int] = LRUCache(_MOST_COUNTS)  # how often each Event stands, by its name
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def send(self, notice: Notice) -> None:
        """Have a notice sent. Returns at once."""
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._count("dropped")

    @property
    def counts(self) -> Mapping[str, int]:
        """What has become of the notices so far."""
        with self._lock:
            return dict(self._counts)

    def stop(self, timeout: float) -> None:
        """Send nothing any more. Waits for the request under way for `timeout` seconds at most."""
        self._stop.set()
        with suppress(queue.Full):  # then the thread is not waiting for one
            self._waiting.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None and not self._stop.is_set():
            self._count(self._sent(notice))

    def _sent(self, notice: Notice) -> str:
        """Send one notice, and say what became of it."""
        if isinstance(namespace := segment(notice.pod.namespace), Failure):
            return self._failed(namespace, "")
        backoff = Backoff(first=1.0, longest=30.0)
        for attempt in range(1, _ATTEMPTS + 1):
            answer = self._attempt(notice, f"/api/v1/namespaces/{namespace}/events")
            match answer:
                case Answer(status=status) if status in (200, 201):
                    return "sent"
                case Answer() if _is_gone(answer):
                    return "gone"
                case Answer(status=status) if status < 500 and status != 429:
                    return self._failed(refusal(answer, right=RIGHT), message_of(answer))
            if attempt == _ATTEMPTS or self._pause(backoff.pause(at_least=_pause_asked(answer))):
                break
        return self._failed(answer if isinstance(answer, Failure) else refusal(answer, right=RIGHT), "")

    def _attempt(self, notice: Notice, path: str) -> Answer | Failure:
        """Make the Event, or count up the one that there is."""
        name = f"podgpu.{notice.key}"
        seen = self._seen.get(name)
        if seen is not None:
            answer = self._counted(f"{path}/{name}", name, seen + 1)
            if isinstance(answer, Failure) or answer.status != 404:
                return answer
            del self._seen[name]  # the API server keeps Events for an hour
        answer = self._api.post(path, self._event(notice, name))
        if isinstance(answer, Answer) and answer.status == 201:
            self._seen[name] = 1
        if isinstance(answer, Answer) and answer.status == 409:
            return self._taken_over(f"{path}/{name}", name)
        return answer

    def _taken_over(self, path: str, name: str) -> Answer | Failure:
        """Count up an Event of before this process. How far it has come is in the answer to a first patch."""
        answer = self._api.patch(path, {"lastTimestamp": self._now()})
        if isinstance(answer, Failure) or answer.status != 200:
            return answer
        count = status_of(answer).get("count")
        return self._counted(path, name, count + 1 if isinstance(count, int) and 0 < count < 1 << 30 else 2)

    def _counted(self, path: str, name: str, count: int) -> Answer | Failure:
        answer = self._api.patch(path, {"count": count, "lastTimestamp": self._now()})
        if isinstance(answer, Answer) and answer.status == 200:
            self._seen[name] = count
        return answer

    def _event(self, notice: Notice, name: str) -> Mapping[str, object]:
        pod, now = notice.pod, self._now()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": pod.namespace, "name": name},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.api_uid or pod.uid,
            },
            "type": notice.reason.kind,
            "reason": str(notice.reason),
            "message": notice.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
        }

    def _now(self) -> str:
        """The time as Kubernetes writes it, in whole seconds of UTC."""
        return datetime.fromtimestamp(int(self._clock.unix()), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _failed(self, failure: Failure, detail: str) -> str:
        if failure.reason not in self._logged:
            self._logged.add(failure.reason)
            log.warning("Events can't be sent: %s%s", failure, f" ({detail})" if detail else "")
        return "failed"

    def _count(self, result: str) -> None:
        with self._lock:
            self._counts[result] += 1


def _is_gone(answer: Answer) -> bool:
    """Whether the pod's namespace is gone or going: then there is nobody left to be told."""
    if answer.status == 404:
        return True
    details = status_of(answer).get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return (
        answer.status == 403
        and isinstance(causes, list)
        and any(isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes)
    )


def _pause_asked(answer: Answer | Failure) -> float:
    return min(answer.retry_after or 0.0, 60.0) if isinstance(answer, Answer) else 0.0
