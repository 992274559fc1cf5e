"""Actions in words, and what each is done with: for logs, audits and labels. Pure."""

from typing import assert_never

from enforcer.model import (
    MIB,
    Action,
    BeginStart,
    CloseDoor,
    DropRecords,
    EndStart,
    EnsureNamespace,
    EvictPod,
    FreeCgroup,
    Level,
    LimitCgroup,
    OpenDoor,
    RemoveNamespace,
    SetServer,
    TerminateClient,
    WriteReceipt,
)


def mechanism(action: Action) -> str:
    """What an action is done with: the label `mechanism` of `podgpu_enforcer_actions_total`."""
    match action:
        case LimitCgroup() | FreeCgroup():
            return "cgroup"
        case EnsureNamespace() | RemoveNamespace() | OpenDoor() | CloseDoor():
            return "mps_namespace"
        case SetServer() | BeginStart() | EndStart():
            return "mps_server"
        case TerminateClient():
            return "mps_client"
        case EvictPod():
            return "eviction"
        case WriteReceipt() | DropRecords():
            return "receipt"
        case _:
            assert_never(action)


def verb(action: Action) -> str:
    """What an action does: the label `action`."""
    match action:
        case LimitCgroup() | SetServer():
            return "limit"
        case FreeCgroup():
            return "free"
        case EnsureNamespace():
            return "ensure"
        case RemoveNamespace():
            return "remove"
        case OpenDoor():
            return "open"
        case CloseDoor():
            return "close"
        case BeginStart():
            return "begin"
        case EndStart():
            return "end"
        case WriteReceipt():
            return "write"
        case DropRecords():
            return "drop"
        case TerminateClient():
            return "terminate"
        case EvictPod():
            return "evict"
        case _:
            assert_never(action)


def described(action: Action) -> str:
    """An action in one line, beginning with a verb."""
    match action:
        case LimitCgroup(level, hard):
            return f"limit {_level(level)} to {hard // MIB} MiB"
        case FreeCgroup(level, hard):
            return f"give {_level(level)} back {'no limit' if hard is None else f'{hard // MIB} MiB'}"
        case EnsureNamespace(pipe, server, name, mebibytes, percentage):
            return f"have namespace {name} on {pipe} server {server} with {mebibytes} MiB and {percentage} %"
        case RemoveNamespace(pipe, server, name):
            return f"remove namespace {name} from {pipe} server {server}"
        case OpenDoor(uid, container, directory):
            return f"open {directory} to container {container} of pod {uid}"
        case CloseDoor(uid, container):
            return f"close the pipe directory of container {container} of pod {uid}"
        case BeginStart(pipe, uid):
            return f"begin to let in pod {uid} at {pipe}"
        case SetServer(pipe, server, ordinal, mebibytes, percentage):
            return f"have server {server} of {pipe} give {mebibytes} MiB of device {ordinal}, and {percentage:g} %"
        case EndStart(pipe):
            return f"end letting in at {pipe}"
        case WriteReceipt(pod, _):
            return f"write the receipt of {pod.namespace}/{pod.name}"
        case DropRecords(uid):
            return f"forget pod {uid}"
        case TerminateClient(pipe, _, _, pid, pod):
            return f"terminate MPS client {pid} of {pod.namespace}/{pod.name} at {pipe}"
        case EvictPod(pod):
            return f"evict {pod.namespace}/{pod.name}"
        case _:
            assert_never(action)


def _level(level: Level) -> str:
    whose = f"container {level.ref.container_id[:12]} of " if level.ref.container_id else ""
    return f"{whose}pod {level.ref.pod_uid} on {level.gpu_uuid}"
