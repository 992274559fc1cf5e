"""What the text of /proc/<pid>/cgroup says about where a process lives.

The kernel's word on a process is a path, and every combination of cgroup version, cgroup driver, container runtime and
nesting spells that path differently. This module reads all of them by structure, not by literal prefixes, and answers
with a `Place`.

Guarantees: never raises, whatever the text; the order of lines does not matter; names that a workload gives to cgroups
below its own container never change the answer, because the walk goes from the root and stops at the first container;
time is linear in the length of the text.

It will not guess. A path in no pod is the host's, a path that our own cgroup namespace hides is unresolved, and
containers of other engines (plain Docker, podman) are not Kubernetes containers. Whether a pod or container exists is
for others to check: an id that Kubernetes does not know is a sandbox, or a container that was just replaced.
"""

import re

from exporter.errors import Reason
from exporter.model import ContainerRef, Place

_UUID = r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}"

# `pod` counts at the start of a segment or after a dash only, so that libpod and podruntime are not pods. Slices carry
# the uid with underscores, cgroupfs with dashes, and both have been seen the other way round. 32 hex digits are static
# pods. The tail `:runtime:id` is what a containerd without SystemdCgroup makes under a kubelet that uses systemd.
_POD = re.compile(rf"(?:^|-)pod({_UUID}|[0-9a-fA-F]{{32}})(?:\.slice(?::[^:]+:([^:]+))?)?\Z")

_BARE_ID = re.compile(rf"[0-9a-f]{{64}}|{_UUID}")
_PREFIXED_ID = re.compile(r"[0-9a-f]{12,64}")  # 12 digits: the short ids of Docker
_RUNTIME = re.compile(r"[a-z][a-z0-9_-]*")

# Runtimes that put a container which has no cgroup parent below themselves; the id is all that is known then.
_RUNTIME_SERVICES = frozenset({"containerd.service", "crio.service"})

_HOST = Place()
_RELATIVE = Place(reason=Reason.CGROUP_RELATIVE)
_AMBIGUOUS = Place(reason=Reason.CGROUP_AMBIGUOUS)
_UNREADABLE = Place(reason=Reason.CGROUP_UNREADABLE)


def parse(text: bytes | str, *, private_cgroupns: bool = False) -> Place:
    """Place the process whose /proc/<pid>/cgroup reads `text`.

    Args:
        text: The whole file.
        private_cgroupns: The reader sits at the root of a cgroup namespace of its own, as containers on cgroup v2 do.
            Then paths are relative to the reader, and those that stay inside the reader's cgroup name no pod.

    Returns:
        A container, the host, or unresolved: `CGROUP_UNREADABLE` without a usable line, `CGROUP_AMBIGUOUS` when lines
        name different pods, `CGROUP_RELATIVE` when the reader's own cgroup namespace hides the pod. A container of the
        reader's own pod shows its id only; its pod uid is empty then.
    """
    decoded = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
    # Not splitlines(): a cgroup's name may hold every character that Python takes for a line end, except this one.
    paths = {path for line in decoded.split("\n") if (path := _path(line)) is not None}
    if not paths:
        return _UNREADABLE
    places = {_place(path, private_cgroupns=private_cgroupns) for path in paths}
    refs = {place.container for place in places if place.container is not None}
    pods = {ref.pod_uid for ref in refs if ref.pod_uid}
    if len(pods) > 1:
        return _AMBIGUOUS
    if pods:
        ids = {ref.container_id for ref in refs if ref.pod_uid and ref.container_id}
        return Place(container=ContainerRef(pods.pop(), container_id=ids.pop() if len(ids) == 1 else ""))
    if len(refs) > 1:
        return _AMBIGUOUS
    if refs:
        return Place(container=refs.pop())
    return _RELATIVE if _RELATIVE in places else _HOST


def pod_uid(segment: str) -> str | None:
    """The uid of the pod whose cgroup is called `segment`, or None."""
    match = _POD.search(segment)
    return None if match is None else match[1].replace("_", "-")


def pod_segment(segment: str) -> ContainerRef | None:
    """The pod whose cgroup is called `segment`, or None. With a container id where it is that container's own."""
    match = _POD.search(segment)
    return (
        None if match is None else ContainerRef(match[1].replace("_", "-"), container_id=container_of(match[2] or ""))
    )


def container_of(segment: str) -> str:
    """The id of the container whose cgroup is called `segment` and stands directly below a pod's, or an empty text."""
    stem = segment.removesuffix(".scope")
    if _BARE_ID.fullmatch(stem):
        return stem
    runtime, _, container_id = stem.rpartition("-")
    if runtime.endswith("conmon") or not _RUNTIME.fullmatch(runtime) or not _PREFIXED_ID.fullmatch(container_id):
        return ""  # conmon is CRI-O's monitor of a container, not a container
    return container_id


def _path(line: str) -> str | None:
    """The path of one line `hierarchy:controllers:path`; the path may hold colons too."""
    fields = line.split(":", 2)
    if len(fields) != 3 or not fields[2].startswith("/"):
        return None
    return fields[2].removesuffix(" (deleted)")


def _place(path: str, *, private_cgroupns: bool) -> Place:
    """Place one path."""
    segments = path.split("/")[1:]
    ups = 0
    while ups < len(segments) and segments[ups] == "..":
        ups += 1
    if ups == 0 and private_cgroupns:
        return _RELATIVE  # our own container, or something that was made below it
    rest = segments[ups:]
    if ups == 1 and rest and (container_id := container_of(rest[0])):
        return Place(container=ContainerRef("", container_id=container_id))
    for index, segment in enumerate(rest):
        following = rest[index + 1] if index + 1 < len(rest) else ""
        if (pod := _POD.search(segment)) is not None:
            uid = pod[1].replace("_", "-")
            return Place(container=ContainerRef(uid, container_id=container_of(pod[2] or following)))
        if segment in _RUNTIME_SERVICES and _BARE_ID.fullmatch(following):
            return Place(container=ContainerRef("", container_id=following))
    return _RELATIVE if ups == 1 else _HOST
