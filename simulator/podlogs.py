"""The log directory of a node, laid out as the kubelet lays it out, links included."""

import shutil
from pathlib import Path

_LONGEST = 255 - len(".log")  # the kubelet cuts names there


class PodLogs:
    """Keeps `root`/pods and `root`/containers, where `root` stands for /var/log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._links: dict[str, Path] = {}
        (root / "pods").mkdir(parents=True, exist_ok=True)
        (root / "containers").mkdir(parents=True, exist_ok=True)

    def put(self, namespace: str, *, pod: str, uid: str, container: str, container_id: str, restart: int = 0) -> Path:
        """Start a container: its log file, and the link to it.

        Returns:
            The link.
        """
        folder = self.root / "pods" / f"{namespace}_{pod}_{uid}" / container
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / f"{restart}.log"
        log.touch()
        stem = f"{pod}_{namespace}_{container}-{container_id}"[:_LONGEST]
        link = self.root / "containers" / f"{stem}.log"
        link.unlink(missing_ok=True)  # a cut name may be taken by the container before this one
        link.symlink_to(log)
        self._links[container_id] = link
        return link

    def remove(self, container_id: str) -> None:
        """Remove a container's link and log. One that is not there is no error."""
        link = self._links.pop(container_id, None)
        if link is not None and link not in self._links.values():
            link.readlink().unlink(missing_ok=True)
            link.unlink(missing_ok=True)

    def remove_pod(self, namespace: str, *, pod: str, uid: str) -> None:
        """Remove a pod's logs and the links to them."""
        folder = self.root / "pods" / f"{namespace}_{pod}_{uid}"
        for container_id, link in list(self._links.items()):
            if link.is_symlink() and folder in link.readlink().parents:
                self.remove(container_id)
        shutil.rmtree(folder, ignore_errors=True)
