"""A kubelet's PodResources socket without a kubelet: the real protocol over a real unix socket, answers from a file.

    python -m simulator.kubelet --socket PATH --state FILE [--calls FILE] [--pods-socket PATH]

The state file is JSON, read again whenever it has changed, and described by the classes below, `State` first:

    {"pods": [{"namespace": "team-a", "name": "train-0", "containers": [
        {"name": "main", "devices": [{"resource": "nvidia.com/gpu", "ids": ["GPU-..."], "numa_nodes": [0]}]}]}],
     "allocatable": {"devices": [{"resource": "nvidia.com/gpu", "ids": ["GPU-...", "GPU-..."]}]},
     "faults": [{"method": "List", "code": "RESOURCE_EXHAUSTED", "text": "rejected by rate limit", "count": 1}]}

Like a kubelet it removes what is at its path, binds another name and renames that: each start makes a new inode.
SIGTERM ends it and removes the socket; SIGKILL leaves the socket behind, as a kubelet that was killed does. With
`--calls`, the number of calls by method is in that file, as JSON, after each call.

It will not do what a kubelet decides: it hands out nothing, and says what the file says, contradictions included.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypedDict
from urllib.parse import quote

import grpc

from podresources.v1 import podresources_pb2 as pb
from podresources.v1 import podresources_pb2_grpc as service


class Devices(TypedDict, total=False):
    """Devices of one resource. One resource may have several of these, as from a kubelet with NUMA nodes."""

    resource: str
    ids: list[str]
    numa_nodes: list[int]


class Memory(TypedDict, total=False):
    """Memory of a kind ("memory", "hugepages-2Mi"), in bytes."""

    type: str
    size: int
    numa_nodes: list[int]


class ClaimResource(TypedDict, total=False):
    """One device of a claim."""

    driver: str
    pool: str
    device: str
    share_id: str
    cdi_devices: list[str]


class Claim(TypedDict, total=False):
    """One claim of dynamic resource allocation."""

    claim_namespace: str
    claim_name: str
    resources: list[ClaimResource]


class Container(TypedDict, total=False):
    """One container of a pod."""

    name: str
    devices: list[Devices]
    cpu_ids: list[int]
    memory: list[Memory]
    dynamic_resources: list[Claim]


class Pod(TypedDict, total=False):
    """One pod, with what it holds as a whole."""

    namespace: str
    name: str
    containers: list[Container]
    cpu_ids: list[int]
    memory: list[Memory]


class Allocatable(TypedDict, total=False):
    """The answer of GetAllocatableResources."""

    devices: list[Devices]
    cpu_ids: list[int]
    memory: list[Memory]


class Fault(TypedDict, total=False):
    """What goes wrong with calls of one `method` (List, Get, GetAllocatableResources; of the Pods API WatchPods too).

    `first` is the number of the first such call, `count` how many there are (absent: all that follow). Calls count
    from 1, anew after each change of the file. Either the call ends with the status `code` and `text`, or it is
    answered after `delay` seconds, or with `hang` never. `after` is for WatchPods only (`simulator.podsapi`).
    """

    method: str
    first: int
    count: int
    code: str
    text: str
    delay: float
    hang: bool
    after: int


class State(TypedDict, total=False):
    """The state file. `padding_mib`: List grows by this many MiB of pods that hold nothing of interest.

    `newer_fields`: pods and containers carry fields 6 and 7, which no client knows yet. `pod_objects` are the pods of
    the Pods API (`simulator.podsapi`).
    """

    pods: list[Pod]
    pod_objects: list[dict[str, Any]]
    allocatable: Allocatable
    faults: list[Fault]
    padding_mib: int
    newer_fields: bool


_PAD = "x" * (1 << 16)
_NEWER_FIELDS = b"\x32\x05later\x38\x07"  # field 6: a text, field 7: a number


def write_state(path: str | os.PathLike[str], state: State) -> None:
    """Writes the state file as a whole, so that no reader ever sees half of it."""
    write_json(Path(path), state)


def write_json(path: Path, value: object) -> None:
    """Writes JSON as a whole."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(value))
    new.replace(path)


class Kubelet:
    """A running server. `calls` are the calls by method since its start; `stop` may be called twice."""

    def __init__(
        self, socket_path: Path, server: grpc.Server, workers: ThreadPoolExecutor, calls: Counter[str]
    ) -> None:
        self.socket_path = socket_path
        self.calls = calls
        self._server = server
        self._workers = workers
        self._inode = socket_path.stat().st_ino

    def stop(self) -> None:
        """Ends all calls at once and removes the socket, unless a later start has replaced it."""
        self._server.stop(grace=None).wait()
        self._workers.shutdown()
        if self.socket_path.exists() and self.socket_path.stat().st_ino == self._inode:
            self.socket_path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    socket_path: str | os.PathLike[str],
    state_path: str | os.PathLike[str],
    *,
    calls_path: str | os.PathLike[str] | None = None,
) -> Kubelet:
    """Starts a server in this process. It answers as soon as this returns."""
    answers = _Answers(Path(state_path), calls_path=None if calls_path is None else Path(calls_path))
    workers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="kubelet")
    server = grpc.server(workers)
    service.add_PodResourcesListerServicer_to_server(answers, server)
    return listen(Path(socket_path).absolute(), server, workers, answers.calls)


def listen(path: Path, server: grpc.Server, workers: ThreadPoolExecutor, calls: Counter[str]) -> Kubelet:
    """Starts a server the way a kubelet does: bound under another name, and then renamed."""
    path.unlink(missing_ok=True)
    bound = path.with_name(f"{path.name}.new")
    server.add_insecure_port(f"unix:{quote(os.fspath(bound))}")
    server.start()
    bound.rename(path)
    return Kubelet(path, server, workers, calls)


class _Answers(service.PodResourcesListerServicer):
    """The three calls, each answered from the state file as it is at that moment."""

    def __init__(self, state_path: Path, *, calls_path: Path | None) -> None:
        self.calls: Counter[str] = Counter()
        self._state_path = state_path
        self._calls_path = calls_path
        self._lock = threading.Lock()
        self._text = ""
        self._state: State = {}
        self._calls_of_text: Counter[str] = Counter()

    def List(  # noqa: N802
        self, request: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        """All pods of the file, then the padding."""
        state = self._begin("List", context)
        pods = [_pod(pod, state) for pod in state.get("pods", [])]
        pods += [_padding(number) for number in range(state.get("padding_mib", 0) * (1 << 20) // len(_PAD))]
        return pb.ListPodResourcesResponse(pod_resources=pods)

    def GetAllocatableResources(  # noqa: N802
        self, request: pb.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pb.AllocatableResourcesResponse:
        """What the file calls allocatable."""
        allocatable = self._begin("GetAllocatableResources", context).get("allocatable", {})
        return pb.AllocatableResourcesResponse(
            devices=_devices(allocatable.get("devices", [])),
            cpu_ids=allocatable.get("cpu_ids", []),
            memory=_memory(allocatable.get("memory", [])),
        )

    def Get(  # noqa: N802
        self, request: pb.GetPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.GetPodResourcesResponse:
        """One pod of the file; a kubelet has no better status than UNKNOWN for a pod that it does not have."""
        state = self._begin("Get", context)
        wanted = (request.pod_namespace, request.pod_name)
        found = [pod for pod in state.get("pods", []) if (pod["namespace"], pod["name"]) == wanted]
        if not found:
            abort(context, "UNKNOWN", f"pod {request.pod_name} in namespace {request.pod_namespace} not found")
        return pb.GetPodResourcesResponse(pod_resources=_pod(found[0], state))

    def _begin(self, method: str, context: grpc.ServicerContext) -> State:
        """Counts the call, lets the fault that it meets happen, and returns the state to answer from."""
        with self._lock:
            self.calls[method] += 1
            if self._calls_path is not None:
                write_json(self._calls_path, self.calls)
            self._reread()
            self._calls_of_text[method] += 1
            state, number = self._state, self._calls_of_text[method]
        for fault in state.get("faults", []):
            first = fault.get("first", 1)
            if fault["method"] == method and first <= number < first + fault.get("count", sys.maxsize):
                happen(fault, context)
        return state

    def _reread(self) -> None:
        # By its text: inode numbers are given out again, and times are too coarse for two changes in a row.
        text = self._state_path.read_text()
        if text != self._text:
            self._state = json.loads(text)
            self._text = text
            self._calls_of_text.clear()


def happen(fault: Fault, context: grpc.ServicerContext) -> None:
    """Waits or ends the call. A wait ends early when the client has given up or the server stops."""
    ended = threading.Event()
    if not context.add_callback(ended.set):
        return
    if fault.get("hang"):
        ended.wait()
    ended.wait(fault.get("delay", 0.0))
    if "code" in fault:
        abort(context, fault["code"], fault.get("text", ""))


def abort(context: grpc.ServicerContext, code: str, text: str) -> NoReturn:
    """Ends the call with a status."""
    context.abort(grpc.StatusCode[code], text)
    raise AssertionError("abort raises")


def _pod(pod: Pod, state: State) -> pb.PodResources:
    containers = [_container(container) for container in pod.get("containers", [])]
    message = pb.PodResources(
        namespace=pod["namespace"],
        name=pod["name"],
        containers=containers,
        cpu_ids=pod.get("cpu_ids", []),
        memory=_memory(pod.get("memory", [])),
    )
    if state.get("newer_fields"):
        # What is not known when it is read is kept and written again: the way to send a field that has no name here.
        for target in (message, *message.containers):
            target.MergeFromString(_NEWER_FIELDS)
    return message


def _container(container: Container) -> pb.ContainerResources:
    return pb.ContainerResources(
        name=container["name"],
        devices=_devices(container.get("devices", [])),
        cpu_ids=container.get("cpu_ids", []),
        memory=_memory(container.get("memory", [])),
        dynamic_resources=[_claim(claim) for claim in container.get("dynamic_resources", [])],
    )


def _devices(devices: Iterable[Devices]) -> list[pb.ContainerDevices]:
    return [
        pb.ContainerDevices(
            resource_name=d["resource"], device_ids=d["ids"], topology=_topology(d.get("numa_nodes", []))
        )
        for d in devices
    ]


def _memory(blocks: Iterable[Memory]) -> list[pb.ContainerMemory]:
    return [
        pb.ContainerMemory(memory_type=m["type"], size=m["size"], topology=_topology(m.get("numa_nodes", [])))
        for m in blocks
    ]


def _claim(claim: Claim) -> pb.DynamicResource:
    return pb.DynamicResource(
        claim_namespace=claim["claim_namespace"],
        claim_name=claim["claim_name"],
        claim_resources=[
            pb.ClaimResource(
                driver_name=r["driver"],
                pool_name=r["pool"],
                device_name=r["device"],
                share_id=r.get("share_id"),
                cdi_devices=[pb.CDIDevice(name=name) for name in r.get("cdi_devices", [])],
            )
            for r in claim.get("resources", [])
        ],
    )


def _topology(numa_nodes: Iterable[int]) -> pb.TopologyInfo | None:
    nodes = [pb.NUMANode(ID=node) for node in numa_nodes]
    return pb.TopologyInfo(nodes=nodes) if nodes else None


def _padding(number: int) -> pb.PodResources:
    devices = pb.ContainerDevices(resource_name="example.com/padding", device_ids=[_PAD])
    container = pb.ContainerResources(name="main", devices=[devices])
    return pb.PodResources(namespace="padding", name=f"padding-{number}", containers=[container])


def main(arguments: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m simulator.kubelet", description=__doc__.splitlines()[0])
    parser.add_argument("--socket", required=True, help="where to listen")
    parser.add_argument("--state", required=True, help="the JSON file to answer from")
    parser.add_argument("--calls", help="where to write the number of calls by method")
    parser.add_argument("--pods-socket", help="where to serve the Pods API too")
    options = parser.parse_args(arguments)
    # Blocked before the first thread starts, because threads inherit the mask; sigwait then takes the signal.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with ExitStack() as running:
        if options.pods_socket:
            from simulator import podsapi  # which builds on this module

            calls = f"{options.calls}.pods" if options.calls else None
            running.enter_context(podsapi.serve(options.pods_socket, options.state, calls_path=calls))
        running.enter_context(serve(options.socket, options.state, calls_path=options.calls))
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
