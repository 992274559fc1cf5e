"""The directories of containers in the host's cgroup v2 tree, from the ids that the kernel gave.

Guarantees: a directory is one that stood there in this very call, and its name carries the container's id (a pod's its
uid), so that it is never that of another. What a container made below its own directory is not looked at: a limit binds
from the container's own directory down.

It never follows a path that a process reports: those are relative to whoever reads them.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from exporter.clock import Clock
from exporter.model import ContainerRef
from exporter.sources import cgroups
from exporter.sources.pod_folders import folders, homes
from exporter.sources.procfs import ProcfsSource, read_whole

_SEARCH_EVERY = 60.0  # seconds; a pod that is not where pods are may come to be later


@dataclass(frozen=True, slots=True)
class Directories:
    """Full paths. `own`: None where only the pod is known; `pod`: None where the container stands in no pod's cgroup.

    `above` is the folder of the pods' cgroups.
    """

    own: str | None
    pod: str | None
    above: str


class ContainerCgroups:
    """Looks below `root`, the host's /sys/fs/cgroup. Not for use by several threads at once."""

    def __init__(self, root: Path, *, clock: Clock) -> None:
        self._root = os.fspath(root)
        self._clock = clock
        self._homes: tuple[str, ...] = ()
        self._searched_at = float("-inf")
        self._missed: set[str] = set()  # uids that the last search did not find
        self._pods: dict[str, tuple[str, str]] = {}  # uid -> the pod's directory and the folder that holds it
        self._alone: dict[ContainerRef, Directories] = {}  # containers whose directory is not in their pod's
        self._known: dict[ContainerRef, Directories] = {}  # those of the last call that have a directory of their own

    @property
    def unified(self) -> bool:
        """Whether the root is that of a cgroup v2 tree."""
        return os.path.exists(f"{self._root}/cgroup.controllers")

    @property
    def visible(self) -> bool:
        """Whether the cgroup of any pod was seen in the last search."""
        return bool(self._homes)

    def find(self, refs: Collection[ContainerRef]) -> dict[ContainerRef, Directories]:
        """The directories of these containers. One that has none, and whose pod has none, is missing. Raises OSError.

        In the usual cycle it costs one stat for each container.
        """
        known = {ref: found for ref in refs if (found := self._known.get(ref)) is not None and _exists(found.own)}
        if len(known) < len(refs):
            self._scan({ref.pod_uid for ref in refs if ref not in known})
            for ref in refs:
                if ref not in known and (found := self._directories(ref)) is not None:
                    known[ref] = found
        self._known = {ref: found for ref, found in known.items() if found.own is not None}
        return known

    def _scan(self, uids: set[str]) -> None:
        """Look where all pods are, and search the tree anew for a uid that was never searched for."""
        now = self._clock.monotonic()
        if not self._homes or now - self._searched_at > _SEARCH_EVERY:
            self._search(now)
        try:
            self._list()
        except FileNotFoundError:  # the last pod of a QoS class has gone, and its folder with it
            self._search(now)
            self._list()
        missing = uids - self._pods.keys() - {ref.pod_uid for ref in self._alone}
        if not missing <= self._missed:
            self._search(now)
            self._list()
            self._missed |= missing - self._pods.keys()

    def _search(self, now: float) -> None:
        self._searched_at = now
        self._missed = set()
        self._homes = tuple(sorted(set(homes(self._root))))

    def _list(self) -> None:
        self._pods, self._alone = {}, {}
        for home in self._homes:
            for entry in folders(home):
                if (ref := cgroups.pod_segment(entry)) is None:
                    continue
                if ref.container_id:
                    self._alone[ref] = Directories(f"{home}/{entry}", pod=None, above=home)
                else:
                    self._pods[ref.pod_uid] = (f"{home}/{entry}", home)

    def _directories(self, ref: ContainerRef) -> Directories | None:
        if (alone := self._alone.get(ref)) is not None:
            return alone
        if ref.pod_uid not in self._pods:
            return None
        pod, above = self._pods[ref.pod_uid]
        try:
            entries = folders(pod) if ref.container_id else []
        except FileNotFoundError:  # the pod ended just now
            return None
        own = next((entry for entry in entries if cgroups.container_of(entry) == ref.container_id), None)
        return Directories(None if own is None else f"{pod}/{own}", pod, above)


def own_directory(procfs: Path, root: Path) -> str | None:
    """The directory of our own cgroup below `root`, the host's /sys/fs/cgroup. None: it cannot be told.

    In a cgroup namespace of our own our path reads `/`. Then it is `root` itself where that is mounted from inside the
    namespace too (a cgroup that is no real root has a type), and hidden where it is the host's.
    """
    try:
        text = read_whole(os.fsencode(procfs / "self" / "cgroup")).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    path = next((line[3:] for line in text.split("\n") if line.startswith("0::/")), None)
    if path is None or "/../" in f"{path}/":
        return None
    if ProcfsSource(procfs).private_cgroup_namespace() and not _exists(os.fspath(root / "cgroup.type")):
        return None
    directory = os.fspath(root) + path.rstrip("/")
    return directory if os.path.isdir(directory) else None


def _exists(path: str | None) -> bool:
    return path is not None and os.path.exists(path)
