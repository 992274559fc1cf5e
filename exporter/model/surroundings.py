"""What a program has around it on a node, beside what the sources read: its rights, and what is installed."""

from dataclasses import dataclass
from typing import Final

LOG_LINKS: Final = "the log links"  # a source of pods, in words: it knows their names and no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The rights and surroundings of this process.

    `capabilities` are the effective ones, by name without CAP_; None: they could not be read. `cgroup_version` is that
    of the host's tree as it is seen here, None where there is none. `control` says whether the command that talks to
    MPS control daemons can be found. `pods_from` is where pods come from, in words; empty: from nowhere.
    """

    uid: int
    capabilities: frozenset[str] | None
    cgroup_version: int | None
    dmem: bool  # the kernel's dmem controller counts devices
    control: bool
    pods_from: str = ""
