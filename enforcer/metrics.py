"""The enforcer's own metric families, and their samples: what it holds, what it did, and that it is alive. Pure.

They are written as the exporter's are, and documented on the same page. Guarantees: a closed label has a series for
each of its values from the start, so that a rate can be taken of the first one; what is not known has none. The names
of pods are in none of them: the exporter reads every limit back by itself and says whose it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from enforcer.model import CapState
from exporter.caps.requests import Reaction
from exporter.metrics.catalog import Family, Group
from exporter.metrics.labels import texts
from exporter.metrics.samples import FamilySamples, Row, Samples

EVENT_RESULTS = ("sent", "gone", "failed", "dropped", "held_back")

INFO = Family(
    "podgpu_enforcer_info",
    "gauge",
    "",
    ("mode", "mps", "version"),
    "Always 1; the labels are the mode (off, audit, enforce), whose MPS daemons are used (found, managed), and the "
    "version of podgpu.",
    "podgpu, the enforcer's flags",
)
CAPS = Family(
    "podgpu_enforcer_caps",
    "gauge",
    "",
    ("state",),
    "Caps that this node's pods ask for, by where they stand; each cap is in one state.",
    "podgpu, the enforcer's plan against what was read back",
)
ACTIONS = Family(
    "podgpu_enforcer_actions_total",
    "counter",
    "",
    ("mechanism", "action", "result"),
    "Actions since the enforcer started. Result: done (read back), pending, failed, or planned where the mode is "
    "audit.",
    "podgpu, the enforcer",
)
OVERRUNS = Family(
    "podgpu_enforcer_overruns_total",
    "counter",
    "",
    ("reaction",),
    "Times that a container's memory began to exceed its cap by more than the tolerance, in most samples of a window, "
    "by the reaction that the cap asks for.",
    "podgpu, the enforcer's watch",
)
EVENTS = Family(
    "podgpu_enforcer_events_total",
    "counter",
    "",
    ("result",),
    "Events for pods since the enforcer started. Result: sent, gone (the pod's namespace no longer takes any), failed, "
    "dropped (too many waited), or held_back (its pod was told too much already).",
    "podgpu, answers of the API server",
)
LAST_RECONCILE = Family(
    "podgpu_enforcer_last_reconcile_timestamp_seconds",
    "gauge",
    "seconds",
    (),
    "Unix time in seconds at which the last look at the node, with all that followed from it, was over.",
    "podgpu, system clock",
)
RECONCILE_DURATION = Family(
    "podgpu_enforcer_reconcile_duration_seconds",
    "gauge",
    "seconds",
    (),
    "How many seconds that took.",
    "podgpu, monotonic clock",
)

GROUP = Group(
    "Enforcer",
    "On a page of its own: `podgpu enforcer` serves it on port 9837, with the `process_*` families of its own process. "
    "The exporter's page does not have these, and shows each applied limit as it reads it back by itself.",
    (INFO, CAPS, ACTIONS, OVERRUNS, EVENTS, LAST_RECONCILE, RECONCILE_DURATION),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the page shows. Counts are since the start; times in seconds; None: there was no reconciliation yet.

    `actions` are by mechanism, action and result.
    """

    mode: str
    mps: str
    version: str
    caps: Mapping[CapState, int] | None = None
    actions: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    overruns: Mapping[Reaction, int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    last_reconcile: float | None = None
    reconcile_duration: float | None = None


def samples(figures: Figures) -> Samples:
    """The samples of the enforcer's page."""
    rows: dict[Family, list[Row]] = {}
    for family, row in _rows(figures):
        rows.setdefault(family, []).append(row)
    found = tuple(FamilySamples(family, tuple(sorted(rows[family]))) for family in GROUP.families if family in rows)
    return Samples(found, 0)


def _rows(figures: Figures) -> Iterator[tuple[Family, Row]]:
    yield INFO, (texts(figures.mode, figures.mps, figures.version), 1)
    if figures.caps is not None:
        for state in CapState:
            yield CAPS, (texts(state), figures.caps.get(state, 0))
    for labels, number in figures.actions.items():
        yield ACTIONS, (texts(*labels), number)
    for reaction in Reaction:
        yield OVERRUNS, (texts(reaction), figures.overruns.get(reaction, 0))
    for result in EVENT_RESULTS:
        yield EVENTS, (texts(result), figures.events.get(result, 0))
    if figures.last_reconcile is not None:
        yield LAST_RECONCILE, ((), figures.last_reconcile)
    if figures.reconcile_duration is not None:
        yield RECONCILE_DURATION, ((), figures.reconcile_duration)
