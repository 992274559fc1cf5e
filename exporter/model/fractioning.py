"""What NVIDIA's gpu-fractioning keeps on disk of the containers that it gave a part of a GPU.

Containers are named by their id. A record may be older than the agent that wrote it: whether the container lives is for
others to check.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.errors import Failure


@dataclass(frozen=True, slots=True)
class FractionalContainer:
    """A container's record. `requested` is in bytes on each device; None: the record does not tell.

    `gpu_uuids` is None where it names a device without a UUID.
    """

    namespace: str
    pod: str
    pod_uid: str
    requested: int | None
    gpu_uuids: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class NamespaceLease:
    """The MPS namespace that a container was given. `ratio` is its share; None: none was set."""

    server: str
    namespace: str
    pipe_directory: str  # as the daemon sees it
    ratio: float | None
    gpu_uuids: tuple[str, ...]
    released: bool


@dataclass(frozen=True, slots=True)
class FractioningReading:
    """By container id. Both are empty on a node without gpu-fractioning; `errors` are about single files."""

    containers: Mapping[str, FractionalContainer]
    leases: Mapping[str, NamespaceLease]
    errors: tuple[Failure, ...] = ()
