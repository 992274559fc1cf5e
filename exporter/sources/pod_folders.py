"""Where the cgroup file system keeps the cgroups of pods: the folders that hold them.

The kubelet's cgroup driver and the QoS classes decide where these folders are, so they are found by what they hold and
not by name. Only the kubelet's part of the tree is walked to its end; that of other services is looked at and left.
"""

import os
from collections.abc import Iterator

from exporter.sources.cgroups import pod_uid

_DEEPEST = 6


def homes(folder: str, *, depth: int = 1, kubelets: bool = False) -> Iterator[str]:
    """The folders below `folder` that hold pods' cgroups, some more than once. Raises OSError."""
    try:
        entries = folders(folder)
    except FileNotFoundError:
        return
    for entry in entries:
        below = kubelets or "kube" in entry
        if pod_uid(entry) is not None:
            yield folder
        elif depth < _DEEPEST and (below or depth == 1):
            yield from homes(f"{folder}/{entry}", depth=depth + 1, kubelets=below)


def folders(folder: str) -> list[str]:
    """The names of the folders in `folder`. Raises OSError."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
