"""Whether a node can be measured and its caps held, and what to change where not: from one cycle's readings. Pure.

Guarantees: every gap comes with one line that says what to change; what a node merely does not have (MPS, claims,
limits by control group) is no gap; a node is fit if its GPUs answer and their processes can be placed, because then
every byte is measured, whatever else is missing. It looks at one instant, and proves nothing about the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, unique

from exporter.abilities import Ability, holding, knows_pods, measured
from exporter.errors import Failure, Reason
from exporter.model import Condition, DeviceReading, MpsDaemon, Snapshot, Surroundings
from exporter.readings import Readings
from exporter.remedies import COMPUTE, DRIVER_615, PODS, PTRACE, of_condition, remedy

_WITH_LIMITS = 615  # the first driver generation with memory limits by control group


@unique
class Grade(StrEnum):
    """How something stands."""

    FINE = "ok"
    ABSENT = "-"  # this node does not have it, and nothing is wrong with that
    GAP = "gap"  # something is not measured that could be
    UNFIT = "unfit"  # without it nothing is attributed


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `change`: one line, for a gap always."""

    grade: Grade
    subject: str
    found: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found of a node."""

    findings: tuple[Finding, ...]
    measured: tuple[Ability, ...]
    holding: tuple[Ability, ...]  # caps, by GPU

    @property
    def fit(self) -> bool:
        """Whether the node's GPU memory can be attributed."""
        return not any(finding.grade is Grade.UNFIT for finding in self.findings)

    @property
    def gaps(self) -> int:
        """How many things are to be changed."""
        return sum(finding.grade in (Grade.GAP, Grade.UNFIT) for finding in self.findings)


def diagnose(readings: Readings, snapshot: Snapshot, around: Surroundings) -> Diagnosis:
    """What is to be said of a node, from the driver outwards."""
    findings = (
        *_driver(readings),
        _processes(readings),
        _answered("kubelet", readings.allocations.failure, "PodResources answers", Grade.GAP),
        _pods(readings, around),
        _answered("pods' control groups", readings.live.failure, "visible", Grade.GAP),
        _control_groups(readings, around),
        *_own_limit(readings),
        *_mps(readings, around),
        *_claims_and_policy(readings),
        *_conditions(snapshot),
        _rights(readings, around),
    )
    return Diagnosis(findings, measured(readings, around), holding(readings))


def _failed(subject: str, failure: Failure, grade: Grade) -> Finding:
    return Finding(grade, subject, _line(failure), remedy(subject, failure.reason))


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _answered(subject: str, failure: Failure | None, fine: str, grade: Grade) -> Finding:
    return Finding(Grade.FINE, subject, fine) if failure is None else _failed(subject, failure, grade)


def _driver(readings: Readings) -> Iterator[Finding]:
    driver = readings.driver.value
    if driver is None:
        yield _failed("driver", readings.driver.failure or Failure(Reason.INTERNAL), Grade.UNFIT)
        return
    cuda = f", CUDA {driver.cuda_version}" if driver.cuda_version else ""
    yield Finding(Grade.FINE, "driver", f"{driver.driver_version}{cuda}, {len(driver.devices)} GPUs")
    silent = all(reading.failure is not None for reading in driver.devices)
    for failure in driver.failures:
        yield _failed("driver", failure, Grade.UNFIT if silent else Grade.GAP)
    for reading in driver.devices:
        yield from _gpu(reading, Grade.UNFIT if silent else Grade.GAP)


def _gpu(reading: DeviceReading, grade: Grade) -> Iterator[Finding]:
    device = reading.device
    subject = f"GPU {device.index}"
    if reading.failure is not None:
        yield Finding(grade, subject, _line(reading.failure), remedy("driver", reading.failure.reason))
        return
    parts = [part for domain in reading.domains for part in (domain.memory, *domain.lists.values())]
    failed = [part for part in parts if isinstance(part, Failure) and part.reason is not Reason.NOT_SUPPORTED]
    for failure in failed:
        yield Finding(Grade.GAP, subject, _line(failure), remedy("driver", failure.reason))
    if not failed:
        mode = f"MIG with {len(reading.domains)} GPU instances" if device.mig_mode else "no MIG"
        yield Finding(Grade.FINE, subject, f"{device.name}, {mode}, memory and process lists can be read")


def _processes(readings: Readings) -> Finding:
    failure = readings.processes.failure
    if failure is None:
        return Finding(Grade.FINE, "process ids", "those of the node")
    return _failed("process ids", failure, Grade.UNFIT)


def _pods(readings: Readings, around: Surroundings) -> Finding:
    names = readings.names.value
    if names is None:
        return _failed("pods", readings.names.failure or Failure(Reason.INTERNAL), Grade.GAP)
    if names.stale is not None:
        return _failed("pods", names.stale, Grade.GAP)
    if not knows_pods(names, around):
        found = f"{around.pods_from} tell names; annotations, labels and owners are not known"
        return Finding(Grade.GAP, "pods", found if around.pods_from else "from nowhere, so pods go by their uids", PODS)
    return Finding(Grade.FINE, "pods", f"{len(names.by_uid)} from {around.pods_from}")


def _control_groups(readings: Readings, around: Surroundings) -> Finding:
    version = "no tree is seen" if around.cgroup_version is None else f"v{around.cgroup_version}"
    here = f"{version}, {'dmem counts GPUs' if around.dmem else 'no dmem for GPUs'}"
    memory = readings.limits.memory
    if memory is None or memory.failure is None:
        if memory is not None and memory.value is not None and memory.value.backends:
            return Finding(Grade.FINE, "control groups", f"{here}; GPU memory limits can be read")
        return Finding(Grade.ABSENT, "control groups", f"{here}; no GPU has memory limits", DRIVER_615)
    if memory.failure.reason is Reason.NOT_SUPPORTED and not _has_limits(readings):
        return Finding(Grade.ABSENT, "control groups", f"{here}; the driver has no memory limits", DRIVER_615)
    found = _line(f"{here}; {memory.failure}")
    return Finding(Grade.GAP, "control groups", found, remedy("control groups", memory.failure.reason))


def _has_limits(readings: Readings) -> bool:
    """Whether the driver is of a generation that has memory limits by control group."""
    driver = readings.driver.value
    major = driver.driver_version.partition(".")[0] if driver is not None else ""
    return major.isascii() and major.isdigit() and int(major) >= _WITH_LIMITS


def _own_limit(readings: Readings) -> Iterator[Finding]:
    memory = readings.limits.memory
    if memory is not None and memory.value is not None and memory.value.own_limited:
        found = "podgpu itself sits under a GPU memory limit, so the driver may show it less than there is"
        yield Finding(Grade.GAP, "own control group", found, of_condition(Condition.MEMORY_VIEW_LIMITED))


def _mps(readings: Readings, around: Surroundings) -> Iterator[Finding]:
    reading = readings.limits.mps
    if reading is None:
        command = "" if around.control else "; the control command is not here either"
        yield Finding(Grade.ABSENT, "MPS", f"no control daemon in any of the pipe directories{command}")
        return
    if reading.value is None:
        yield _failed("MPS", reading.failure or Failure(Reason.INTERNAL), Grade.GAP)
        return
    for path, daemon in sorted(reading.value.daemons.items()):
        if isinstance(daemon, Failure):
            change = remedy("MPS", daemon.reason) if around.control else COMPUTE
            yield Finding(Grade.GAP, "MPS", _line(f"{path}: {daemon}"), change)
            continue
        for failure in daemon.errors:
            yield Finding(Grade.GAP, "MPS", _line(f"{path}: {failure}"), remedy("MPS", failure.reason))
        yield Finding(Grade.FINE, "MPS", f"{path}: {_described(daemon)}")


def _described(daemon: MpsDaemon) -> str:
    clients = sum(len(server.clients) for server in daemon.servers if not isinstance(server.clients, Failure))
    return f"protocol {daemon.protocol}, {len(daemon.servers)} servers, {clients} clients"


def _claims_and_policy(readings: Readings) -> Iterator[Finding]:
    if readings.slices is not None:
        yield _answered("claims", readings.slices.failure, "their devices are known", Grade.GAP)
    if readings.policy is not None:
        yield _answered("policy", readings.policy.failure, "can be used", Grade.GAP)


def _conditions(snapshot: Snapshot) -> Iterator[Finding]:
    for condition, holds in sorted(snapshot.conditions.items()):
        if holds and condition is not Condition.BLIND_PID_NAMESPACE:  # which is a finding about the process ids
            yield Finding(Grade.GAP, "condition", condition.value, of_condition(condition))


def _rights(readings: Readings, around: Surroundings) -> Finding:
    held = around.capabilities
    shown = "unknown" if held is None else ", ".join(sorted(held)) or "none that matters"
    found = f"uid {around.uid}, capabilities: {shown}"
    if readings.limits.mps is not None and held is not None and "SYS_PTRACE" not in held:
        return Finding(Grade.GAP, "rights", found, PTRACE)
    return Finding(Grade.FINE, "rights", found)
