"""The kubelet's sockets: which devices did this kubelet give to which container, and which pods does it have?

Stands alone: it needs grpcio and protobuf, and nothing else of this project. `Client` asks the PodResources API,
`PodsClient` the Pods API, `parse` and `parse_dra` say what a device id means, `podresources.errors` draws the tree of
what can go wrong.
"""

from podresources.client import KNOWN_SOCKETS, Client, find_socket
from podresources.devices import DRA_DRIVER, DeviceId, Kind, parse, parse_dra
from podresources.errors import (
    AnswerTooLarge,
    CallFailed,
    DeadlineExceeded,
    MalformedAnswer,
    NotASocket,
    NotReady,
    PermissionDenied,
    PodNotFound,
    PodResourcesError,
    RateLimited,
    RequestRefused,
    SocketMissing,
    Unavailable,
    Unimplemented,
    WatchOver,
)
from podresources.pods import DEFAULT_PODS_SOCKET, EventKind, Owner, Pod, PodContainer, PodEvent, PodsClient
from podresources.resources import (
    Allocatable,
    ClaimResource,
    ContainerDevices,
    ContainerResources,
    DynamicResource,
    Memory,
    PodResources,
)

__all__ = [
    "DEFAULT_PODS_SOCKET",
    "DRA_DRIVER",
    "KNOWN_SOCKETS",
    "Allocatable",
    "AnswerTooLarge",
    "CallFailed",
    "ClaimResource",
    "Client",
    "ContainerDevices",
    "ContainerResources",
    "DeadlineExceeded",
    "DeviceId",
    "DynamicResource",
    "EventKind",
    "Kind",
    "MalformedAnswer",
    "Memory",
    "NotASocket",
    "NotReady",
    "Owner",
    "PermissionDenied",
    "Pod",
    "PodContainer",
    "PodEvent",
    "PodNotFound",
    "PodResources",
    "PodResourcesError",
    "PodsClient",
    "RateLimited",
    "RequestRefused",
    "SocketMissing",
    "Unavailable",
    "Unimplemented",
    "WatchOver",
    "find_socket",
    "parse",
    "parse_dra",
]
