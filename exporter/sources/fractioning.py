"""The on-disk state of NVIDIA's gpu-fractioning: a record for each container, and the leases of MPS namespaces.

Records are files `<container id>.json` in one directory, leases one file in an MPS pipe directory. The latter is
mounted into pods, so a file is believed only if it is root's or our own, and never followed anywhere.

Guarantees: reading is bounded; a file is read again only when it has changed; a record or lease that is not of the form
that is known is an error and none of its values counts; what older versions wrote in another unit is unknown, not
wrong. It says nothing of whether a container still lives.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import FractionalContainer, FractioningReading, NamespaceLease, Reading
from exporter.sources.mps_text import MIB
from exporter.sources.regular_files import Content, read_regular, unreadable

T = TypeVar("T")

SOURCE = "fractioning"
LEASES = ".gpu-fractioning-namespaces.json"

_MOST_FILES = 4096
_LARGEST_RECORD = 64 << 10
_LARGEST_LEASES = 4 << 20
_LARGEST_REQUEST = 16 * MIB  # MiB; no GPU has as much
_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEMPORARY = ".gpu-fractioning-"  # what a record is called until it is whole
_NAME = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}", re.ASCII)
_NEVER = ("", "0001-01-01T00:00:00Z")  # a time that is not set


class _FormError(ValueError):
    """A file is not of the form that is known."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file's outcome, and what changes with the file."""

    identity: tuple[int, ...]
    outcome: Any


class FractioningSource:
    """Source "fractioning". `directory` has the records. Not for use by several threads at once."""

    def __init__(self, directory: str, *, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def read(self, pipe_directories: Collection[str]) -> Reading[FractioningReading]:
        """All records, and the leases in these pipe directories. A failure if the records can't be listed."""
        begun = self._clock.monotonic()
        outcome = self._read(pipe_directories)
        return Reading(SOURCE, outcome, self._clock.monotonic() - begun)

    def _read(self, pipe_directories: Collection[str]) -> FractioningReading | Failure:
        names = self._names()
        if isinstance(names, Failure):
            return names
        before, self._seen = self._seen, {}
        containers: dict[str, FractionalContainer] = {}
        leases: dict[str, NamespaceLease] = {}
        errors: list[Failure] = []
        if len(names) > _MOST_FILES:
            errors.append(Failure(Reason.TOO_LARGE, f"{self._directory} has more than {_MOST_FILES} entries"))
        for name in names[:_MOST_FILES]:
            path = os.path.join(self._directory, name)
            record = self._file(path, before, parse=parse_record, most=_LARGEST_RECORD)
            if isinstance(record, FractionalContainer):
                containers[name.removesuffix(".json")] = record
            elif record is not None:
                errors.append(record)
        for directory in sorted(pipe_directories):
            path = os.path.join(directory, LEASES)
            found = self._file(path, before, parse=parse_leases, most=_LARGEST_LEASES)
            if isinstance(found, Failure):
                errors.append(found)
            elif found is not None:
                leases.update({key: lease for key, lease in found.items() if not (lease.released and key in leases)})
        return FractioningReading(containers, leases, tuple(errors))

    def _names(self) -> list[str] | Failure:
        """The names of the records, in order; none where there is no gpu-fractioning."""
        try:
            with os.scandir(self._directory) as entries:
                names = [entry.name for _, entry in zip(range(_MOST_FILES + 1), entries, strict=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            return unreadable(self._directory, error)
        return sorted(name for name in names if name.endswith(".json") and not name.startswith(_TEMPORARY))

    def _file(
        self, path: str, before: Mapping[str, _Seen], *, parse: Callable[[bytes], T], most: int
    ) -> T | Failure | None:
        """What a file says; None where there is none (any more)."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return unreadable(path, error)
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        seen = before.get(path)
        if seen is None or seen.identity != identity:
            outcome = _parsed(path, parse, most)
            if isinstance(outcome, Failure) and outcome.reason is Reason.MISSING:
                return None
            seen = _Seen(identity, outcome)
        self._seen[path] = seen
        known: T | Failure = seen.outcome
        return known


def _parsed(path: str, parse: Callable[[bytes], T], most: int) -> T | Failure:
    content = read_regular(path, most=most)
    if isinstance(content, Failure):
        return content
    if not _is_trusted(content):
        return Failure(Reason.NO_PERMISSION, f"{path} belongs to user {content.status.st_uid}, and so is not believed")
    try:
        if parse is parse_record and not _ID.fullmatch(os.path.basename(path).removesuffix(".json")):
            raise _FormError("its name is not the id of a container")
        return parse(content.data)
    except (ValueError, RecursionError) as error:
        return Failure(Reason.MALFORMED, f"{path}: {error}")


def _is_trusted(content: Content) -> bool:
    return content.status.st_uid in (0, os.geteuid())


def parse_record(text: bytes) -> FractionalContainer:
    """A container's record. Raises ValueError when it is not of the known form."""
    record = _fields(json.loads(text))
    if _whole(record.get("schemaVersion"), "schemaVersion") != 1:
        raise _FormError(f"schema version {record['schemaVersion']} is not known")
    requested = record.get("requestedMemoryMiB")
    if requested is not None and not 0 < _whole(requested, "requestedMemoryMiB") <= _LARGEST_REQUEST:
        raise _FormError(f"requestedMemoryMiB is {requested}")
    uuids = [_fields(device).get("uuid", "") for device in _items(record.get("gpuDevices"), "gpuDevices")]
    return FractionalContainer(
        namespace=_text(record.get("namespace"), "namespace"),
        pod=_text(record.get("pod"), "pod"),
        pod_uid=_text(record.get("podUID"), "podUID"),
        requested=None if requested is None else requested * MIB,
        gpu_uuids=tuple(_uuid(uuid) for uuid in uuids) if all(uuids) else None,
    )


def parse_leases(text: bytes) -> Mapping[str, NamespaceLease]:
    """The leases by container id. Raises ValueError when they are not of the known form.

    A container may have a released lease beside its present one; two present ones contradict each other.
    """
    content = _fields(json.loads(text))
    if _whole(content.get("schemaVersion", 1), "schemaVersion") != 1:
        raise _FormError(f"schema version {content['schemaVersion']} is not known")
    leases: dict[str, NamespaceLease] = {}
    for item in _items(content.get("leases"), "leases"):
        fields = _fields(item)
        container = _text(fields.get("containerId"), "containerId")
        if not _ID.fullmatch(container):
            raise _FormError(f"{container!r} is not the id of a container")
        lease = _lease(fields)
        before = leases.get(container)
        if before is not None and not before.released and not lease.released:
            raise _FormError(f"container {container} has two leases")
        if before is None or before.released:
            leases[container] = lease
    return leases


def _lease(fields: Mapping[str, Any]) -> NamespaceLease:
    percent = fields.get("activeThreadPercent")
    if percent is not None and not 0 <= _whole(percent, "activeThreadPercent") <= 100:
        raise _FormError(f"activeThreadPercent is {percent}")
    released = fields.get("releasedAt")
    return NamespaceLease(
        server=_name(fields.get("server"), "server"),
        namespace=_name(fields.get("namespace"), "namespace"),
        pipe_directory=_text(fields.get("pipeDirectory", ""), "pipeDirectory"),
        ratio=percent / 100 if percent else None,
        gpu_uuids=tuple(_uuid(uuid) for uuid in _items(fields.get("gpuUuids"), "gpuUuids")),
        released=released is not None and _text(released, "releasedAt") not in _NEVER,
    )


def _fields(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _FormError("an object is something else")
    return value


def _items(value: object, what: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _FormError(f"{what} is not a list")
    return value


def _whole(value: object, what: str) -> int:
    if type(value) is not int:
        raise _FormError(f"{what} is not a whole number")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise _FormError(f"{what} is not a text")
    return value


def _name(value: object, what: str) -> str:
    text = _text(value, what)
    if not _NAME.fullmatch(text):
        raise _FormError(f"{what} is {text[:80]!r}")
    return text


def _uuid(value: object) -> str:
    text = _text(value, "uuid")
    if not _UUID.fullmatch(text):
        raise _FormError(f"{text[:80]!r} is not the UUID of a GPU")
    return text
