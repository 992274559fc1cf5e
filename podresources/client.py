"""A client of the kubelet's PodResources socket.

Guarantees: a call ends within its deadline; it answers a value or raises one of `podresources.errors`, nothing else;
it writes nothing to standard error; a client may be used by several threads at once.

Not here: retries, and caching of answers. Whether a refused call is worth another try depends on what the caller still
knows.
"""

import os
from collections.abc import Sequence

from podresources import errors
from podresources.connection import MIB, Connection
from podresources.resources import Allocatable, PodResources, allocatable_from, pod_from
from podresources.v1 import podresources_pb2 as pb

# Where kubelets are known to keep the socket: the upstream default, k0s, microk8s.
KNOWN_SOCKETS = (
    "/var/lib/kubelet/pod-resources/kubelet.sock",
    "/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
    "/var/snap/microk8s/common/var/lib/kubelet/pod-resources/kubelet.sock",
)

_SERVICE = "v1.PodResourcesLister"


def find_socket(candidates: Sequence[str] = KNOWN_SOCKETS) -> str:
    """The first of `candidates` that exists. Raises `SocketMissing`, naming them all, where none does."""
    for path in candidates:
        if os.path.exists(path):
            return path
    raise errors.SocketMissing(", ".join(candidates), "none of these exists")


class Client(Connection):
    """Asks one socket. `deadline` is in seconds and holds for each call, connecting included.

    The size limit is far above gRPC's own 4 MiB, which busy nodes exceed.
    """

    def __init__(
        self, socket_path: str | os.PathLike[str], *, deadline: float = 10.0, max_message_bytes: int = 64 * MIB
    ) -> None:
        super().__init__(socket_path, deadline=deadline, max_message_bytes=max_message_bytes)
        self._known: dict[bytes, PodResources] = {}

    def list(self) -> tuple[PodResources, ...]:
        """All pods of the node (List). Before Kubernetes 1.34 finished pods are still among them."""
        answer = self._call(_SERVICE, "List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse())
        # Nearly all pods are the same as in the list before; those need no new values.
        before = self._known
        contents = [(pod.SerializeToString(), pod) for pod in answer.pod_resources]
        self._known = {content: before.get(content) or pod_from(pod) for content, pod in contents}
        return tuple(sorted(self._known.values(), key=lambda pod: (pod.namespace, pod.name)))

    def get(self, namespace: str, pod: str) -> PodResources:
        """One pod (Get). Raises `PodNotFound` where the kubelet has none of this name."""
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=pod)
        return pod_from(self._call(_SERVICE, "Get", request, pb.GetPodResourcesResponse()).pod_resources)

    def allocatable(self) -> Allocatable:
        """What the kubelet can hand out (GetAllocatableResources)."""
        request = pb.AllocatableResourcesRequest()
        return allocatable_from(
            self._call(_SERVICE, "GetAllocatableResources", request, pb.AllocatableResourcesResponse())
        )
