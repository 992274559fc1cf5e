"""A client of the kubelet's PodResources socket.

Each call opens a channel of its own and closes it again. A kept channel is hardly faster (a unix socket connects in
well under a millisecond, and a node is asked every few seconds), and it has states that a new one has not: a reconnect
back-off that outlasts the kubelet's restart, and a connection to a listener that has since been replaced under the same
path. So there is nothing to reconnect: the first call after the kubelet is back finds the new socket.

Guarantees: a call ends within its deadline; it answers a value or raises one of `podresources.errors`, nothing else;
it writes nothing to standard error; a client may be used by several threads at once.

Not here: retries, and caching of answers. Whether a refused call is worth another try depends on what the caller still
knows.
"""

import os
import stat
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

# gRPC's core logs a server's farewell to standard error. It reads this once, when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import DecodeError, Message

from podresources import errors
from podresources.resources import Allocatable, PodResources, allocatable_from, pod_from
from podresources.v1 import podresources_pb2 as pb

# Where kubelets are known to keep the socket: the upstream default, k0s, microk8s.
KNOWN_SOCKETS = (
    "/var/lib/kubelet/pod-resources/kubelet.sock",
    "/var/lib/k0s/kubelet/pod-resources/kubelet.sock",
    "/var/snap/microk8s/common/var/lib/kubelet/pod-resources/kubelet.sock",
)

MIB = 1 << 20
_LONGEST_PATH = 107  # bytes; sun_path holds 108 with its end mark

_Answer = TypeVar("_Answer", bound=Message)


def find_socket(candidates: Sequence[str] = KNOWN_SOCKETS) -> str:
    """The first of `candidates` that exists. Raises `SocketMissing`, naming them all, where none does."""
    for path in candidates:
        if os.path.exists(path):
            return path
    raise errors.SocketMissing(", ".join(candidates), "none of these exists")


class Client:
    """Asks one socket. `deadline` is in seconds and holds for each call, connecting included.

    The size limit is far above gRPC's own 4 MiB, which busy nodes exceed.
    """

    def __init__(
        self, socket_path: str | os.PathLike[str], *, deadline: float = 10.0, max_message_bytes: int = 64 * MIB
    ) -> None:
        self.socket_path = os.path.abspath(socket_path)
        self.deadline = deadline
        self.max_message_bytes = max_message_bytes
        length = len(os.fsencode(self.socket_path))
        if length > _LONGEST_PATH:
            raise ValueError(f"{self.socket_path}: {length} bytes, and a socket's path may have {_LONGEST_PATH}")
        self._lock = threading.Lock()
        self._channels: set[grpc.Channel] = set()
        self._closed = False
        self._known: dict[bytes, PodResources] = {}

    def list(self) -> tuple[PodResources, ...]:
        """All pods of the node (List). Before Kubernetes 1.34 finished pods are still among them."""
        answer = self._call("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse())
        # Nearly all pods are the same as in the list before; those need no new values.
        before = self._known
        contents = [(pod.SerializeToString(), pod) for pod in answer.pod_resources]
        self._known = {content: before.get(content) or pod_from(pod) for content, pod in contents}
        return tuple(sorted(self._known.values(), key=lambda pod: (pod.namespace, pod.name)))

    def get(self, namespace: str, pod: str) -> PodResources:
        """One pod (Get). Raises `PodNotFound` where the kubelet has none of this name."""
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=pod)
        return pod_from(self._call("Get", request, pb.GetPodResourcesResponse()).pod_resources)

    def allocatable(self) -> Allocatable:
        """What the kubelet can hand out (GetAllocatableResources)."""
        request = pb.AllocatableResourcesRequest()
        return allocatable_from(self._call("GetAllocatableResources", request, pb.AllocatableResourcesResponse()))

    def close(self) -> None:
        """Ends the calls that other threads still wait for, and refuses new ones. May be called twice."""
        with self._lock:
            self._closed = True
            channels = tuple(self._channels)
        for channel in channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: str, request: Message, answer: _Answer) -> _Answer:
        """Fills `answer`. Decodes by itself: gRPC logs what it can't decode, with a stack trace."""
        self._check_socket()
        channel = self._open()
        try:
            ask: grpc.UnaryUnaryMultiCallable[Message, bytes] = channel.unary_unary(
                f"/v1.PodResourcesLister/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=lambda raw: raw,
            )
            answer.ParseFromString(ask(request, timeout=self.deadline))
        except grpc.RpcError as error:
            raise self._translated(method, error) from error
        except ValueError as error:  # `close` was faster: gRPC begins no call on a closed channel
            raise errors.Unavailable(self.socket_path, "this client is closed") from error
        except DecodeError as error:
            raise errors.MalformedAnswer(self.socket_path, f"{method}: {error}") from error
        finally:
            with self._lock:
                self._channels.discard(channel)
            channel.close()
        return answer

    def _open(self) -> grpc.Channel:
        options = (
            ("grpc.max_receive_message_length", self.max_message_bytes),
            # By default the authority is the percent-encoded path, which strict HTTP/2 servers reject.
            ("grpc.default_authority", "localhost"),
            # Without this, channels of one process to one path share their connections and their back-off.
            ("grpc.use_local_subchannel_pool", 1),
        )
        with self._lock:
            if self._closed:
                raise errors.Unavailable(self.socket_path, "this client is closed")
            channel = grpc.insecure_channel(f"unix:{quote(self.socket_path)}", options=options)
            self._channels.add(channel)
        return channel

    def _check_socket(self) -> None:
        """Raises what gRPC has no status for: each of these would be an UNAVAILABLE that differs by its text only."""
        try:
            mode = os.stat(self.socket_path).st_mode
        except PermissionError as error:
            raise errors.PermissionDenied(self.socket_path, "the path may not be searched") from error
        except OSError as error:
            raise errors.SocketMissing(self.socket_path, error.strerror or str(error)) from error
        if stat.S_ISDIR(mode):
            raise errors.NotASocket(self.socket_path, "path is a directory")
        if not stat.S_ISSOCK(mode):
            raise errors.NotASocket(self.socket_path, "path is not a socket")

    def _translated(self, method: str, error: grpc.RpcError) -> errors.PodResourcesError:
        """The error class for a gRPC status; where one status means two things, its text decides."""
        code, text = error.code(), error.details() or ""
        kind: type[errors.PodResourcesError]
        match code:
            case grpc.StatusCode.UNAVAILABLE:
                kind = errors.PermissionDenied if text.endswith("Permission denied") else errors.Unavailable
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                kind = errors.AnswerTooLarge if "larger than max" in text else errors.RateLimited
            case grpc.StatusCode.CANCELLED:
                kind = errors.Unavailable
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return errors.DeadlineExceeded(self.socket_path, f"{method}: no answer in {self.deadline:g} s")
            case grpc.StatusCode.UNIMPLEMENTED:
                kind = errors.Unimplemented
            case grpc.StatusCode.UNKNOWN if method == "Get" and "not found" in text:
                kind = errors.PodNotFound
            case _:
                return errors.CallFailed(self.socket_path, f"{method}: {code.name}: {text}")
        return kind(self.socket_path, f"{method}: {text}")
