"""What the pods of a node ask for, and what that is in bytes on one memory domain: contract and policy together. Pure.

Texts are read once per pod and decisions made once per request and device, since both come back in every cycle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.caps import contract
from exporter.caps.keys import NVIDIA_PREFIX
from exporter.caps.policy import Decision, Policy, apply
from exporter.caps.requests import CapRequest, Limits, PodCaps, limits
from exporter.model import ContainerName, Pod

_MOST_DECISIONS = 4096


@dataclass(frozen=True, slots=True)
class Domain:
    """What of a memory domain decides whether a request is about it. `names`: UUIDs and index of its devices."""

    names: frozenset[str]
    capacity: int | None  # bytes


@dataclass(frozen=True, slots=True)
class Decided:
    """What holds of a request on one domain: the decision of policy, and its amounts in bytes."""

    decision: Decision
    limits: Limits


class Caps:
    """The caps of all pods under one policy. Gives the same answers for the same pods, whatever it was asked before.

    `policy` None: there is one and it can't be read. Then annotations are read all the same, but nobody has a cap.
    """

    def __init__(self, *, policy: Policy | None, prefix: str = NVIDIA_PREFIX) -> None:
        self._policy = policy
        self._prefix = prefix
        self._read: dict[int, tuple[Pod, PodCaps]] = {}  # a pod that has not changed is the same value
        self._decided: dict[tuple[str, CapRequest, int | None], Decided] = {}

    def of(self, pods: Iterable[Pod]) -> "NodeCaps":
        """What these pods ask for."""
        before = self._read
        self._read = {
            id(pod): before.get(id(pod)) or (pod, contract.read(pod.annotations, pod.containers, prefix=self._prefix))
            for pod in pods
        }
        return NodeCaps({(pod.namespace, pod.name): caps for pod, caps in self._read.values()}, self)

    def decide(self, namespace: str, request: CapRequest, capacity: int | None) -> Decided | None:
        """What holds of a request on a device of `capacity` bytes; None where policy can't be read."""
        if self._policy is None:
            return None
        key = (namespace, request, capacity)
        found = self._decided.get(key)
        if found is None:
            if len(self._decided) >= _MOST_DECISIONS:
                self._decided.clear()
            decision = apply(self._policy, namespace, request, capacity=capacity)
            found = self._decided[key] = Decided(decision, limits(decision.request, capacity))
        return found


@dataclass(frozen=True, slots=True)
class NodeCaps:
    """The caps of a node's pods, by namespace and name."""

    pods: Mapping[tuple[str, str], PodCaps] = field(default_factory=dict)
    _caps: Caps | None = None

    def limits(self, name: ContainerName, domain: Domain) -> Limits | None:
        """What a container asks for on a memory domain, in bytes; None where its pod, or policy, is not known."""
        found = self.decided(name, domain)
        return found.limits if found is not None else None

    def decided(self, name: ContainerName, domain: Domain) -> Decided | None:
        """What holds of a container's request on a memory domain; None where its pod, or policy, is not known.

        A request that names devices is about these only.
        """
        found = self.pods.get((name.namespace, name.pod))
        if found is None or self._caps is None:
            return None
        request = found.of(name.container)
        if request.devices and "all" not in request.devices and domain.names.isdisjoint(request.devices):
            return None
        return self._caps.decide(name.namespace, request, domain.capacity)
