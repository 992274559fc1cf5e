"""A kubelet's Pods API without a kubelet: the real protocol over a real unix socket, answers from a file.

The file is the one of `simulator.kubelet`, whose program serves this too (`--pods-socket PATH`). Of it this module
reads `pod_objects`, pods as Kubernetes writes them in JSON, and the faults whose method is ListPods, GetPod or
WatchPods:

    {"pod_objects": [{"metadata": {"uid": "...", "namespace": "team-a", "name": "train-0"}, "spec": {}, "status": {}}],
     "faults": [{"method": "WatchPods", "after": 3, "code": "UNAVAILABLE", "count": 1}]}

A watch tells the pods that there are, says that these were all, and then tells each change of the file. A fault meets
a watch once so many events (`after`, or none) have been sent.

It knows the fields of a pod that podresources knows, and no field mask that names others is taken.
"""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import ParseDict

from podresources.v1alpha1 import pod_pb2, pods_pb2
from podresources.v1alpha1 import pods_pb2_grpc as service
from simulator.kubelet import Fault, Kubelet, abort, happen, listen, write_json

_LOOK_EVERY = 0.02  # seconds between two looks at the file
_MASK_KEY = "x-kubernetes-fieldmask"
_NEWER_FIELDS = b"\xa2\x06\x05later"  # field 100: a text


def serve(
    socket_path: str | os.PathLike[str],
    state_path: str | os.PathLike[str],
    *,
    calls_path: str | os.PathLike[str] | None = None,
) -> Kubelet:
    """Starts a server in this process. It answers as soon as this returns."""
    answers = _Pods(Path(state_path), calls_path=None if calls_path is None else Path(calls_path))
    workers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="pods-api")
    server = grpc.server(workers)
    service.add_PodsServicer_to_server(answers, server)
    return listen(Path(socket_path).absolute(), server, workers, answers.calls)


class _Pods(service.PodsServicer):
    """The three calls, answered from the state file as it is at that moment."""

    def __init__(self, state_path: Path, *, calls_path: Path | None) -> None:
        self.calls: Counter[str] = Counter()
        self._state_path = state_path
        self._calls_path = calls_path
        self._lock = threading.Lock()
        self._faulted = ""
        self._calls_of_faults: Counter[str] = Counter()

    def ListPods(  # noqa: N802
        self, request: pods_pb2.ListPodsRequest, context: grpc.ServicerContext
    ) -> pods_pb2.ListPodsResponse:
        """All pods of the file."""
        mask = _mask(context)
        happen(self._begin("ListPods"), context)
        return pods_pb2.ListPodsResponse(pods=[_encoded(pod, mask) for pod in self._objects().values()])

    def GetPod(  # noqa: N802
        self, request: pods_pb2.GetPodRequest, context: grpc.ServicerContext
    ) -> pods_pb2.GetPodResponse:
        """One pod of the file."""
        mask = _mask(context)
        happen(self._begin("GetPod"), context)
        pod = self._objects().get(request.podUID)
        if pod is None:
            abort(context, "NOT_FOUND", f"pod with UID {request.podUID} not found")
        return pods_pb2.GetPodResponse(pod=_encoded(pod, mask))

    def WatchPods(  # noqa: N802
        self, request: pods_pb2.WatchPodsRequest, context: grpc.ServicerContext
    ) -> Iterator[pods_pb2.WatchPodsEvent]:
        """All pods, the mark, and the changes."""
        mask = _mask(context)
        fault = self._begin("WatchPods")
        ended = threading.Event()
        if not context.add_callback(ended.set):
            return
        events = self._events(mask, ended)
        if fault:
            yield from islice(events, fault.get("after", 0))
            happen(fault, context)
        else:
            yield from events

    def _events(self, mask: Sequence[str], ended: threading.Event) -> Iterator[pods_pb2.WatchPodsEvent]:
        known: Mapping[str, Any] = {}
        synced = False
        while not ended.is_set():
            present = self._objects()
            for uid in known.keys() - present.keys():
                # A kubelet promises no more of a pod that is gone.
                meta = {key: known[uid]["metadata"][key] for key in ("namespace", "name", "uid")}
                yield pods_pb2.WatchPodsEvent(type=pods_pb2.DELETED, pod=_encoded({"metadata": meta}, ()))
            for uid, pod in present.items():
                if known.get(uid) != pod:
                    kind = pods_pb2.MODIFIED if uid in known else pods_pb2.ADDED
                    yield pods_pb2.WatchPodsEvent(type=kind, pod=_encoded(pod, mask))
            if not synced:
                yield pods_pb2.WatchPodsEvent(type=pods_pb2.INITIAL_SYNC_COMPLETE)
                synced = True
            known = present
            ended.wait(_LOOK_EVERY)

    def _objects(self) -> dict[str, Any]:
        pods = json.loads(self._state_path.read_text()).get("pod_objects", [])
        return {pod["metadata"]["uid"]: pod for pod in pods}

    def _begin(self, method: str) -> Fault:
        """Counts the call, and returns the fault that it meets. Calls count anew when the faults have changed."""
        with self._lock:
            self.calls[method] += 1
            if self._calls_path is not None:
                write_json(self._calls_path, self.calls)
            faults: list[Fault] = json.loads(self._state_path.read_text()).get("faults", [])
            if json.dumps(faults) != self._faulted:
                self._faulted = json.dumps(faults)
                self._calls_of_faults.clear()
            self._calls_of_faults[method] += 1
            number = self._calls_of_faults[method]
        for fault in faults:
            first = fault.get("first", 1)
            if fault["method"] == method and first <= number < first + fault.get("count", sys.maxsize):
                return fault
        return {}


def _mask(context: grpc.ServicerContext) -> Sequence[str]:
    """The field mask that the call carries."""
    given = [value for key, value in context.invocation_metadata() if key == _MASK_KEY]
    paths = str(given[0]).split(",") if given and given[0] else []
    for path in paths:
        kind: Descriptor | None = pod_pb2.Pod.DESCRIPTOR
        for part in path.split("."):
            field = kind.fields_by_name.get(part) if kind is not None else None
            if field is None:
                abort(context, "INVALID_ARGUMENT", f"invalid field mask: field {part!r} not found")
            kind = field.message_type
    return paths


def _encoded(pod: Mapping[str, Any], mask: Sequence[str]) -> bytes:
    """A pod as the API sends it: only the fields of the mask, if there is one, and one that no reader knows."""
    shown = _masked(pod, [path.split(".") for path in mask]) if mask else pod
    return ParseDict(dict(shown), pod_pb2.Pod(), ignore_unknown_fields=True).SerializeToString() + _NEWER_FIELDS


def _masked(value: Any, paths: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401 - JSON
    """The parts of a value that the paths name. In a list, those of each entry."""
    if any(not path for path in paths):
        return value
    if isinstance(value, list):
        return [_masked(entry, paths) for entry in value]
    heads = {path[0] for path in paths}
    return {
        key: _masked(entry, [path[1:] for path in paths if path[0] == key])
        for key, entry in value.items()
        if key in heads
    }
