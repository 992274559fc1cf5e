"""What the kernel and the driver say of the GPU memory of cgroups, in bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType

from exporter.errors import Failure
from exporter.model.kubernetes import ContainerRef


@unique
class Backend(StrEnum):
    """Who counts: the kernel's dmem controller, which nests, or the driver's own table, which does not ("misc")."""

    DMEM = "dmem"
    MISC = "misc"


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """One cgroup's GPU memory on one GPU.

    `hard` None: it has no limit of its own. Only what was allocated since a limit exists is charged by the driver's own
    table; the kernel's controller charges everything.
    """

    backend: Backend
    charged: int
    hard: int | None
    soft: int = 0


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """A container's GPU memory on one GPU: of its own cgroup, and of its pod's. None: nothing is known of that level.

    `shared`: the answer for the container is that of its pod's cgroup, which other containers count into as well.
    """

    own: CgroupMemory | None = None
    pod: CgroupMemory | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class LimitReading:
    """Per container and GPU UUID. A pair that is missing has no limit, or none that the driver would tell of.

    `backends` has who counts the memory of each GPU that was asked about and can have such limits.
    `own_limited` says whether this process itself sits in a cgroup with a limit, so that the driver may show it less
    memory than there is; None where that cannot be told.
    """

    containers: Mapping[tuple[ContainerRef, str], ContainerMemory | Failure]
    own_limited: bool | None = None
    backends: Mapping[str, Backend] = field(default_factory=lambda: MappingProxyType({}))
