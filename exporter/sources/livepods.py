"""Which pods have a cgroup on this node, and so may still have processes.

Kubelets before 1.34 go on listing finished pods with the devices that they had, while others already hold those. The
kubelet removes a pod's cgroup when the pod is over, so a pod that has none holds nothing any more.

Guarantees: a pod is missing from the answer only if the cgroups of other pods were found and its own was not. Where no
pod's cgroup can be seen at all (a container that sees only its own part of the tree), the answer is a failure, and
nobody is taken for finished.
"""

import os
from pathlib import Path

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import LivePods, Reading
from exporter.sources.cgroups import pod_uid
from exporter.sources.pod_folders import folders, homes

SOURCE = "cgroups"
_SEARCH_EVERY = 60.0  # seconds; where pods are kept changes when the first pod of a QoS class comes
# On cgroup v1 each controller has a tree of its own; the kubelet keeps pods in all of these.
_V1_CONTROLLERS = ("systemd", "memory", "pids", "cpu")


class LivePodsSource:
    """Looks at the cgroup file system below `root`, the host's /sys. Not for use by several threads at once."""

    def __init__(self, root: Path, *, clock: Clock) -> None:
        self._root = os.fspath(root / "fs" / "cgroup")
        self._clock = clock
        self._homes: tuple[str, ...] = ()  # the folders that hold pods' cgroups
        self._searched_at = float("-inf")

    def read(self) -> Reading[LivePods]:
        """The uids of all pods that have a cgroup."""
        begun = self._clock.monotonic()
        outcome = self._read(begun)
        return Reading(SOURCE, outcome, self._clock.monotonic() - begun)

    def _read(self, now: float) -> LivePods | Failure:
        try:
            if not self._homes or now - self._searched_at > _SEARCH_EVERY:
                self._search(now)
            try:
                uids = self._uids()
            except FileNotFoundError:  # the last pod of a QoS class has gone, and its folder with it
                self._search(now)
                uids = self._uids()
        except OSError as error:
            return Failure(Reason.UNREADABLE, f"{error.filename}: {error.strerror}; mount the host's /sys read-only")
        if not uids:
            return Failure(
                Reason.MISSING,
                f"no pod's cgroup is visible below {self._root}: mount the host's /sys and name it with --path.sysfs; "
                "until then finished pods that the kubelet still lists count as holders of their devices",
            )
        return LivePods(uids)

    def _uids(self) -> frozenset[str]:
        return frozenset(uid for home in self._homes for entry in folders(home) if (uid := pod_uid(entry)) is not None)

    def _search(self, now: float) -> None:
        """Find the folders that hold pods' cgroups: in cgroup v2's one tree, else in the first controller with any."""
        self._searched_at = now
        if os.path.exists(f"{self._root}/cgroup.controllers"):
            self._homes = tuple(sorted(set(homes(self._root))))
            return
        for controller in _V1_CONTROLLERS:
            self._homes = tuple(sorted(set(homes(f"{self._root}/{controller}"))))
            if self._homes:
                return
