"""What the kubelet handed out, as model values: the source of *allocation*, never of use.

What could be handed out is asked for every 30 seconds and whenever an allocation changed, as it costs as much as the
rest and seldom changes.

Guarantees: answers a `Reading`, whatever the kubelet does; an allocation that is missing from an answer is missing
because the kubelet let it go, not because it had just started. A kubelet that restarts lists its pods only as it takes
them up again, so for `GRACE` seconds after its socket was replaced a list that lacks something is a failure.

Which devices count: those whose id has the shape of a GPU's or a MIG device's, under any resource name, because
resources get renamed; and, with an id that says nothing, those whose resource name says GPU. Other vendors' devices do
not.

Not here: whether a pod has finished. Before Kubernetes 1.34 the kubelet lists finished pods with their old devices.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import podresources
from exporter.errors import Failure, Reason
from exporter.model import Allocation, AllocationReading, ContainerName, DeviceKind, DeviceRef, Reading

SOURCE = "kubelet"
GRACE = 10.0  # seconds; a kubelet takes its pods up again within a few
ALLOCATABLE_EVERY = 30.0  # seconds; what could be handed out changes when a device breaks or a plugin restarts
RETRY = 0.1  # seconds; the kubelet's limit of 100 calls a second lets ten through in this time

REASONS: dict[type[podresources.PodResourcesError], Reason] = {
    podresources.SocketMissing: Reason.SOCKET_MISSING,
    podresources.NotASocket: Reason.NOT_A_SOCKET,
    podresources.PermissionDenied: Reason.NO_PERMISSION,
    podresources.Unavailable: Reason.UNAVAILABLE,
    podresources.DeadlineExceeded: Reason.TIMEOUT,
    podresources.RateLimited: Reason.RATE_LIMITED,
    podresources.AnswerTooLarge: Reason.TOO_LARGE,
    podresources.Unimplemented: Reason.UNIMPLEMENTED,
    podresources.MalformedAnswer: Reason.MALFORMED,
    podresources.NotReady: Reason.UNAVAILABLE,
    podresources.RequestRefused: Reason.UNAVAILABLE,
    podresources.WatchOver: Reason.UNAVAILABLE,
    podresources.PodNotFound: Reason.UNAVAILABLE,
    podresources.CallFailed: Reason.UNAVAILABLE,
}

# Vendors whose resources say "gpu" and mean another driver's devices.
_OTHER_VENDORS = ("amd.com", "intel.com", "iluvatar.ai", "metax-tech.com", "mthreads.com")


@dataclass(frozen=True, slots=True)
class _Belief:
    """The last list that was believed, and the socket that gave it."""

    socket: tuple[int, ...] | None
    allocations: tuple[Allocation, ...]


class KubeletSource:
    """Reads one kubelet. `deadline` (seconds) is for a whole reading: List and GetAllocatableResources get half each.

    Without a `socket_path` the `places` where distributions keep the socket are tried until one is there.
    `extra_resources` are resource names that mean a GPU although neither name nor id shows it, such as those of
    passthrough plugins. In `reservation_namespaces` pods only hold devices for a scheduler.
    """

    def __init__(
        self,
        socket_path: str | os.PathLike[str] = "",
        *,
        deadline: float,
        extra_resources: Collection[str] = (),
        reservation_namespaces: Collection[str] = (),
        places: Sequence[str] = podresources.KNOWN_SOCKETS,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._deadline = deadline / 2
        self._places = places
        self._client = podresources.Client(socket_path, deadline=self._deadline) if socket_path else None
        self._extra_resources = frozenset(extra_resources)
        self._reservation_namespaces = frozenset(reservation_namespaces)
        self._monotonic = monotonic
        self._sleep = sleep
        self._belief: _Belief | None = None
        self._restarted: tuple[tuple[int, ...] | None, float] | None = None  # a new socket, and when it was first seen
        self._known: dict[int, tuple[podresources.PodResources, tuple[Allocation, ...]]] = {}
        self._allocatable: tuple[tuple[str, DeviceRef], ...] | None = None
        self._allocatable_until = -math.inf

    def read(self) -> Reading[AllocationReading]:
        """Allocations and what could be allocated (List, GetAllocatableResources), with the seconds that it took."""
        start = self._monotonic()
        try:
            outcome = self._read()
        except podresources.PodResourcesError as error:
            outcome = Failure(REASONS[type(error)], str(error))
        return Reading(SOURCE, outcome, self._monotonic() - start)

    def close(self) -> None:
        """Ends a reading that another thread waits for."""
        if self._client is not None:
            self._client.close()

    def _read(self) -> AllocationReading | Failure:
        if self._client is None:
            self._client = podresources.Client(podresources.find_socket(self._places), deadline=self._deadline)
        client = self._client
        socket = _identity(client.socket_path)
        pods = {id(pod): pod for pod in self._list(client)}
        before = self._known
        # The client gives the same value for a pod that has not changed, and keeps it, so its identity is enough.
        self._known = {key: before.get(key) or (pod, tuple(self._allocations(pod))) for key, pod in pods.items()}
        allocations = tuple(allocation for _, found in self._known.values() for allocation in found)
        changed = self._belief != _Belief(socket, allocations)
        doubt = self._doubt(socket, allocations)
        if doubt is not None:
            return doubt
        now = self._monotonic()
        if changed or self._allocatable is None or now >= self._allocatable_until:
            self._allocatable = self._ask_allocatable(client)
            self._allocatable_until = now + ALLOCATABLE_EVERY
        return AllocationReading(allocations, self._allocatable)

    def _list(self, client: podresources.Client) -> tuple[podresources.PodResources, ...]:
        """The pods. A call that was refused for other clients' sake is tried once more; it costs next to nothing."""
        try:
            return client.list()
        except podresources.RateLimited:
            self._sleep(RETRY)
            return client.list()

    def _ask_allocatable(self, client: podresources.Client) -> tuple[tuple[str, DeviceRef], ...] | None:
        """Pairs of resource and device; None where the kubelet has no such call or failed at it."""
        try:
            entries = client.allocatable().devices
        except podresources.PodResourcesError:
            return None  # the caller sees the None; what was handed out is worth having without it
        return tuple((entry.resource, device) for entry in entries for device in self._devices(entry))

    def _doubt(self, socket: tuple[int, ...] | None, allocations: tuple[Allocation, ...]) -> Failure | None:
        """A failure where the list is that of a kubelet which has not taken up all its pods yet; else believes it."""
        last = self._belief
        if last is not None and socket != last.socket:
            now = self._monotonic()
            if self._restarted is None or self._restarted[0] != socket:
                self._restarted = (socket, now)
            age = now - self._restarted[1]
            missing = len(set(last.allocations).difference(allocations))
            if missing and age < GRACE:
                return Failure(
                    Reason.UNAVAILABLE,
                    f"the kubelet restarted {age:.0f} s ago and does not list {missing} of the "
                    f"{len(last.allocations)} allocations it had; believed after {GRACE:.0f} s",
                )
        self._belief = _Belief(socket, allocations)
        return None

    def _allocations(self, pod: podresources.PodResources) -> Iterator[Allocation]:
        """One for each container and resource that has devices which count."""
        for container in pod.containers:
            name = ContainerName(namespace=pod.namespace, pod=pod.name, container=container.name)
            for entry in container.devices:
                devices = tuple(self._devices(entry))
                if devices:
                    yield Allocation(name, entry.resource, devices, pod.namespace in self._reservation_namespaces)
            claimed = _claimed_devices(container.dynamic_resources)
            if claimed:
                yield Allocation(name, podresources.DRA_DRIVER, claimed)

    def _devices(self, entry: podresources.ContainerDevices) -> Iterator[DeviceRef]:
        """The devices of one resource that count."""
        named = self._names_gpus(entry.resource)
        for device_id in entry.device_ids:
            device = _device(device_id)
            # "all" is no shape: any plugin may call a device that.
            if named or device.kind in (DeviceKind.GPU, DeviceKind.MIG):
                yield device

    def _names_gpus(self, resource: str) -> bool:
        """Whether the resource's name alone says that its devices are GPUs of NVIDIA's."""
        if resource in self._extra_resources:
            return True
        vendor = resource.partition("/")[0]
        if any(vendor == other or vendor.endswith(f".{other}") for other in _OTHER_VENDORS):
            return False
        return vendor == "nvidia.com" or "gpu" in resource.lower()


def _identity(socket_path: str) -> tuple[int, ...] | None:
    """What changes when the socket is replaced. The time too, as a file system may give out an inode again."""
    try:
        status = os.stat(socket_path)
    except OSError:
        return None  # the call that follows says why
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _claimed_devices(claims: Iterable[podresources.DynamicResource]) -> tuple[DeviceRef, ...]:
    """The GPUs of a container's claims, each once although two claims may name it."""
    resources = {resource for claim in claims for resource in claim.resources}
    return tuple(
        _device_ref(podresources.parse_dra(r.driver, r.pool, r.device, share_id=r.share_id))
        for r in sorted(resources)
        if r.driver == podresources.DRA_DRIVER
    )


@lru_cache(maxsize=4096)  # the ids are the same at each reading, and few: a GPU has 48 replicas at most
def _device(device_id: str) -> DeviceRef:
    return _device_ref(podresources.parse(device_id))


def _device_ref(device: podresources.DeviceId) -> DeviceRef:
    return DeviceRef(
        raw=device.raw,
        kind=DeviceKind(device.kind.value),
        uuid=device.uuid,
        minor=device.minor,
        gpu_instance=device.gpu_instance,
        compute_instance=device.compute_instance,
        replica=device.replica,
    )
