"""`podgpu explain`: how a pod's numbers came to be, from one fresh reading of this node."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from exporter import version
from exporter.accounting import account, opened
from exporter.explanation import Evidence, Explanation, explain
from exporter.logs import configure
from exporter.metrics.samples import BuildInfo, samples
from exporter.model import ContainerName
from exporter.observation import first_readings, observer
from exporter.processes import listed_pids
from exporter.settings import SettingsError, parser, settings_of
from exporter.sources.procfs import evidence

_PROG = "podgpu explain"


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print the explanation. Returns the exit code: 0, or 1 where the pod has nothing to do with a GPU of this node.

    Raises SettingsError for a wrong flag or target.
    """
    found = parser(_PROG, "Tells how the numbers of a pod on this node came to be. Flags are those of the exporter.")
    found.add_argument("target", metavar="NAMESPACE/POD")
    found.add_argument("container", nargs="?", default="", metavar="CONTAINER", help="only this container")
    found.add_argument("--json", action="store_true", help="print one JSON object")
    given = found.parse_args(list(arguments))
    namespace, slash, pod = given.target.partition("/")
    if not slash or not namespace or not pod:
        raise SettingsError(f"{given.target!r}: takes NAMESPACE/POD (see {_PROG} --help)")
    chosen = settings_of(given, environment)
    configure(level="error", form=chosen.log_format)
    sampler = observer(chosen)
    readings = first_readings(sampler)
    snapshot = sampler.snapshot(readings)
    told = explain(
        ContainerName(namespace, pod, given.container),
        readings=readings,
        snapshot=snapshot,
        samples=samples(snapshot, totals=account(opened(), snapshot), build=BuildInfo(version(), "")),
        caps=sampler.caps(readings),
        evidence=_evidence(Path(chosen.procfs), listed_pids(readings.driver.value)),
    )
    print(json.dumps(dataclasses.asdict(told), indent=2) if given.json else text(told))
    sys.stdout.flush()
    # As in the exporter: a thread inside a driver call must not hold up the end.
    os._exit(1 if told.others or not told.series else 0)


def _evidence(procfs: Path, pids: Iterable[int]) -> dict[int, Evidence]:
    found = {}
    for pid in pids:
        start, cgroup = evidence(procfs, pid)
        found[pid] = Evidence(start, cgroup)
    return found


def text(told: Explanation) -> str:
    """The explanation for a person."""
    lines = [f"{told.namespace}/{told.pod}" + (f" container {told.container}" if told.container else "")]
    if told.uid:
        lines.append(f"  uid {told.uid}")
    for title, processes in (("processes", told.processes), ("processes that could not be placed", told.unplaced)):
        if processes:
            lines.append(title)
        for process in processes:
            instance = f" instance {process.gpu_instance}" if process.gpu_instance else ""
            used = "memory unknown" if process.used is None else f"{process.used / (1 << 30):.2f} GiB"
            whose = f"container {process.container}" if process.container else process.memory_class
            lines.append(
                f"  GPU {process.gpu}{instance}  pid {process.pid}  {used}  lists {'+'.join(process.lists)}  {whose}"
                + (f" ({process.reason})" if process.reason else "")
            )
            if process.cgroup is not None:
                lines.append(f"    started {process.start_ticks} ticks after boot, cgroup {process.cgroup}")
    sections = (
        ("allocation (kubelet)", told.allocation),
        ("annotations", [f"{key}: {value}" for key, value in told.annotations.items()]),
        ("understood as", [f"{key}: {value}" for key, value in told.understood.items()]),
        ("annotation errors", told.errors),
        ("changed by policy", told.policy),
        ("limits", told.limits),
        ("MPS", told.clients),
        ("series", told.series),
        ("what may be missing", told.problems),
    )
    for title, entries in sections:
        if entries:
            lines += [title, *(f"  {entry}" for entry in entries)]
    if told.others:
        there = ", ".join(told.others)
        lines.append(
            f"This pod neither holds nor uses a GPU of this node, as far as can be read. Those that do: {there}"
        )
    elif not told.series:
        lines.append("This pod has no series: no pod of this node holds or uses a GPU, as far as can be read.")
    return "\n".join(lines)
