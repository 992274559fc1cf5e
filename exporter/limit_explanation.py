"""In words, what limits a pod's containers: caps, what was read back, MPS membership, and what policy changed. Pure."""

from collections.abc import Iterable, Iterator

from exporter.cap_conditions import REASONS
from exporter.caps.book import NodeCaps
from exporter.description import domains_of
from exporter.errors import Failure
from exporter.memberships import Membership, Memberships
from exporter.model import ClientEnvironment, ContainerState, PinnedLimit, Snapshot
from exporter.readings import Readings

_GIB = 1 << 30


def limit_lines(states: Iterable[ContainerState]) -> list[str]:
    """What is asked of each container, what was read back, and whether that holds."""
    lines = []
    for state in states:
        where = f"{state.name.container} on GPU {state.domain.gpu}"
        found = [f"{mechanism} {_gib(limit)}" for mechanism, limit in sorted(state.applied.items())]
        if state.charged is not None:
            found.append(f"charged {_gib(state.charged)}")
        read = f"; read back: {', '.join(found)}" if found else ""
        if state.limit is not None:
            holds = {True: "holds", False: "does not hold", None: "can't be told to hold"}[state.enforced]
            why = "; ".join(f"{condition}: {REASONS[condition]}" for condition in state.cap_conditions)
            lines.append(f"{where}: cap of {_gib(state.limit)} {holds}{f' ({why})' if why else ''}{read}")
        elif found:
            lines.append(f"{where}: no cap{read}")
        if state.mps_thread_ratio is not None:
            lines.append(f"{where}: {state.mps_thread_ratio:.0%} of the threads, by {state.mps_thread_source}")
    return lines


def client_lines(states: Iterable[ContainerState], readings: Readings) -> list[str]:
    """Where each process is an MPS client, and what its own variables say."""
    mps = readings.limits.mps
    if mps is None or mps.value is None:
        return []
    memberships = Memberships(mps.value)
    environments = readings.limits.environments
    known = environments.value.environments if environments is not None and environments.value is not None else {}
    lines = []
    for state in states:
        for pid in state.pids:
            member = memberships.of(pid)
            what = _member(member, state.domain.gpu_uuid) if member is not None else "no MPS client"
            if member is None and not memberships.is_outside(pid):
                what = "an MPS client or not: some daemon does not answer"
            lines.append(f"pid {pid} on GPU {state.domain.gpu}: {what}{_variables(known.get(pid))}")
    return lines


def policy_lines(target: Iterable[ContainerState], snapshot: Snapshot, caps: NodeCaps) -> list[str]:
    """What policy, or the limit, changed about what the containers ask for."""
    domains = domains_of(snapshot.devices)
    lines: dict[str, None] = {}
    for state in target:
        decided = caps.decided(state.name, domains[state.domain])
        if decided is None:
            continue
        for note in decided.decision.notes:
            lines[f"{state.name.container}: {note.sentence}"] = None
        if decided.limits.clamped:
            lines[f"{state.name.container}: More is requested than the limit allows; the limit counts."] = None
    return list(lines)


def _member(member: Membership, gpu_uuid: str) -> str:
    namespace = f" in namespace {member.client.namespace}" if member.client.namespace else ""
    limit = member.pinned(gpu_uuid)
    shown = _gib(limit.shown) if isinstance(limit, PinnedLimit) else "no limit" if limit is None else "limit not known"
    ratio = member.ratio
    share = f"{ratio:.0%} of the threads" if isinstance(ratio, float) else "no share set" if ratio is None else ""
    return f"client of {member.pipe_directory}, server {member.server.name}{namespace}: " + ", ".join(
        filter(None, (shown, share))
    )


def _variables(environment: ClientEnvironment | Failure | None) -> str:
    if environment is None:
        return ""
    if isinstance(environment, Failure):
        return f"; its environment can't be read ({environment})"
    found = "; ".join(_set(environment))
    return f"; {found}" if found else ""


def _set(environment: ClientEnvironment) -> Iterator[str]:
    for name, text in (
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", environment.pinned),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", environment.percentage),
        ("CUDA_MPS_PIPE_DIRECTORY", environment.pipe_directory),
        ("CUDA_VISIBLE_DEVICES", environment.cuda_devices),
    ):
        if text is not None:
            shown = "".join(character if character.isprintable() else "?" for character in text[:120])
            yield f"{name}={shown}"


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.2f} GiB"
