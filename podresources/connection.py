"""Calls to one of the kubelet's sockets, and what their failures mean.

Each call opens a channel of its own and closes it again. A kept channel is hardly faster (a unix socket connects in
well under a millisecond, and a node is asked every few seconds), and it has states that a new one has not: a reconnect
back-off that outlasts the kubelet's restart, and a connection to a listener that has since been replaced under the same
path. So there is nothing to reconnect: the first call after the kubelet is back finds the new socket.

Not here: what is asked, and retries.
"""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

# gRPC's core logs a server's farewell to standard error. It reads this once, when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
from google.protobuf.message import DecodeError, Message

from podresources import errors

MIB = 1 << 20
_LONGEST_PATH = 107  # bytes; sun_path holds 108 with its end mark

# A kubelet that hangs leaves a stream open. It is asked for a sign of life no more often than servers put up with.
_PING_EVERY = 330_000  # milliseconds
_PING_DEADLINE = 20_000

Answer = TypeVar("Answer", bound=Message)
_Metadata = tuple[tuple[str, str], ...]


class Connection:
    """One socket. `deadline` is in seconds and holds for each call, connecting included. For several threads at once.

    Calls answer a value or raise one of `podresources.errors`, and nothing else.
    """

    def __init__(self, socket_path: str | os.PathLike[str], *, deadline: float, max_message_bytes: int) -> None:
        self.socket_path = os.path.abspath(socket_path)
        self.deadline = deadline
        self.max_message_bytes = max_message_bytes
        length = len(os.fsencode(self.socket_path))
        if length > _LONGEST_PATH:
            raise ValueError(f"{self.socket_path}: {length} bytes, and a socket's path may have {_LONGEST_PATH}")
        self._lock = threading.Lock()
        self._channels: set[grpc.Channel] = set()
        self._closed = False

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

    def _call(self, service: str, method: str, request: Message, answer: Answer, metadata: _Metadata = ()) -> Answer:
        """Fills `answer`. Decodes by itself: gRPC logs what it can't decode, with a stack trace."""
        with self._channel(method) as channel:
            ask: grpc.UnaryUnaryMultiCallable[Message, bytes] = channel.unary_unary(
                f"/{service}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=lambda raw: raw,
            )
            answer.ParseFromString(ask(request, timeout=self.deadline, metadata=metadata))
        return answer

    @contextmanager
    def _channel(self, method: str) -> Iterator[grpc.Channel]:
        """A channel for one call. What goes wrong inside becomes an error of the tree."""
        self._check_socket()
        channel = self._open()
        try:
            yield channel
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

    def _open(self) -> grpc.Channel:
        options = (
            ("grpc.max_receive_message_length", self.max_message_bytes),
            # By default the authority is the percent-encoded path, which strict HTTP/2 servers reject.
            ("grpc.default_authority", "localhost"),
            # Without this, channels of one process to one path share their connections and their back-off.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", _PING_EVERY),
            ("grpc.keepalive_timeout_ms", _PING_DEADLINE),
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
            case grpc.StatusCode.FAILED_PRECONDITION:
                kind = errors.NotReady
            case grpc.StatusCode.INVALID_ARGUMENT:
                kind = errors.RequestRefused
            case grpc.StatusCode.NOT_FOUND:
                kind = errors.PodNotFound
            case grpc.StatusCode.UNKNOWN if method == "Get" and "not found" in text:
                kind = errors.PodNotFound
            case _:
                return errors.CallFailed(self.socket_path, f"{method}: {code.name}: {text}")
        return kind(self.socket_path, f"{method}: {text}")
