"""What can go wrong, as values from one closed list.

A source never raises past its edge: it answers with a value or with a `Failure`. The reason becomes the label of
`podgpu_source_errors_total`, so the list is closed and short; the detail is one line for a person and says what to
change.
"""

from dataclasses import dataclass
from enum import StrEnum, unique


@unique
class Reason(StrEnum):
    """Every reason that podgpu gives for a missing number. A new one is a change of the metric contract."""

    # Any source
    TIMEOUT = "timeout"
    NO_PERMISSION = "no_permission"
    NOT_SUPPORTED = "not_supported"
    INTERNAL = "internal"  # an exception in podgpu itself, contained where it happened

    # The driver library
    LIBRARY_NOT_FOUND = "library_not_found"
    LIBRARY_MISMATCH = "library_mismatch"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    DRIVER_ERROR = "driver_error"
    NO_GPUS = "no_gpus"
    GPU_LOST = "gpu_lost"
    NOT_FOUND = "not_found"  # the driver knows nothing of what was asked for
    TRANSIENT = "transient"
    ROWS_REJECTED = "rows_rejected"
    INCONSISTENT = "inconsistent"  # numbers that contradict each other, such as used above total

    # The kubelet
    SOCKET_MISSING = "socket_missing"
    NOT_A_SOCKET = "not_a_socket"
    UNAVAILABLE = "unavailable"
    RATE_LIMITED = "rate_limited"
    TOO_LARGE = "too_large"
    UNIMPLEMENTED = "unimplemented"
    MALFORMED = "malformed"

    # Processes
    BLIND_PID_NAMESPACE = "blind_pid_namespace"
    EXITED = "exited"
    PID_REUSED = "pid_reused"
    CGROUP_UNREADABLE = "cgroup_unreadable"
    CGROUP_AMBIGUOUS = "cgroup_ambiguous"
    CGROUP_RELATIVE = "cgroup_relative"  # outside the view of our own cgroup namespace, pod not shown

    # MPS control daemons
    DAEMON_NOT_RUNNING = "daemon_not_running"
    DAEMON_WEDGED = "daemon_wedged"  # it took the command and did not answer
    COMMAND_LOST = "command_lost"  # refused or swallowed, again and again, as happens when calls overlap
    UNKNOWN_COMMAND = "unknown_command"
    BUSY = "busy"  # a server that does not answer its daemon

    # Files
    MISSING = "missing"
    UNREADABLE = "unreadable"
    UNWRITABLE = "unwritable"  # the disk is full, or the file system read-only

    FOREIGN = "foreign"  # somebody else's where only ours should be: left alone, and not believed


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be read. `detail` is one line for a person, and says what to change where we know."""

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        """The reason, and the detail where there is one."""
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)
