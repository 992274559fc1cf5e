"""The pods of a simulated API server: lists, and watches that tell each change as a line.

Versions are numbers that begin at the time of the server's start, so that a server that was started anew knows no
version of the one before. A watch from a version that is too old gets one line: an error with code 410, as real
servers send it, after headers that say that all is well.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

PATH = "/api/v1/pods"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

_LOOK_EVERY = 0.02  # seconds between two looks for events
_GONE = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}


class Event(NamedTuple):
    """One event; `pod` has its version in it."""

    version: int
    kind: str
    pod: dict[str, Any]


class History:
    """What has happened to the pods so far."""

    def __init__(self) -> None:
        self.version = self._oldest = time.time_ns() // 1000
        self._pods: dict[str, tuple[Any, dict[str, Any]]] = {}  # uid -> as the file has it, with its version
        self._events: list[Event] = []

    def update(self, pods: list[dict[str, Any]]) -> None:
        """These are the pods now."""
        present = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid in self._pods.keys() - present.keys():
            self._happened("DELETED", self._pods.pop(uid)[0])
        for uid, pod in present.items():
            known = self._pods.get(uid)
            if known is None or known[0] != pod:
                self._pods[uid] = (pod, self._happened("MODIFIED" if known else "ADDED", pod))

    def listed(self, node: str) -> dict[str, Any]:
        """The list."""
        items = [pod for _, pod in self._pods.values() if _is_on(pod, node)]
        return {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(self.version)},
            "items": items,
        }

    def events(self, node: str, *, since: int) -> list[Event]:
        """The events after a version; of one that is not known any more an error."""
        if not self._oldest <= since <= self.version:
            return [Event(since, "ERROR", _GONE)]
        return [event for event in self._events if event.version > since and _is_on(event.pod, node)]

    def _happened(self, kind: str, pod: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        versioned = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        self._events.append(Event(self.version, kind, versioned))
        return versioned


class Watch:
    """The lines of one watch. `ended` waits for seconds and says whether the client has gone meanwhile."""

    def __init__(
        self,
        query: Mapping[str, list[str]],
        events: Callable[..., list[Event]],
        *,
        ended: Callable[[float], bool],
        bookmark_every: float,
    ) -> None:
        self._node = selected_node(query) or ""
        version = query.get("resourceVersion", [""])[0]
        self._version = int(version) if version.isdigit() else 0
        self._until = time.monotonic() + float(query.get("timeoutSeconds", ["3600"])[0])
        self._events = events
        self._ended = ended
        self._bookmark_every = bookmark_every if query.get("allowWatchBookmarks") == ["true"] else float("inf")

    def __iter__(self) -> Iterator[str]:
        marked_at = time.monotonic()
        while time.monotonic() < self._until and not self._ended(_LOOK_EVERY):
            for version, kind, pod in self._events(self._node, since=self._version):
                yield json.dumps({"type": kind, "object": pod})
                if kind == "ERROR":
                    return
                self._version = version
            if time.monotonic() - marked_at >= self._bookmark_every:
                marked_at = time.monotonic()
                # As real ones: nothing but the version, and nulls where lists have to be.
                meta = {"resourceVersion": str(self._version)}
                yield json.dumps({"type": "BOOKMARK", "object": {"metadata": meta, "spec": {"containers": None}}})


def selected_node(query: Mapping[str, list[str]]) -> str | None:
    """The node that the field selector names, empty without one; None for another selector."""
    selectors = query.get("fieldSelector", [])
    if not selectors:
        return ""
    field, _, node = selectors[0].partition("=")
    return node if field == "spec.nodeName" and len(selectors) == 1 else None


def chunk(text: str) -> bytes:
    """A text as a chunk of a body of unknown length."""
    content = text.encode()
    return b"%x\r\n%s\r\n" % (len(content), content)


def _is_on(pod: Mapping[str, Any], node: str) -> bool:
    return not node or pod.get("spec", {}).get("nodeName") == node
