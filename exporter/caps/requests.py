"""What a container asks for, and what is wrong with how it asks: the values that the annotation contract gives.

Amounts of memory are per device. An amount is bytes or a share of the device's capacity, and stays a share until the
capacity is known: `limits` turns a request into bytes on one device. Nothing here reads text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

MIB = 1 << 20


@unique
class ComputeMode(StrEnum):
    """How containers share the multiprocessors of a device."""

    TIME_SLICING = "time-slicing"
    SM_SHARING = "sm-sharing"


@unique
class Reaction(StrEnum):
    """What is done about memory above the limit, mildest first."""

    WARN = "warn"
    FREEZE = "freeze"
    TERMINATE = "terminate"
    EVICT = "evict"

    @property
    def severity(self) -> int:
        """0 for the mildest."""
        return list(Reaction).index(self)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a device's memory, above 0 and at most 1."""

    ratio: Fraction

    def of(self, capacity: int) -> int:
        """Bytes of a device of `capacity` bytes: whole MiB rounded down as schedulers do, and at least one."""
        return max(1, int(capacity // MIB * self.ratio)) * MIB


Amount: TypeAlias = int | Share  # bytes per device, or a share of each


@dataclass(frozen=True, slots=True)
class CapRequest:
    """What one container asks for, per device. None: it does not say."""

    container: str
    requested: Amount | None = None  # the guaranteed part; never above a limit of the same kind
    limit: Amount | None = None
    active_thread_percentage: int | None = None  # 1..100, of the device's threads under MPS
    compute_mode: ComputeMode = ComputeMode.TIME_SLICING
    devices: tuple[str, ...] = ()  # "GPU-...", "MIG-...", an index, or "all"; empty where nobody assigned any
    device_count: int | None = None
    on_overrun: Reaction | None = None
    job: str = ""
    sources: tuple[str, ...] = field(
        default=(), compare=False
    )  # the keys that said so; of the same request, others may

    @property
    def active_thread_ratio(self) -> float | None:
        """The share of threads as metrics show it, above 0 and at most 1."""
        return None if self.active_thread_percentage is None else self.active_thread_percentage / 100


@unique
class ErrorReason(StrEnum):
    """Everything that can be wrong with an annotation: the reasons of `podgpu_annotation_errors`."""

    # The key
    UNKNOWN_SUFFIX = "unknown_suffix"
    UNKNOWN_CONTAINER = "unknown_container"
    WRONG_PREFIX = "wrong_prefix"
    WRONG_CASE = "wrong_case"
    MISSPELT_KEY = "misspelt_key"

    # The value
    MALFORMED = "malformed"
    OUT_OF_RANGE = "out_of_range"
    UNIT_MISSING = "unit_missing"
    UNIT_NOT_ALLOWED = "unit_not_allowed"
    UNKNOWN_VALUE = "unknown_value"

    # Keys together
    CONFLICT = "conflict"
    INCOMPLETE = "incomplete"
    REQUEST_ABOVE_LIMIT = "request_above_limit"
    SCHEDULER_MISMATCH = "scheduler_mismatch"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True, order=True)
class AnnotationError:
    """One fault, for the person who wrote the annotation. `container` is one that the pod declares, or empty."""

    container: str
    key: str
    reason: ErrorReason
    sentence: str  # names the key and the value, and says what to write


@dataclass(frozen=True, slots=True)
class PodCaps:
    """One pod's annotations as understood. A container without a request asks for nothing."""

    requests: Mapping[str, CapRequest] = field(default_factory=lambda: MappingProxyType({}))
    errors: tuple[AnnotationError, ...] = ()
    on_overrun: Reaction | None = None
    job: str = ""

    def of(self, container: str) -> CapRequest:
        """The container's request; where it asks for nothing, one that carries only what holds for the pod."""
        found = self.requests.get(container)
        return CapRequest(container, on_overrun=self.on_overrun, job=self.job) if found is None else found


@dataclass(frozen=True, slots=True)
class Limits:
    """A request in bytes on one device. None: not asked for, or a share of a capacity that is not known."""

    requested: int | None
    limit: int | None
    clamped: bool = False  # more was requested than the limit allows; `requested` is the limit


def limits(request: CapRequest, capacity: int | None) -> Limits:
    """What a request means on a device of `capacity` bytes. None: the capacity is not known."""
    requested, limit = resolved(request.requested, capacity), resolved(request.limit, capacity)
    if requested is not None and limit is not None and requested > limit:
        return Limits(limit, limit, clamped=True)
    return Limits(requested, limit)


def resolved(amount: Amount | None, capacity: int | None) -> int | None:
    """An amount in bytes; None for a share of an unknown capacity."""
    if isinstance(amount, Share):
        return None if capacity is None else amount.of(capacity)
    return amount
