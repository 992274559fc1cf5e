"""`podgpu doctor`: whether this node can be measured and its caps held, and what to change where not.

It asks the exporter's own sources, with the exporter's flags, so it finds what the exporter would find: to be run in
the exporter's container, or on the node itself. It changes nothing.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter import version
from exporter.clock import Clock
from exporter.diagnosis import Diagnosis, Grade, diagnose
from exporter.logs import configure
from exporter.observation import first_readings, observer
from exporter.service import sources
from exporter.settings import parser, settings_of
from exporter.sources.podchoice import PodChoice
from exporter.sources.pods import LogLinkNames
from exporter.sources.surroundings import surroundings

_PROG = "podgpu doctor"


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Print the diagnosis. Returns the exit code: 0 if GPU memory can be attributed on this node, else 1.

    Raises SettingsError for a wrong flag.
    """
    asked = parser(
        _PROG, "Tells whether this node can be measured, and what to change. Flags are those of the exporter."
    )
    asked.add_argument("--json", action="store_true", help="print one JSON object")
    given = asked.parse_args(list(arguments))
    chosen = settings_of(given, environment)
    configure(level="error", form=chosen.log_format)
    found = sources(chosen, Clock())
    sampler = observer(chosen, found=found)
    readings = first_readings(sampler)
    around = surroundings(
        sysfs=Path(chosen.sysfs),
        control=chosen.mps_control,
        pods_from=_pods_from(found.pods),
    )
    told = diagnose(readings, sampler.snapshot(readings), around)
    print(json.dumps({"fit": told.fit, **dataclasses.asdict(told)}, indent=2) if given.json else text(told))
    sys.stdout.flush()
    # As in the exporter: a thread inside a driver call must not hold up the end.
    os._exit(0 if told.fit else 1)


def _pods_from(source: object) -> str:
    """Where pods come from, in words; empty: from nowhere."""
    match source:
        case PodChoice():
            return source.in_force
        case LogLinkNames():
            return source.name
        case _:
            return ""


def text(told: Diagnosis) -> str:
    """The diagnosis for a person."""
    gaps = {0: "nothing to change", 1: "1 thing to change"}.get(told.gaps, f"{told.gaps} things to change")
    verdict = "GPU memory can be attributed" if told.fit else "GPU memory can NOT be attributed"
    lines = [f"podgpu {version()} on this node: {verdict}, {gaps}", ""]
    width = max(len(finding.subject) for finding in told.findings)
    for finding in told.findings:
        lines.append(f"{finding.grade.value:5}  {finding.subject:{width}}  {finding.found}")
        if finding.change:
            sign = "->" if finding.grade is not Grade.ABSENT else "  "
            lines.append(f"{'':5}  {'':{width}}  {sign} {finding.change}")
    for title, abilities in (("measured", told.measured), ("memory caps can be held", told.holding)):
        if abilities:
            lines += ["", title]
        wide = max((len(ability.what) for ability in abilities), default=0)
        for ability in abilities:
            sign, why = ("no", ability.missing) if ability.missing else ("yes", ability.by)
            lines.append(f"{sign:5}  {ability.what:{wide}}  {why}")
    return "\n".join(lines)
