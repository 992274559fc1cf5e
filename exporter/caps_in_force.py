"""Whether a container's cap holds on a memory domain, from what was read back and nothing else. Pure.

Two kinds of limit can hold a cap. A control group's counts all processes of the container together, so it is enough by
itself. MPS limits each client for itself, so every process must be a client, in the namespace that is meant for it,
under a limit that is known to have been there when it connected, and all these limits together must not exceed the cap.
What a client's own environment says can lower a limit or void all of them; it never proves one.

Guarantees: "enforced" is said only where nothing that is known speaks against it and nothing that matters is unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.errors import Failure
from exporter.memberships import UNKNOWN, Membership, Memberships, Unknown
from exporter.model import (
    Backend,
    CapCondition,
    ClientEnvironment,
    ContainerMemory,
    Mechanism,
    PinnedLimit,
)
from exporter.mps_variables import VariableLimit, pinned_limit

_MIB = 1 << 20
_LEAST_UNCHARGED = 64 * _MIB  # below this, and below 2 %, rows and charges differ by how they are counted
# What can't be told is neither enforced nor not enforced.
_UNDECIDED = frozenset({CapCondition.LIMIT_UNKNOWN, CapCondition.LIMIT_UNPROVEN, CapCondition.ENVIRONMENT_UNREADABLE})


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read of one container on one GPU.

    `used` in bytes is what its processes hold together, None where that is not known. `environments` are those of its
    MPS clients. `namespaces` are the names of those that were made for it. `held`: UUIDs of the GPUs given to it.
    """

    gpu_uuid: str
    pids: Sequence[int]
    used: int | None
    memberships: Memberships | None = None  # None: no MPS on this node
    environments: Mapping[int, ClientEnvironment | Failure] = field(default_factory=dict)
    memory: ContainerMemory | Failure | None = None  # None: no limits by control group, or nothing told of
    namespaces: frozenset[str] = frozenset()
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a cap holds. `enforced` None: it can't be told. `conditions` say why it is not known to hold."""

    enforced: bool | None
    conditions: tuple[CapCondition, ...] = ()


def applied(evidence: Evidence) -> Mapping[Mechanism, int]:
    """The limits in force by mechanism, in bytes.

    Those of MPS are per client: of several the largest is given, and none unless each client has one of that kind.
    """
    found: dict[Mechanism, int] = {}
    if (hard := _hard(evidence.memory)) is not None:
        found[Mechanism.CGROUP] = hard
    members = _members(evidence)
    if not members or len(members) < len(evidence.pids):
        return found
    kinds = {member.mechanism for member in members}
    shown = [limit.shown for member in members if isinstance(limit := member.pinned(evidence.gpu_uuid), PinnedLimit)]
    if len(kinds) == 1 and len(shown) == len(members):
        found[kinds.pop()] = max(shown)
    own = [variable.limit for variable in _variables(evidence, members) if variable is not None]
    known = [limit for limit in own if limit is not None]
    if len(known) == len(members):
        found[Mechanism.CLIENT_ENV] = max(known)
    return found


def verdict(evidence: Evidence, cap: int) -> Verdict:
    """Whether a cap of so many bytes holds."""
    cgroup = frozenset(_cgroup_faults(evidence, cap)) if _is_cgroup_in_play(evidence.memory) else None
    attempts = [] if cgroup is None else [cgroup]
    if evidence.pids and evidence.memberships is not None and (cgroup is None or _members(evidence)):
        attempts.append(frozenset(_mps_faults(evidence, cap)))
    if not attempts:
        # Without a process there is nothing yet that could be shown to be limited, or not to be.
        return Verdict(False, (CapCondition.LIMIT_MISSING,)) if evidence.pids else Verdict(None)
    if not all(attempts):
        return Verdict(enforced=True)
    conditions = tuple(sorted(frozenset().union(*attempts)))
    return Verdict(None if any(faults <= _UNDECIDED for faults in attempts) else False, conditions)


def _is_cgroup_in_play(memory: ContainerMemory | Failure | None) -> bool:
    return isinstance(memory, Failure) or _hard(memory) is not None


def _hard(memory: ContainerMemory | Failure | None) -> int | None:
    """The hard limit that counts: with the kernel's controller the least on the way up, else the nearest one."""
    if memory is None or isinstance(memory, Failure):
        return None
    hards = [level.hard for level in (memory.own, memory.pod) if level is not None and level.hard is not None]
    if not hards:
        return None
    nested = memory.own is None or memory.own.backend is Backend.DMEM
    return min(hards) if nested else hards[0]


def _cgroup_faults(evidence: Evidence, cap: int) -> Iterator[CapCondition]:
    memory, hard = evidence.memory, _hard(evidence.memory)
    if hard is None or not isinstance(memory, ContainerMemory):
        yield CapCondition.LIMIT_UNKNOWN
        return
    if hard > cap:
        yield CapCondition.LIMIT_ABOVE_CAP
    own = memory.own
    if own is None or own.backend is Backend.DMEM or evidence.used is None:
        return
    # The driver's own table counts what was allocated since there is a limit, and never what was there before.
    if evidence.used - own.charged > max(_LEAST_UNCHARGED, evidence.used // 50):
        yield CapCondition.NOT_ALL_CHARGED


def _mps_faults(evidence: Evidence, cap: int) -> Iterator[CapCondition]:
    memberships = evidence.memberships
    members = _members(evidence)
    if memberships is not None and any(memberships.is_outside(pid) for pid in evidence.pids):
        yield CapCondition.OUTSIDE_MPS
    elif len(members) < len(evidence.pids):
        yield CapCondition.LIMIT_UNKNOWN
    for member in members:
        existing = {namespace.name for namespace in member.server.namespaces}
        if member.client.namespace not in evidence.namespaces and evidence.namespaces & existing:
            yield CapCondition.OTHER_NAMESPACE
    yield from _limit_faults([(member, member.pinned(evidence.gpu_uuid)) for member in members], cap)
    for variable in _variables(evidence, members):
        if variable is None or variable.unknown:
            yield CapCondition.ENVIRONMENT_UNREADABLE
        elif variable.void:
            yield CapCondition.VARIABLE_VOIDS_LIMIT
    if evidence.used is not None and evidence.used > cap:
        yield CapCondition.ABOVE_CAP


def _limit_faults(
    limits: Sequence[tuple[Membership, PinnedLimit | Unknown | None]], cap: int
) -> Iterator[CapCondition]:
    """What is wrong with the limits that the daemons set to the clients of one container."""
    least = 0
    for member, limit in limits:
        if limit is UNKNOWN:
            yield CapCondition.LIMIT_UNKNOWN
        elif not member.latched:
            yield CapCondition.LIMIT_UNPROVEN  # whatever the server gives now: the client may have come under another
        elif not isinstance(limit, PinnedLimit):
            yield CapCondition.LIMIT_MISSING
        elif limit.shown > cap:
            yield CapCondition.LIMIT_ABOVE_CAP
        else:
            least += limit.shown
            # Older daemons are known to show whole GiB; of those with namespaces nobody has seen that.
            if member.protocol < 3 and limit.below - _MIB > cap:
                yield CapCondition.LIMIT_UNPROVEN
    if least > cap:
        yield CapCondition.SEVERAL_CLIENTS


def _members(evidence: Evidence) -> Sequence[Membership]:
    if evidence.memberships is None:
        return ()
    return [member for pid in evidence.pids if (member := evidence.memberships.of(pid)) is not None]


def _variables(evidence: Evidence, members: Iterable[Membership]) -> Sequence[VariableLimit | None]:
    """What each client's environment does to its limits; None where it could not be read."""
    found: list[VariableLimit | None] = []
    for member in members:
        environment = evidence.environments.get(member.client.pid)
        found.append(
            pinned_limit(
                environment, gpu_uuid=evidence.gpu_uuid, server_devices=member.server.devices, held=evidence.held
            )
            if isinstance(environment, ClientEnvironment)
            else None
        )
    return found
