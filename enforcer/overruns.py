"""Whether a container is over its cap: not by one sample, but by most of the last few. Pure.

A sample is what the container used in one cycle. It is above where it exceeds the cap by more than a tolerance, since
contexts and allocators round; an overrun begins when enough of the last samples are above, and ends only when a whole
window of them is at or under the cap itself. What is not known is no sample, and neither is a look that comes too soon
after the last: who changes a pod makes the enforcer look again, and must not decide how long a moment is. A sample is
judged by the cap of its time: a cap that is changed makes nothing of the past an overrun, and ends none.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from enforcer.model import MIB, Cap, CapKey
from enforcer.wanted import gpu_of
from exporter.model import ContainerName, ContainerState


@dataclass(frozen=True, slots=True)
class Window:
    """How samples are judged: `above` of the last `samples`, by more than `ratio` of the cap and `least` bytes.

    `spacing` is how many seconds there are between two samples at least.
    """

    above: int = 3
    samples: int = 5
    ratio: float = 0.02
    least: int = 64 * MIB
    spacing: float = 1.0

    def tolerance(self, limit: int) -> int:
        """By how many bytes a cap may be exceeded."""
        return max(int(limit * self.ratio), self.least)


class Mark(IntEnum):
    """What a sample says."""

    UNDER = -1  # at or under the cap
    WITHIN = 0  # above it, by no more than the tolerance
    ABOVE = 1


@dataclass(frozen=True, slots=True)
class Track:
    """One cap's last samples. `on`: an overrun has begun and not ended. `told`: what was said of it since it began."""

    marks: tuple[Mark, ...] = ()
    on: bool = False
    told: frozenset[str] = frozenset()

    def proven(self, window: Window) -> bool:
        """Whether enough of the samples are above, of those since something was last done about it."""
        return self.on and self.marks.count(Mark.ABOVE) >= window.above

    def judged_anew(self) -> "Track":
        """The same overrun, about which something was done: only what comes now shows whether that was enough."""
        return replace(self, marks=())


@dataclass(frozen=True, slots=True)
class Use:
    """What a container uses on a GPU, in bytes, and which of its processes do."""

    used: int
    pids: frozenset[int] = frozenset()


def follow(before: Track, used: int | None, limit: int, window: Window) -> Track:
    """The track after one cycle. None: the use is not known."""
    if used is None:
        return before
    excess = used - limit
    mark = Mark.ABOVE if excess > window.tolerance(limit) else Mark.WITHIN if excess > 0 else Mark.UNDER
    marks = (*before.marks, mark)[-window.samples :]
    if before.on:
        ended = len(marks) == window.samples and set(marks) == {Mark.UNDER}
        return Track(marks) if ended else replace(before, marks=marks)
    return replace(before, marks=marks, on=marks.count(Mark.ABOVE) >= window.above)


def uses(
    caps: Collection[Cap], containers: Iterable[ContainerState], owners: Mapping[int, str]
) -> Mapping[CapKey, Use]:
    """The known use for each cap of memory. `owners` has the pod's uid of each process, by pid.

    Containers go by names, and a pod may bear the name of one that is not quite gone. So there is no use for a cap
    where a process is known to be another pod's.
    """
    found = {(state.name, gpu_of(state.domain)): state for state in containers}
    known: dict[CapKey, Use] = {}
    for cap in caps:
        pod, container, gpu_uuid = cap.key
        state = found.get((ContainerName(pod.namespace, pod.name, container), gpu_uuid))
        if cap.limit is None or state is None or state.used is None:
            continue
        if all(owners.get(pid, pod.uid) == pod.uid for pid in state.pids):
            known[cap.key] = Use(state.used, frozenset(state.pids))
    return known
