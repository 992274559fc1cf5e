"""The kubelet's PodResources API: which devices did this node's kubelet give to which container?

Stands alone: it needs grpcio and protobuf, and nothing else of this project. `Client` asks the socket,
`parse` and `parse_dra` say what a device id means, `podresources.errors` draws the tree of what can go wrong.
"""

from podresources.client import KNOWN_SOCKETS, Client, find_socket
from podresources.devices import DRA_DRIVER, DeviceId, Kind, parse, parse_dra
from podresources.errors import (
    AnswerTooLarge,
    CallFailed,
    DeadlineExceeded,
    MalformedAnswer,
    NotASocket,
    PermissionDenied,
    PodNotFound,
    PodResourcesError,
    RateLimited,
    SocketMissing,
    Unavailable,
    Unimplemented,
)
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
    "Kind",
    "MalformedAnswer",
    "Memory",
    "NotASocket",
    "PermissionDenied",
    "PodNotFound",
    "PodResources",
    "PodResourcesError",
    "RateLimited",
    "SocketMissing",
    "Unavailable",
    "Unimplemented",
    "find_socket",
    "parse",
    "parse_dra",
]
