"""What pods are told, and how often: a notice becomes an Event on the pod. Pure.

Guarantees: a message is one printable line of at most 1 KiB; the same one goes to a pod again only after ten minutes,
and one that is no warning not at all while it stays true; a pod that makes its messages change gets a few for each
reason in ten minutes and no more; what is remembered is bounded.

It will not decide what is true, nor send anything.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType

from enforcer.model import PodId

AGAIN = 600.0  # seconds until a warning that still holds is given again
MOST_TEXTS = 4  # for one pod and reason within AGAIN; whoever writes annotations could otherwise fill the API server
MOST_REMEMBERED = 8192
LONGEST = 1024  # bytes of a message, as events.k8s.io has it too
_CUT = "…"


@unique
class NoticeReason(StrEnum):
    """Why a pod is told something: the `reason` of the Event."""

    CAP_APPLIED = "GpuCapApplied"
    CAP_PENDING = "GpuCapPending"
    CAP_LATE = "GpuCapLate"
    CAP_FAILED = "GpuCapFailed"
    CAP_UNSUPPORTED = "GpuCapUnsupported"
    GATE_WAITING = "GpuCapGateWaiting"
    ANNOTATION_ERROR = "GpuCapAnnotationError"
    POLICY = "GpuCapPolicy"
    DAEMON = "MpsDaemonUnusable"
    OVERRUN = "GpuMemoryOverrun"
    NO_REACTION = "GpuMemoryReactionUnavailable"
    PUT_OFF = "GpuMemoryReactionPutOff"
    TERMINATED = "GpuClientTerminated"
    SUSPECT = "GpuClientSuspect"
    EVICTED = "GpuMemoryEviction"
    EVICTION_REFUSED = "GpuMemoryEvictionRefused"

    @property
    def kind(self) -> str:
        """The `type` of the Event: Normal, or Warning where somebody has to do something."""
        return "Normal" if self in _NORMAL else "Warning"


_NORMAL = frozenset({NoticeReason.CAP_APPLIED, NoticeReason.GATE_WAITING, NoticeReason.POLICY})


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that a pod is told. Made by `notice`, which keeps the message to what an Event can carry."""

    pod: PodId
    reason: NoticeReason
    message: str

    @property
    def key(self) -> str:
        """The same for the same notice to the same pod, whenever it is made: 20 hexadecimal digits."""
        parts = "\0".join((self.pod.uid, self.reason, self.message))
        return hashlib.blake2s(parts.encode("utf-8", "replace"), digest_size=10).hexdigest()


def notice(pod: PodId, reason: NoticeReason, text: str) -> Notice:
    """A notice with the text in one line, without what can't be printed, and cut where it is too long."""
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(text.split()))
    return Notice(pod, reason, _cut(line))


def _cut(line: str) -> str:
    encoded = line.encode("utf-8", "replace")
    if len(encoded) <= LONGEST:
        return encoded.decode()
    return encoded[: LONGEST - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


@dataclass(frozen=True, slots=True)
class Told:
    """When a notice last went out, and when it last was true. Monotonic seconds."""

    at: float
    held: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """What pods have been told, by the pod's uid, the reason and the notice's key."""

    told: Mapping[tuple[str, NoticeReason, str], Told] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Due:
    """The notices that go out now. `held_back`: how many more would have, if their pods were not told so much."""

    ledger: Ledger
    notices: tuple[Notice, ...] = ()
    held_back: int = 0


def due(ledger: Ledger, notices: Iterable[Notice], *, now: float) -> Due:
    """Which of the notices that are true now (monotonic seconds) are to be sent."""
    told = {key: found for key, found in ledger.told.items() if now - found.held < AGAIN}
    recent = Counter((uid, reason) for (uid, reason, _), found in told.items() if now - found.at < AGAIN)
    going: list[Notice] = []
    held_back = 0
    for found in dict.fromkeys(notices):
        key = (found.pod.uid, found.reason, found.key)
        known = told.get(key)
        if known is not None and (now - known.at < AGAIN or found.reason.kind == "Normal"):
            told[key] = Told(known.at, now)
        elif recent[key[:2]] >= MOST_TEXTS or (known is None and len(told) >= MOST_REMEMBERED):
            held_back += 1
        else:
            told[key] = Told(now, now)
            recent[key[:2]] += 1
            going.append(found)
    return Due(Ledger(MappingProxyType(told)), tuple(going), held_back)
