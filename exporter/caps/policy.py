"""What a cluster allows its namespaces: caps for those who ask for none, ceilings for those who ask for much.

Pure: a policy and a request give the request that holds, and a note for each thing that policy changed. Guarantees that
what comes out is under every ceiling, that policy never grants more than was asked for, and that applying it twice
changes nothing more. A ceiling holds for containers without a request too: none asked for is all of the device.

A default is a limit, not a request: memory that nobody asked for is not guaranteed to anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from types import MappingProxyType

from exporter.caps.memory import exceeds, text_of
from exporter.caps.requests import Amount, CapRequest, Reaction, Share, resolved


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds in one namespace. None: nothing is set."""

    memory_default: Amount | None = None
    memory_ceiling: Amount | None = None
    threads_default: int | None = None  # percent, 1..100
    threads_ceiling: int | None = None
    reaction: Reaction = Reaction.WARN  # where the pod chooses none
    harshest: Reaction = Reaction.EVICT  # that a pod may choose


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a cluster. Without namespaces of its own it sets nothing and allows everything."""

    defaults: Rule = field(default_factory=Rule)
    namespaces: Mapping[str, Rule] = field(default_factory=lambda: MappingProxyType({}))

    def rule(self, namespace: str) -> Rule:
        """What holds in a namespace."""
        return self.namespaces.get(namespace, self.defaults)


@unique
class Change(StrEnum):
    """What policy may do to a request."""

    MEMORY_DEFAULT = "memory_default"
    MEMORY_CEILING = "memory_ceiling"
    MEMORY_UNDECIDED = "memory_undecided"
    THREADS_DEFAULT = "threads_default"
    THREADS_CEILING = "threads_ceiling"
    REACTION = "reaction"


@dataclass(frozen=True, slots=True)
class Note:
    """One change that policy made, for people."""

    change: Change
    sentence: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The request that holds, and how it differs from what was asked for. Its reaction is always set."""

    request: CapRequest
    notes: tuple[Note, ...] = ()


def apply(policy: Policy, namespace: str, request: CapRequest, *, capacity: int | None = None) -> Decision:
    """What of a request holds on a device of `capacity` bytes.

    Bytes and shares are compared by way of the capacity. Where that is not known and bytes meet a share, there is no
    limit in the decision, and a note says so: a limit that may be above its ceiling would be a false one.
    """
    rule = policy.rule(namespace)
    notes: list[Note] = []
    decided = _memory(rule, namespace, request, capacity, notes)
    decided = _threads(rule, namespace, decided, notes)
    chosen = request.on_overrun if request.on_overrun is not None else rule.reaction
    if chosen.severity > rule.harshest.severity:
        sentence = f"on-overrun is {rule.harshest}, not {chosen}: the harshest that namespace {namespace} may choose."
        notes.append(Note(Change.REACTION, sentence))
        chosen = rule.harshest
    return Decision(replace(decided, on_overrun=chosen), tuple(notes))


def _memory(rule: Rule, namespace: str, request: CapRequest, capacity: int | None, notes: list[Note]) -> CapRequest:
    limit = request.limit
    if limit is None and rule.memory_default is not None:
        limit = rule.memory_default
        sentence = f"The limit is {text_of(limit)}, the default of namespace {namespace}."
        notes.append(Note(Change.MEMORY_DEFAULT, sentence))
    ceiling = rule.memory_ceiling
    if ceiling is None:
        return replace(request, limit=limit)
    if limit is None:
        lowered: Amount | None = ceiling
    elif isinstance(limit, Share) is isinstance(ceiling, Share):
        lowered = ceiling if exceeds(limit, ceiling) else limit
    else:
        lowered = _least(limit, ceiling, capacity)
    if lowered is None:
        sentence = f"Whether {text_of(limit or ceiling)} is under the ceiling of {text_of(ceiling)} can't be told: "
        notes.append(Note(Change.MEMORY_UNDECIDED, sentence + "the device's capacity is not known."))
        return replace(request, requested=None, limit=None)
    if lowered != limit:
        sentence = f"The limit is {text_of(lowered)}, the ceiling of namespace {namespace}."
        notes.append(Note(Change.MEMORY_CEILING, sentence))
    return replace(request, requested=_under(request.requested, lowered, capacity), limit=lowered)


def _least(limit: Amount, ceiling: Amount, capacity: int | None) -> Amount | None:
    """The smaller of two amounts of which one is a share. None: the device's capacity is not known."""
    asked, allowed = resolved(limit, capacity), resolved(ceiling, capacity)
    if asked is None or allowed is None:
        return None
    return ceiling if asked > allowed else limit


def _under(requested: Amount | None, limit: Amount, capacity: int | None) -> Amount | None:
    """The request, or the limit where that is less. A share beside bytes is left for `limits` to clamp."""
    if requested is None or isinstance(requested, Share) is isinstance(limit, Share):
        return limit if requested is not None and exceeds(requested, limit) else requested
    least = _least(requested, limit, capacity)
    return requested if least is None else least


def _threads(rule: Rule, namespace: str, request: CapRequest, notes: list[Note]) -> CapRequest:
    percentage = request.active_thread_percentage
    if percentage is None and rule.threads_default is not None:
        percentage = rule.threads_default
        sentence = f"The active thread percentage is {percentage}, the default of namespace {namespace}."
        notes.append(Note(Change.THREADS_DEFAULT, sentence))
    if rule.threads_ceiling is not None and (percentage is None or percentage > rule.threads_ceiling):
        percentage = rule.threads_ceiling
        sentence = f"The active thread percentage is {percentage}, the ceiling of namespace {namespace}."
        notes.append(Note(Change.THREADS_CEILING, sentence))
    return replace(request, active_thread_percentage=percentage)
