"""What to change about each thing that a node lacks: one line for a person. Pure.

Guarantees: every subject, reason and condition has a line; none has two.
"""

from collections.abc import Mapping

from exporter.errors import Reason
from exporter.model import Condition

_RUNTIME = (
    "give the container the driver: runtimeClassName: nvidia with NVIDIA_VISIBLE_DEVICES=all and "
    "NVIDIA_DRIVER_CAPABILITIES=utility,compute; on GKE mount /home/kubernetes/bin/nvidia and set LD_LIBRARY_PATH"
)
_ROOT = "run as uid 0; no capability is needed for it"
_SYSFS = "mount the host's /sys/fs/cgroup read-only at /sys/fs/cgroup, or the host's /sys elsewhere with --path.sysfs"
_SOCKET = "mount the directory /var/lib/kubelet/pod-resources; for a kubelet with another root set --kubelet.socket"

PODS = (
    "give the service account list and watch of pods and set PODGPU_NODE_NAME from spec.nodeName, "
    "or mount /var/lib/kubelet/pods-api on Kubernetes 1.37 or newer"
)
PTRACE = "add CAP_SYS_PTRACE to the container, for the environments of MPS clients and daemons"
HOST_PID = "set hostPID: true on the pod"
DRIVER_615 = "for caps by control group: driver 615 or newer, cgroup v2, MIG off"
COMPUTE = "add compute to NVIDIA_DRIVER_CAPABILITIES, which brings nvidia-cuda-mps-control"

_BY_REASON: Mapping[tuple[str, Reason], str] = {
    ("driver", Reason.LIBRARY_NOT_FOUND): _RUNTIME,
    ("driver", Reason.DRIVER_NOT_LOADED): "load the NVIDIA driver, or keep podgpu off nodes without one (nodeSelector)",
    ("driver", Reason.LIBRARY_MISMATCH): "restart this pod, so that it gets the library of the driver that now runs",
    ("driver", Reason.NO_GPUS): "check that the node's GPUs are bound to the NVIDIA driver and not passed through",
    ("driver", Reason.NO_PERMISSION): "set NVIDIA_VISIBLE_DEVICES=all; under MIG also NVIDIA_MIG_MONITOR_DEVICES=all",
    ("driver", Reason.TIMEOUT): "look for Xid lines in the node's kernel log; if it is merely slow, raise --deadline",
    ("driver", Reason.GPU_LOST): "reset the GPU or reboot the node; its kernel log has an Xid line that says why",
    ("process ids", Reason.BLIND_PID_NAMESPACE): HOST_PID,
    ("process ids", Reason.MISSING): "mount a procfs at --path.procfs; with hostPID: true the container's own will do",
    ("kubelet", Reason.SOCKET_MISSING): _SOCKET,
    ("kubelet", Reason.NOT_A_SOCKET): _SOCKET,
    ("kubelet", Reason.NO_PERMISSION): _ROOT,
    (
        "kubelet",
        Reason.UNAVAILABLE,
    ): "mount the socket's directory, not the socket itself, and see that the kubelet runs",
    ("kubelet", Reason.TOO_LARGE): "report it: the kubelet's list is larger than 64 MiB",
    ("MPS", Reason.MISSING): COMPUTE,
    ("MPS", Reason.NO_PERMISSION): "run as the daemon's user, which is uid 0 nearly everywhere",
    ("MPS", Reason.DAEMON_NOT_RUNNING): "start the control daemon again, or remove its pipe directory",
    ("MPS", Reason.DAEMON_WEDGED): "find who holds a connection to its pipe open; restart it when it has no clients",
    ("MPS", Reason.TIMEOUT): "find who holds a connection to its pipe open; restart it when it has no clients",
    ("MPS", Reason.COMMAND_LOST): "let scripts that talk to it take podgpu's lock (docs/mps.md says how)",
    ("MPS", Reason.BUSY): "wait, or end the client that keeps the server from answering",
    ("control groups", Reason.MISSING): _SYSFS,
    ("control groups", Reason.UNREADABLE): _SYSFS,
    ("control groups", Reason.NOT_SUPPORTED): DRIVER_615,
    ("pods' control groups", Reason.MISSING): _SYSFS,
    ("pods' control groups", Reason.UNREADABLE): _SYSFS,
    ("claims", Reason.NO_PERMISSION): "give the service account list of resourceslices in resource.k8s.io",
}

_BY_SUBJECT: Mapping[str, str] = {
    "pods": PODS,
    "policy": "correct the file of --caps.policy-file; docs/policy.md has the format",
}

_BY_CONDITION: Mapping[Condition, str] = {
    Condition.BLIND_PID_NAMESPACE: HOST_PID,
    Condition.OVER_ATTRIBUTED: "nothing while it is small; processes that share buffers by CUDA IPC are counted twice",
    Condition.PROCESS_LIST_TRUNCATED: "spread the processes over more GPUs: the driver lists 950 at most",
    Condition.ROWS_REJECTED: "update the driver: it lists processes that can't be",
    Condition.MEMORY_VIEW_LIMITED: "take the GPU memory limit off podgpu's own container and pod",
    Condition.CLIENT_MEMORY_HIDDEN: "use time-slicing on this GPU, which is older than Volta, or bill by slots",
    Condition.UNKNOWN_DEVICE_ALLOCATED: "restart the device plugin if it stays: it gave out a device that is not here",
    Condition.MPS_DEVICE_ENUMERATION: "take NVML_MPS_DEVICE_ENUMERATION out of the container's environment",
    Condition.UTILIZATION_SAMPLES_REJECTED: "nothing while it is rare; else compare clocks and update the driver",
    Condition.CLIENT_ENVIRONMENT_UNREADABLE: PTRACE,
}


def remedy(subject: str, reason: Reason) -> str:
    """What to change when something of this subject fails for this reason."""
    known = _BY_REASON.get((subject, reason)) or _BY_SUBJECT.get(subject)
    return known or f"look up {reason} in docs/conditions.md"


def of_condition(condition: Condition) -> str:
    """What to change about a condition of the node."""
    return _BY_CONDITION[condition]
