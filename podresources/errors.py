"""Everything that can go wrong on one of the kubelet's sockets, each with one line that says what to change.

    PodResourcesError
    ├── SocketMissing      nothing at the path: kubelet not up yet, other root directory, directory not mounted
    ├── NotASocket         something else at the path, often a directory that a hostPath volume created
    ├── PermissionDenied   the path may not be searched, or the socket may not be written
    ├── Unavailable        nobody answers at the socket, or the connection broke
    ├── DeadlineExceeded   connected or not, no answer in time
    ├── RateLimited        the kubelet refused: too many calls by all clients of the node together
    ├── AnswerTooLarge     the answer is above the limit that the client set for itself
    ├── Unimplemented      the kubelet is too old for the call, or has it switched off
    ├── NotReady           the kubelet has only just started and does not know its pods yet
    ├── RequestRefused     the kubelet does not take the request as it is, such as a field mask
    ├── WatchOver          a watch has gone on for as long as it was asked to
    ├── PodNotFound        Get or GetPod for a pod that the kubelet does not have
    ├── MalformedAnswer    bytes that are no message of this API
    └── CallFailed         any other status; its code is in the text

The class says what happened, so that no caller ever reads the text. The text is for a person and always names the
socket. Two of these need telling apart although gRPC has one status for them: RateLimited is worth one more try,
AnswerTooLarge never is.
"""
# ruff: noqa: N818 - the names say what happened, as the tree reads; the base class says that they are errors.


class PodResourcesError(Exception):
    """A call to the kubelet's socket gave no value. `socket_path` is the path that was tried."""

    advice = ""

    def __init__(self, socket_path: str, detail: str) -> None:
        self.socket_path = socket_path
        self.detail = detail
        super().__init__(socket_path, detail)

    def __str__(self) -> str:
        """One line: the socket, what happened, what to change."""
        return "; ".join(" ".join(part.split()) for part in (f"{self.socket_path}: {self.detail}", self.advice) if part)


class SocketMissing(PodResourcesError):
    """There is nothing at the path."""

    advice = (
        "is the kubelet running, is the socket's directory (not the socket file) mounted, "
        "and is this its root directory"
    )


class NotASocket(PodResourcesError):
    """There is something at the path, and it is not a socket."""

    advice = "remove it, and mount the directory that holds the socket instead of the socket"


class PermissionDenied(PodResourcesError):
    """The operating system refused the path or the connection."""

    advice = "run as uid 0 (no capability is needed) or with CAP_DAC_OVERRIDE"


class Unavailable(PodResourcesError):
    """Nobody answers at the socket."""

    advice = "the kubelet is down or restarting; where this lasts, mount the socket's directory instead of the socket"


class DeadlineExceeded(PodResourcesError):
    """No answer in time."""

    advice = "the kubelet hangs or the node is overloaded"


class RateLimited(PodResourcesError):
    """The kubelet refused the call because of all clients' calls together (100 a second, 10 at once)."""

    advice = "ask less often, or find the client on this node that asks too often"


class AnswerTooLarge(PodResourcesError):
    """The answer is larger than the client accepts."""

    advice = "the limit max_message_bytes of this client has to be raised"


class Unimplemented(PodResourcesError):
    """The kubelet does not have this call."""

    advice = (
        "List needs Kubernetes 1.20, GetAllocatableResources 1.23, Get 1.34, the Pods API 1.37 (or their feature gates)"
    )


class NotReady(PodResourcesError):
    """The kubelet does not know its pods yet."""

    advice = "this ends by itself within seconds of the kubelet's start"


class RequestRefused(PodResourcesError):
    """The kubelet does not take the request as it is."""

    advice = "this kubelet has another version of the interface than this client knows"


class WatchOver(PodResourcesError):
    """A watch has gone on for as long as it was asked to."""

    advice = "begin another one"


class PodNotFound(PodResourcesError):
    """The kubelet has no pod of this name or uid."""

    advice = "the pod is not, or no longer, on this node"


class MalformedAnswer(PodResourcesError):
    """The answer is no message of this API."""

    advice = "whatever listens at this socket is no kubelet"


class CallFailed(PodResourcesError):
    """The kubelet answered with a status that says no more than its text."""

    advice = "see the kubelet's log"
