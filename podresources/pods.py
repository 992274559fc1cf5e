"""A client of the kubelet's Pods API: which pods does this node have, and how are they?

It needs no rights in the cluster and asks nothing of the API server, and goes on answering while that is away. It has
static pods under the kubelet's own uid, which is the one that their cgroups have.

Guarantees: those of `podresources.connection`; the environment variables and volumes of pods are not asked for, as a
field mask leaves them out (a kubelet that refuses the mask is asked without it, and then they are dropped on reading).

Not here: reconnecting, and a list kept up to date. A watch ends with an error, and what then is the caller's choice.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique

import grpc
from google.protobuf.message import DecodeError, Message

from podresources import errors
from podresources.connection import MIB, Answer, Connection
from podresources.v1alpha1 import pod_pb2, pods_pb2

DEFAULT_PODS_SOCKET = "/var/lib/kubelet/pods-api/pods-api.sock"

# Whole statuses, not parts of them: the kubelet that masks inside of lists is younger than the one that masks.
FIELD_MASK = ",".join(
    (
        *(f"metadata.{name}" for name in ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")),
        *("spec.nodeName", "spec.priorityClassName", "spec.containers.name"),
        *("spec.initContainers.name", "spec.initContainers.restartPolicy"),
        *("status.phase", "status.qosClass"),
        *(f"status.{kind}Statuses" for kind in ("container", "initContainer", "ephemeralContainer")),
    )
)
_SERVICE = "v1alpha1.Pods"
_MASK_KEY = "x-kubernetes-fieldmask"


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner reference. `controller`: this owner makes and replaces the pod."""

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool = False


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container. `kind` is main, init, sidecar or ephemeral; `ids` as the kubelet writes them, the present one first.

    Without ids it has not started.
    """

    name: str
    kind: str = "main"
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as this package reads it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    node: str = ""
    phase: str = ""
    qos_class: str = ""
    priority_class: str = ""


@unique
class EventKind(StrEnum):
    """What a watch tells."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"  # of the pod only uid, namespace and name are certain
    SYNCED = "synced"  # all pods that there were at the start have been told


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One event of a watch. `pod` is None for SYNCED."""

    kind: EventKind
    pod: Pod | None = None


_KINDS = {
    pods_pb2.ADDED: EventKind.ADDED,
    pods_pb2.MODIFIED: EventKind.MODIFIED,
    pods_pb2.DELETED: EventKind.DELETED,
    pods_pb2.INITIAL_SYNC_COMPLETE: EventKind.SYNCED,
}


class PodsClient(Connection):
    """Asks one socket. `deadline` (seconds) is for a call, and for the first part of a watch, until SYNCED."""

    def __init__(
        self,
        socket_path: str | os.PathLike[str] = DEFAULT_PODS_SOCKET,
        *,
        deadline: float = 10.0,
        max_message_bytes: int = 64 * MIB,
    ) -> None:
        super().__init__(socket_path, deadline=deadline, max_message_bytes=max_message_bytes)
        self._metadata: tuple[tuple[str, str], ...] = ((_MASK_KEY, FIELD_MASK),)

    def list(self) -> tuple[Pod, ...]:
        """All pods of the node (ListPods), sorted by namespace, name and uid."""
        found = self._masked("ListPods", pods_pb2.ListPodsRequest(), pods_pb2.ListPodsResponse)
        pods = [self._pod("ListPods", content) for content in found.pods]
        return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)))

    def get(self, uid: str) -> Pod:
        """One pod (GetPod). Raises `PodNotFound` where the kubelet has none of this uid."""
        found = self._masked("GetPod", pods_pb2.GetPodRequest(podUID=uid), pods_pb2.GetPodResponse)
        return self._pod("GetPod", found.pod)

    def watch(self, *, seconds: float | None = None) -> Iterator[PodEvent]:
        """All pods as ADDED, then SYNCED, then each change (WatchPods), for so many seconds at most.

        Always ends with one of `podresources.errors`: `WatchOver` when the time is up, `Unavailable` when the kubelet
        ended it. Kinds of event that this client does not know are passed over.
        """
        try:
            yield from self._watch(seconds)
        except errors.RequestRefused:
            if not self._metadata:
                raise
            self._metadata = ()
            yield from self._watch(seconds)

    def _watch(self, seconds: float | None) -> Iterator[PodEvent]:
        with self._channel("WatchPods") as channel:
            begin: grpc.UnaryStreamMultiCallable[pods_pb2.WatchPodsRequest, bytes] = channel.unary_stream(
                f"/{_SERVICE}/WatchPods",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=lambda raw: raw,
            )
            events = begin(pods_pb2.WatchPodsRequest(), metadata=self._metadata, timeout=seconds)
            late = threading.Event()

            def give_up() -> None:
                late.set()
                events.cancel()

            synced = threading.Timer(self.deadline, give_up)
            synced.daemon = True
            synced.start()
            try:
                for content in events:
                    event = pods_pb2.WatchPodsEvent.FromString(content)
                    kind = _KINDS.get(event.type)
                    if kind is EventKind.SYNCED:
                        synced.cancel()
                        yield PodEvent(kind)
                    elif kind is not None:
                        yield PodEvent(kind, self._pod("WatchPods", event.pod))
            except grpc.RpcError as error:
                if late.is_set():
                    detail = f"WatchPods: not all pods in {self.deadline:g} s"
                    raise errors.DeadlineExceeded(self.socket_path, detail) from error
                if seconds is not None and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise errors.WatchOver(self.socket_path, f"WatchPods: {seconds:g} s are over") from error
                raise
            finally:
                synced.cancel()
                events.cancel()
        raise errors.Unavailable(self.socket_path, "WatchPods: the kubelet ended the watch")

    def _masked(self, method: str, request: Message, kind: type[Answer]) -> Answer:
        try:
            return self._call(_SERVICE, method, request, kind(), self._metadata)
        except errors.RequestRefused:
            if not self._metadata:
                raise
            self._metadata = ()
            return self._call(_SERVICE, method, request, kind())

    def _pod(self, method: str, content: bytes) -> Pod:
        """Decode one pod. Raises `MalformedAnswer`; one without a uid can't be told from others and is none."""
        try:
            pod = pod_from(pod_pb2.Pod.FromString(content))
        except DecodeError as error:
            raise errors.MalformedAnswer(self.socket_path, f"{method}: {error}") from error
        if not pod.uid:
            raise errors.MalformedAnswer(self.socket_path, f"{method}: a pod without a uid")
        return pod


def pod_from(message: pod_pb2.Pod) -> Pod:
    """The value of one pod."""
    meta, spec, status = message.metadata, message.spec, message.status
    kinds = {container.name: "main" for container in spec.containers}
    kinds |= {c.name: "sidecar" if c.restartPolicy == "Always" else "init" for c in spec.initContainers}
    ids = {
        entry.name: _ids(entry)
        for entries in (status.containerStatuses, status.initContainerStatuses, status.ephemeralContainerStatuses)
        for entry in entries
    }
    kinds |= {entry.name: "ephemeral" for entry in status.ephemeralContainerStatuses}
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        labels=dict(meta.labels),
        annotations=dict(meta.annotations),
        owners=tuple(
            Owner(o.kind, o.name, api_version=o.apiVersion, uid=o.uid, controller=o.controller)
            for o in meta.ownerReferences
        ),
        containers=tuple(PodContainer(name, kind, ids.get(name, ())) for name, kind in sorted(kinds.items())),
        node=spec.nodeName,
        phase=status.phase,
        qos_class=status.qosClass,
        priority_class=spec.priorityClassName,
    )


def _ids(status: pod_pb2.ContainerStatus) -> tuple[str, ...]:
    """The ids of a container's present and last run, each once."""
    found: Sequence[str] = (
        status.containerID,
        status.state.terminated.containerID,
        status.lastState.terminated.containerID,
    )
    return tuple(dict.fromkeys(container_id for container_id in found if container_id))
