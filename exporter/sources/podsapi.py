"""This node's pods from the kubelet's Pods API (Kubernetes 1.37): no rights, and nothing asked of the API server.

One watch, for as long as the kubelet runs. It begins with all pods, so that nothing is ever listed; it is begun anew
each half to whole hour, because a kubelet that is in a hurry drops events of a slow reader without saying so.

Guarantees: the pods that were known stay while the kubelet is away, and are replaced as a whole once it has told all
of them again.
"""

import random
from collections.abc import Callable

import podresources
from exporter.clock import Clock
from exporter.errors import Failure
from exporter.model import ContainerKind, Owner, Pod, PodContainer
from exporter.sources.backoff import Backoff
from exporter.sources.kubelet import REASONS
from exporter.sources.podfeed import PodFeed
from exporter.sources.podstore import bare_id, bounded

ANEW_AFTER = 1800.0  # seconds, and up to twice as many
_UNIMPLEMENTED = 60.0  # seconds until a kubelet that has no such call is asked again


class KubeletPods(PodFeed):
    """Follows one kubelet. `deadline` (seconds) is for telling all pods."""

    name = "the kubelet's Pods API"

    def __init__(
        self,
        socket_path: str,
        *,
        clock: Clock,
        deadline: float = 10.0,
        chance: Callable[[], float] = random.random,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        super().__init__(clock, wait=wait)
        self._client = podresources.PodsClient(socket_path, deadline=deadline)
        self._chance = chance
        self._backoff = Backoff(first=0.5, longest=10.0, chance=chance)

    def _follow(self) -> float:
        begun = self._monotonic()
        told: dict[str, Pod] | None = {}  # None once all are told
        try:
            for event in self._client.watch(seconds=ANEW_AFTER * (1 + self._chance())):
                told = self._take(event, told)
        except podresources.WatchOver:
            return 0.0
        except podresources.PodResourcesError as error:
            self._lost(Failure(REASONS[type(error)], str(error)))
            slow = isinstance(error, podresources.Unimplemented)
            worked_for = self._monotonic() - begun if told is None else 0.0
            return self._backoff.pause(at_least=_UNIMPLEMENTED if slow else 0.0, worked_for=worked_for)
        return self._backoff.pause()

    def _take(self, event: podresources.PodEvent, told: dict[str, Pod] | None) -> dict[str, Pod] | None:
        if event.pod is None:
            self.store.replace((told or {}).values())
            self.decided.set()
            return None
        gone = event.kind is podresources.EventKind.DELETED
        if told is None and gone:
            self.store.remove(event.pod.uid)
        elif told is None:
            self.store.put(_pod(event.pod))
        elif gone:
            told.pop(event.pod.uid, None)
        else:
            told[event.pod.uid] = _pod(event.pod)
        return told

    def _interrupt(self) -> None:
        self._client.close()


def _pod(pod: podresources.Pod) -> Pod:
    """A pod of the kubelet as a value of the model. The kubelet knows static pods by their own uid."""
    return Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        labels=pod.labels,
        annotations=bounded(pod.annotations),
        owners=tuple(
            Owner(o.kind, o.name, api_version=o.api_version, uid=o.uid, controller=o.controller) for o in pod.owners
        ),
        containers=tuple(
            PodContainer(c.name, ContainerKind(c.kind), tuple(bare_id(container_id) for container_id in c.ids))
            for c in pod.containers
        ),
        phase=pod.phase,
        qos=pod.qos_class,
        priority_class=pod.priority_class,
    )
