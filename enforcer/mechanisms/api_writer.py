"""POSTs and PATCHes to the API server, with everything that the exporter's GETs guarantee.

The exporter has no such methods: they are made here, in the one program that changes something. The same token, CA,
deadline and bounds hold; any status is an answer, and nothing is retried or remembered.

It will not put a name into a path that Kubernetes would not have given: see `segment`.
"""

import json
import re
from collections.abc import Mapping

from exporter.errors import Failure, Reason
from exporter.sources.apiserver import Answer, ApiServer, Request

_SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


class ApiWriter(ApiServer):
    """An API server that may be written to."""

    def post(self, path: str, body: Mapping[str, object]) -> Answer | Failure:
        """Create what a JSON object describes."""
        return self._exchange(_request("POST", path, body, "application/json"))

    def patch(self, path: str, body: Mapping[str, object]) -> Answer | Failure:
        """Change the fields of an object that a merge patch names."""
        return self._exchange(_request("PATCH", path, body, "application/merge-patch+json"))


def segment(name: str) -> str | Failure:
    """A name as a segment of a path, if it is one that Kubernetes gives to namespaces, pods and events."""
    if _SUBDOMAIN.fullmatch(name) and ".." not in name:
        return name
    return Failure(Reason.MALFORMED, f"{name[:80]!r} is no name of an object in Kubernetes")


def _request(method: str, path: str, body: Mapping[str, object], kind: str) -> Request:
    return Request(method, path, json.dumps(body).encode(), {"Content-Type": kind})
