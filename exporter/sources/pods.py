"""Names of this node's pods and containers, from the links that the kubelet keeps for log collectors.

`containers/<pod>_<namespace>_<container>-<container id>.log` points to `pods/<namespace>_<pod>_<uid>/<container>/`.
The link's name carries the container id and its target the pod uid, which is all that joins the kernel's view to the
names of Kubernetes. It needs neither the API server nor the kubelet, only a read-only mount.

Guarantees: a name is given only where link and target say the same; what does not look like the kubelet's own is passed
over; two links that contradict each other name nothing. Links are read, never followed: what is behind them does not
matter.

It will not tell more than names: no labels, no phase, and nothing of a container that has not logged yet.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import LOG_LINKS, ContainerName, PodNames, Reading
from exporter.sources.podstore import undisputed

SOURCE = "pods"

# Lower-case names without underscores are what the API server admits, so the underscore always separates.
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TARGET = re.compile(
    rf".*/pods/(?P<namespace>{_LABEL})_(?P<pod>{_NAME})_(?P<uid>{_UUID}|[0-9a-fA-F]{{32}})"
    rf"/(?P<container>{_LABEL})/[0-9]+\.log"
)
_CONTAINER_ID = re.compile(rf"[0-9a-f]{{64}}|{_UUID}")

_SUFFIX = ".log"
_LONGEST = 255 - len(_SUFFIX)  # the kubelet cuts a link's name where file systems end


@dataclass(frozen=True, slots=True)
class _Link:
    """What one link says. `container_id` is empty where the kubelet had to cut it off."""

    pod_uid: str
    name: ContainerName
    container_id: str


class LogLinkNames:
    """Reads the log links below `root`, the node's /var/log."""

    name = LOG_LINKS

    def __init__(self, root: Path = Path("/var/log"), *, clock: Clock | None = None) -> None:
        self._folder = os.fspath(root / "containers")
        self._monotonic = (clock or Clock()).monotonic
        self._known: dict[str, _Link] = {}

    def read(self) -> Reading[PodNames]:
        """The names that the links give now."""
        began = self._monotonic()
        outcome = self._read()
        return Reading(SOURCE, outcome=outcome, seconds=self._monotonic() - began)

    def _read(self) -> PodNames | Failure:
        try:
            entries = os.listdir(self._folder)
        except FileNotFoundError:
            return Failure(
                Reason.MISSING,
                detail=f"{self._folder} does not exist: mount the node's /var/log read-only, or set --path.logs",
            )
        except PermissionError:
            return Failure(
                Reason.NO_PERMISSION, detail=f"{self._folder} may not be listed: run as root, or let SELinux allow it"
            )
        except OSError as error:
            return Failure(Reason.UNREADABLE, detail=f"{self._folder}: {error.strerror}")
        links = [link for entry in entries if (link := self._link(entry)) is not None]
        listed = set(entries)
        self._known = {entry: link for entry, link in self._known.items() if entry in listed}
        return PodNames(
            pods=undisputed((link.pod_uid, (link.name.namespace, link.name.pod)) for link in links),
            containers=undisputed((link.container_id, link.name) for link in links if link.container_id),
        )

    def _link(self, entry: str) -> _Link | None:
        """One link, from memory if its name holds a whole container id: such a name never gets another target."""
        if (known := self._known.get(entry)) is not None:
            return known
        if not entry.endswith(_SUFFIX):
            return None
        try:
            target = os.readlink(os.path.join(self._folder, entry))
        except OSError:  # gone since it was listed, or not a link
            return None
        link = _parse(entry, target=target)
        if link is not None and link.container_id:
            self._known[entry] = link
        return link


def _parse(entry: str, *, target: str) -> _Link | None:
    """What a link says, if its name and its target agree."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    name = ContainerName(match["namespace"], pod=match["pod"], container=match["container"])
    expected = f"{name.pod}_{name.namespace}_{name.container}-"
    stem = entry.removesuffix(_SUFFIX)
    container_id = stem.removeprefix(expected)
    if stem.startswith(expected) and _CONTAINER_ID.fullmatch(container_id):
        return _Link(match["uid"], name=name, container_id=container_id)
    if len(stem) == _LONGEST and (stem.startswith(expected) or expected.startswith(stem)):
        return _Link(match["uid"], name=name, container_id="")
    return None


class NoNames:
    """No source of names (`--pods.source=none`): containers go by pod uid and container id."""

    def read(self) -> Reading[PodNames]:
        """Nothing, successfully."""
        return Reading(SOURCE, PodNames({}, {}))
