"""The pods of this node as a source last told them, and the names that follow from them.

One thread hears of pods and changes the store, the sampling cycle reads it; a read never waits for anything outside.

Guarantees: what is read is whole, never half of a list; losing the source loses no name, because a uid never gets
another name; a pod that the source no longer has leaves the pods at once, while its name stays for a time, because
a pod that was deleted by force may still have processes; two pods that claim one uid or one container name nothing.
"""

import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import ContainerName, Pod, PodNames

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NAMED_FOR = 600.0  # seconds that the name of a pod which is gone stays known

# What the kubelet says of a static pod on the pod that mirrors it in the API.
_MIRROR = "kubernetes.io/config.mirror"
_HASH = "kubernetes.io/config.hash"

# kubectl's copy of the whole pod, of no use here and as large as the pod.
_BULK = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
_LONGEST_ANNOTATION = 4096  # characters; no value that means anything to us comes near it


@dataclass(frozen=True, slots=True)
class Told:
    """What a store holds. `names` is None until the source told all pods once.

    `failure` is None while the source is heard; else it has not been since `heard_at` (monotonic seconds).
    """

    names: PodNames | None
    failure: Failure | None
    heard_at: float


class PodStore:
    """Holds the pods of one source. For one thread that writes and any that read."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._gone: dict[str, tuple[float, Pod]] = {}  # uid -> when it went, and what it was
        self._synced = False
        self._names: PodNames | None = None
        self._failure: Failure | None = Failure(Reason.MISSING, "not heard yet")
        self._heard_at = self._monotonic()

    def __len__(self) -> int:
        return len(self._pods)

    def replace(self, pods: Iterable[Pod]) -> None:
        """All pods that there are, at a moment when the source is heard."""
        with self._lock:
            present = {pod.uid: pod for pod in pods}
            for uid in self._pods.keys() - present.keys():
                self._leave(uid)
            self._pods = present
            self._names = None
            self._synced = True
            self._failure = None

    def put(self, pod: Pod) -> None:
        """One pod, new or changed."""
        with self._lock:
            if self._pods.get(pod.uid) != pod:
                self._pods[pod.uid] = pod
                self._names = None

    def remove(self, uid: str) -> None:
        """One pod that is gone."""
        with self._lock:
            if uid in self._pods:
                self._leave(uid)
                del self._pods[uid]
                self._names = None

    def heard(self) -> None:
        """The source is heard, with nothing missed since the last word."""
        with self._lock:
            self._failure = None

    def lost(self, failure: Failure) -> None:
        """The source is not heard, for this reason."""
        with self._lock:
            if self._failure is None:
                self._heard_at = self._monotonic()
            self._failure = failure

    def read(self) -> Told:
        """What there is now. At once."""
        with self._lock:
            now = self._monotonic()
            gone = {uid: left for uid, left in self._gone.items() if now - left[0] <= NAMED_FOR}
            if self._names is None or len(gone) != len(self._gone):
                self._gone = gone
                self._names = names_of(self._pods.values(), gone=(pod for _, pod in gone.values()))
            return Told(
                self._names if self._synced else None, self._failure, now if self._failure is None else self._heard_at
            )

    def _leave(self, uid: str) -> None:
        self._gone[uid] = (self._monotonic(), self._pods[uid])


def names_of(pods: Iterable[Pod], *, gone: Iterable[Pod] = ()) -> PodNames:
    """The names of pods, those that are there before those that are gone.

    A static pod goes by its own uid and by that of its mirror. The latter is an annotation, so it never takes a uid
    from a pod that has it.
    """
    present = list(pods)
    known = [*present, *gone]
    by_uid = {pod.uid: pod for pod in present if not pod.static_uid}
    static = undisputed((pod.static_uid, pod) for pod in present if pod.static_uid)
    named = {pod.uid: (pod.namespace, pod.name) for pod in reversed(known)}
    named_static = undisputed((pod.static_uid, (pod.namespace, pod.name)) for pod in known if pod.static_uid)
    return PodNames(
        pods=MappingProxyType({**named_static, **named}),
        containers=MappingProxyType({**_containers(known), **_containers(present)}),
        by_uid=MappingProxyType({**static, **by_uid}),
    )


def static_uid(annotations: Mapping[str, str]) -> str:
    """The kubelet's uid of the static pod that a pod with these annotations mirrors; empty where it mirrors none."""
    return annotations.get(_HASH, "") if _MIRROR in annotations else ""


def bounded(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations as they are kept. A value that is too long is cut, with a mark that makes no value valid."""
    return {
        key: value if len(value) <= _LONGEST_ANNOTATION else f"{value[:_LONGEST_ANNOTATION]}…"
        for key, value in annotations.items()
        if key not in _BULK
    }


def bare_id(container_id: str) -> str:
    """A container's id without the name of its runtime (`containerd://`)."""
    return container_id.rpartition("//")[2]


def undisputed(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """The pairs as a mapping, without the keys that are given two values."""
    values: dict[K, V] = {}
    disputed: set[K] = set()
    for key, value in pairs:
        if values.setdefault(key, value) != value:
            disputed.add(key)
    return {key: value for key, value in values.items() if key not in disputed}


def _containers(pods: Iterable[Pod]) -> dict[str, ContainerName]:
    return undisputed(
        (container_id, ContainerName(pod.namespace, pod.name, container.name))
        for pod in pods
        for container in pod.containers
        for container_id in container.ids
    )
