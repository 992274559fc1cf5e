"""What the enforcer has set, on disk, so that it can be undone after a restart and nothing else ever is.

One file for each pod (its control groups' limits, its doors) and one for each pipe directory on whose server a pod is
being let in. A record is written before its deed: a crash in between leaves a record of something that was not done,
which is undone at no cost; the other way round something would be left that nobody knows of.

Guarantees: what can't be read, or is not ours, is a failure and never "nothing recorded"; names that pods' authors
chose never leave the folder; a record of an earlier boot, of which nothing is left, is dropped.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from enforcer.mechanisms.folders import Folder
from enforcer.mechanisms.names import is_container, is_pod_uid
from enforcer.model import Level, Records, Start
from exporter.errors import Failure, Reason
from exporter.model import ContainerRef

T = TypeVar("T")

_VERSION = 1
_MOST = 256 << 10  # bytes of a record
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod's. `limits` has what a control group was limited to before (None: nothing), by container id and GPU."""

    limits: Mapping[tuple[str, str], int | None] = field(default_factory=lambda: MappingProxyType({}))
    doors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # pipe directory by container


class RecordStore:
    """The records below a folder, of the boot with id `boot`. For one thread at a time."""

    def __init__(self, path: str, *, boot: str) -> None:
        self._pods = Folder(f"{path}/pods")
        self._starts = Folder(f"{path}/starts")
        self._boot = boot

    def read(self) -> Records | Failure:
        """Everything but the receipts, which are kept where pods can see them."""
        pods = self._all(self._pods, self._pod)
        starts = self._all(self._starts, self._start)
        if isinstance(pods, Failure):
            return pods
        if isinstance(starts, Failure):
            return starts
        limits = {
            Level(ContainerRef(uid, container_id), gpu): before
            for uid, pod in pods.items()
            for (container_id, gpu), before in pod.limits.items()
        }
        doors = {(uid, container): path for uid, pod in pods.items() for container, path in pod.doors.items()}
        return Records(
            MappingProxyType(limits), MappingProxyType(doors), starts=MappingProxyType(dict(starts.values()))
        )

    def note_limit(self, level: Level, before: int | None) -> Failure | None:
        """A control group is about to be limited. What it had `before` is kept as it was first noted."""
        key = (level.ref.container_id, level.gpu_uuid)
        return self._change(level.ref.pod_uid, lambda pod: replace(pod, limits={key: before, **pod.limits}))

    def forget_limit(self, level: Level) -> Failure | None:
        """A control group has back what it had."""
        key = (level.ref.container_id, level.gpu_uuid)
        return self._change(level.ref.pod_uid, lambda pod: replace(pod, limits=_without(pod.limits, key)))

    def note_door(self, uid: str, container: str, pipe_directory: str) -> Failure | None:
        """A door is about to be opened."""
        if not is_container(container):
            return Failure(Reason.MALFORMED, f"not a container's name: {container!r}")
        return self._change(uid, lambda pod: replace(pod, doors={**pod.doors, container: pipe_directory}))

    def forget_door(self, uid: str, container: str) -> Failure | None:
        """A door is closed."""
        return self._change(uid, lambda pod: replace(pod, doors=_without(pod.doors, container)))

    def door(self, uid: str, container: str) -> str | Failure | None:
        """The pipe directory to which a door was opened; None: there is no such door."""
        pod = self._checked(uid)
        return pod if isinstance(pod, Failure) else pod.doors.get(container)

    def begin_start(self, pipe_directory: str, start: Start) -> Failure | None:
        """A pod is about to be let in by a server."""
        if not is_pod_uid(start.pod_uid):
            return Failure(Reason.MALFORMED, f"not a pod's uid: {start.pod_uid!r}")
        said = {
            "pipe_directory": pipe_directory,
            "pod_uid": start.pod_uid,
            "began": start.began,
            "usual": {str(ordinal): mebibytes for ordinal, mebibytes in start.usual.items()},
            "percentage": start.percentage,
        }
        return self._starts.write(_start_name(pipe_directory), self._bytes(said))

    def end_start(self, pipe_directory: str) -> Failure | None:
        """Nobody is being let in any more."""
        return self._starts.remove(_start_name(pipe_directory))

    def drop(self, uid: str) -> Failure | None:
        """Forget a pod."""
        return self._pods.remove(uid + _SUFFIX) if is_pod_uid(uid) else _no_uid(uid)

    def _change(self, uid: str, change: Callable[[PodRecord], PodRecord]) -> Failure | None:
        pod = self._checked(uid)
        if isinstance(pod, Failure):
            return pod
        changed = change(pod)
        if changed == pod:
            return None
        if changed == PodRecord():
            return self.drop(uid)
        limits = [
            {"container_id": container_id, "gpu": gpu, "before": before}
            for (container_id, gpu), before in changed.limits.items()
        ]
        said = {"uid": uid, "limits": limits, "doors": dict(changed.doors)}
        return self._pods.write(uid + _SUFFIX, self._bytes(said))

    def _checked(self, uid: str) -> PodRecord | Failure:
        if not is_pod_uid(uid):
            return _no_uid(uid)
        found = self._one(self._pods, uid + _SUFFIX, self._pod)
        return PodRecord() if found is None else found

    def _bytes(self, said: Mapping[str, object]) -> bytes:
        return json.dumps({"version": _VERSION, "boot": self._boot, **said}, indent=1).encode() + b"\n"

    def _all(self, folder: Folder, parse: Callable[[str, Any], T]) -> Mapping[str, T] | Failure:
        """Every record of a folder, by the stem of its file's name."""
        names = folder.names()
        if isinstance(names, Failure):
            return names
        found: dict[str, T] = {}
        for name in names:
            record = self._one(folder, name, parse)
            if isinstance(record, Failure):
                return record
            if record is not None:
                found[name.removesuffix(_SUFFIX)] = record
        return found

    def _one(self, folder: Folder, name: str, parse: Callable[[str, Any], T]) -> T | Failure | None:
        """One record; None where there is none of this boot."""
        try:
            content = folder.read(name, most=_MOST)
            if not isinstance(content, bytes):
                return content
            said = json.loads(content)
            if _boot(said) != self._boot:
                return folder.remove(name)
            return parse(name, said)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return Failure(
                Reason.MALFORMED,
                f"{folder.path}/{name} is no record of ours ({type(error).__name__}: {error}): nothing is undone until "
                "it is removed",
            )

    def _pod(self, name: str, said: Any) -> PodRecord:  # noqa: ANN401 - what a file holds
        uid = said["uid"]
        if not is_pod_uid(uid) or name != uid + _SUFFIX:
            raise ValueError("the name is not that of its pod")
        return PodRecord(dict(_limits(said["limits"])), dict(_doors(said["doors"])))

    def _start(self, name: str, said: Any) -> tuple[str, Start]:  # noqa: ANN401 - what a file holds
        pipe_directory = _of(str, said["pipe_directory"])
        if name != _start_name(pipe_directory) or not is_pod_uid(said["pod_uid"]):
            raise ValueError("the name is not that of its pipe directory")
        usual = {int(ordinal): _amount(mebibytes) for ordinal, mebibytes in said["usual"].items()}
        return pipe_directory, Start(said["pod_uid"], float(said["began"]), usual, float(said["percentage"]))


def _boot(said: Any) -> str:  # noqa: ANN401 - what a file holds
    if said["version"] != _VERSION:
        raise ValueError(f"version {said['version']!r}")
    return _of(str, said["boot"])


def _limits(said: object) -> Iterator[tuple[tuple[str, str], int | None]]:
    for limit in _of(list, said):
        before = limit["before"]
        key = (_of(str, limit["container_id"]), _of(str, limit["gpu"]))
        yield key, None if before is None else _amount(before)


def _doors(said: object) -> Iterator[tuple[str, str]]:
    for container, path in _of(dict, said).items():
        if not is_container(container):
            raise ValueError(f"not a container's name: {container!r}")
        yield container, _of(str, path)


def _of(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"takes a {kind.__name__}, not {value!r}")
    return value


def _amount(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"not an amount of memory: {value!r}")
    return value


def _without(mapping: Mapping[Any, T], key: object) -> dict[Any, T]:
    return {other: value for other, value in mapping.items() if other != key}


def _start_name(pipe_directory: str) -> str:
    return hashlib.sha256(pipe_directory.encode("utf-8", "surrogateescape")).hexdigest()[:32] + _SUFFIX


def _no_uid(text: str) -> Failure:
    return Failure(Reason.MALFORMED, f"not a pod's uid: {text!r}")
