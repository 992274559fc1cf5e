"""Pods out of the API server's JSON, without a model of everything that a pod can say.

Guarantees: whatever the JSON says, an answer or None; what is not of the type that it should be counts as absent; of
a pod nothing is kept but what `Pod` has, so that the memory of a long pod is free again as soon as it was read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.errors import Failure, Reason
from exporter.model import ContainerKind, Owner, Pod, PodContainer
from exporter.sources.podstore import bare_id, bounded, static_uid


@dataclass(frozen=True, slots=True)
class PodList:
    """A list, and its version, from which a watch goes on."""

    pods: tuple[Pod, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Event:
    """A line of a watch. `kind` is the server's word. `version` is empty where the line has none.

    `pod` is None for bookmarks and errors, and for a pod of another node. Of an error `code` is the HTTP status that it
    stands for and `retry_after` the pause (seconds) that it asks for.
    """

    kind: str
    pod: Pod | None = None
    version: str = ""
    code: int = 0
    retry_after: float = 0.0


def parse_list(body: bytes, *, node: str) -> PodList | Failure:
    """The pods of a node from a PodList."""
    listed = _loaded(body)
    if listed.get("kind") != "PodList" or not (version := _version(listed)):
        return Failure(Reason.MALFORMED, "the API server's answer is no PodList")
    pods = (pod_of(item, node=node) for item in _list(listed.get("items")))
    return PodList(tuple(pod for pod in pods if pod is not None), version)


def parse_event(line: bytes, *, node: str) -> Event | Failure:
    """One line of a watch."""
    event = _loaded(line)
    kind, item = _text(event, "type"), _mapping(event.get("object"))
    if not kind or not item:
        return Failure(Reason.MALFORMED, "a line of the API server's watch is no event")
    if kind == "ERROR":
        pause = _mapping(item.get("details")).get("retryAfterSeconds")
        return Event(kind, code=_number(item.get("code")), retry_after=float(_number(pause)))
    return Event(kind, None if kind == "BOOKMARK" else pod_of(item, node=node), _version(item))


def pod_of(item: object, *, node: str) -> Pod | None:
    """One pod; None for what is no pod, has no uid or name, or is another node's."""
    whole = _mapping(item)
    meta, spec, status = (_mapping(whole.get(part)) for part in ("metadata", "spec", "status"))
    uid, namespace, name = (_text(meta, key) for key in ("uid", "namespace", "name"))
    if not (uid and namespace and name) or _text(spec, "nodeName") not in ("", node):
        return None
    annotations = bounded(_texts(meta.get("annotations")))
    return Pod(
        uid=uid,
        namespace=namespace,
        name=name,
        static_uid=static_uid(annotations),
        labels=_texts(meta.get("labels")),
        annotations=annotations,
        owners=tuple(_owners(meta)),
        containers=tuple(_containers(spec, status)),
        phase=_text(status, "phase"),
        qos=_text(status, "qosClass"),
        priority_class=_text(spec, "priorityClassName"),
    )


def _owners(meta: Mapping[str, Any]) -> Iterator[Owner]:
    for owner in map(_mapping, _list(meta.get("ownerReferences"))):
        yield Owner(
            _text(owner, "kind"),
            _text(owner, "name"),
            api_version=_text(owner, "apiVersion"),
            uid=_text(owner, "uid"),
            controller=owner.get("controller") is True,
        )


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[PodContainer]:
    """The containers, sorted by name. A container of which no status tells has not started."""
    kinds = {_text(c, "name"): ContainerKind.MAIN for c in map(_mapping, _list(spec.get("containers")))}
    for container in map(_mapping, _list(spec.get("initContainers"))):
        always = container.get("restartPolicy") == "Always"
        kinds[_text(container, "name")] = ContainerKind.SIDECAR if always else ContainerKind.INIT
    ids: dict[str, tuple[str, ...]] = {}
    for group in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in map(_mapping, _list(status.get(group))):
            ids[_text(entry, "name")] = _ids(entry)
            if group == "ephemeralContainerStatuses":
                kinds[_text(entry, "name")] = ContainerKind.EPHEMERAL
    for name, kind in sorted(kinds.items()):
        if name:
            yield PodContainer(name, kind, ids.get(name, ()))


def _ids(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of a container's present and last run."""
    runs = (_mapping(_mapping(entry.get(when)).get("terminated")) for when in ("state", "lastState"))
    found = (bare_id(_text(run, "containerID")) for run in (entry, *runs))
    return tuple(dict.fromkeys(container_id for container_id in found if container_id))


def _loaded(text: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _version(item: Mapping[str, Any]) -> str:
    """The opaque version. Clients have sent the word None back to servers, which is one that no server gives."""
    return _text(_mapping(item.get("metadata")), "resourceVersion")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) else ""


def _texts(value: object) -> dict[str, str]:
    return {key: text for key, text in _mapping(value).items() if isinstance(text, str)}


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0
