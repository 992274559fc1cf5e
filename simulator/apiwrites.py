"""What can be written to a simulated API server: Events, and evictions of its pods.

Events are made by POST and changed by merge PATCH, each under its name in its namespace, with the checks on which
clients depend: a name is given once (409), what is not there can't be patched (404), and the namespace of an Event is
that of its object. An eviction needs the pod (404), the uid that it names as a precondition (409) and, where the pod is
protected, does not get past its disruption budget (429). A pod that was evicted is gone from lists, and from watches
with an event.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

Answer = tuple[int, dict[str, Any]]

_EVENTS = re.compile(r"/api/v1/namespaces/([^/]+)/events(?:/([^/]+))?")
_EVICTION = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction")
_LONGEST_NOTE = 1024


def status(code: int, message: str, **details: Any) -> Answer:  # noqa: ANN401 - JSON
    """An error, as an API server puts it."""
    found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return code, found | ({"details": details} if details else {})


class Writes:
    """What has been written. `events` are by namespace and name, `evictions` the evicted pods' metadata in order."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.evictions: list[dict[str, str]] = []

    def told(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {"events": list(self.events.values()), "evictions": self.evictions}

    def remaining(self, pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The pods that were not evicted."""
        evicted = {found["uid"] for found in self.evictions}
        return [pod for pod in pods if pod["metadata"]["uid"] not in evicted]

    def do(
        self, method: str, path: str, body: bytes, *, pods: Sequence[dict[str, Any]], protected: Collection[str]
    ) -> Answer:
        """Do what a request asks for, and answer it."""
        try:
            given = json.loads(body)
        except ValueError:
            return status(400, "the body is no JSON")
        if method == "POST" and (match := _EVICTION.fullmatch(path)):
            return self._evict(match[1], match[2], given, self.remaining(pods), protected)
        match = _EVENTS.fullmatch(path)
        if match is not None and method == "POST" and match[2] is None:
            return self._create(match[1], given)
        if match is not None and method == "PATCH" and match[2] is not None:
            return self._patch(match[1], match[2], given)
        return status(404, "the server could not find the requested resource")

    def _create(self, namespace: str, event: dict[str, Any]) -> Answer:
        name = event["metadata"]["name"]
        if event["involvedObject"].get("namespace") != namespace or len(event["message"].encode()) > _LONGEST_NOTE:
            return status(422, f'Event "{name}" is invalid')
        if (namespace, name) in self.events:
            return status(409, f'events "{name}" already exists')
        self.events[namespace, name] = event
        return 201, event

    def _patch(self, namespace: str, name: str, fields: dict[str, Any]) -> Answer:
        if (namespace, name) not in self.events:
            return status(404, f'events "{name}" not found')
        self.events[namespace, name] |= fields
        return 200, self.events[namespace, name]

    def _evict(
        self,
        namespace: str,
        name: str,
        eviction: dict[str, Any],
        pods: Sequence[dict[str, Any]],
        protected: Collection[str],
    ) -> Answer:
        found = [pod["metadata"] for pod in pods]
        found = [meta for meta in found if (meta["namespace"], meta["name"]) == (namespace, name)]
        if not found:
            return status(404, f'pods "{name}" not found')
        uid, wanted = found[0]["uid"], eviction.get("deleteOptions", {}).get("preconditions", {}).get("uid")
        if wanted not in (None, uid):
            return status(409, f"the UID in the precondition ({wanted}) does not match the UID in record ({uid})")
        if f"{namespace}/{name}" in protected:
            causes = [{"reason": "DisruptionBudget", "message": "The disruption budget guard needs 1 healthy pods"}]
            return status(429, "Cannot evict pod as it would violate the pod's disruption budget.", causes=causes)
        self.evictions.append({"namespace": namespace, "name": name, "uid": uid})
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
