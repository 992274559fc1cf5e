"""Alert cases: what a node shows while nothing is wrong and while something is, and promtool tests made of them.

Each alert gets the same timelines: quiet, wrong for long enough, quiet again; wrong until the pod is gone; wrong until
the exporter is down. Durations come from the rules, so a changed `for` is tested as it is then.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

_MINUTES = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}
QUIET = 35  # minutes before anything happens: more than any window that an alert looks back on and is to see quiet
EXPORTER = 'up{job="podgpu",instance="10.0.0.1:9836",node="node-a"}'
TARGET = {"job": "podgpu", "instance": "10.0.0.1:9836", "node": "node-a"}
DEVICE = {"gpu": "0", "gpu_uuid": "GPU-1", **TARGET}
CONTAINER = {"namespace": "research", "pod": "train-0", "container": "trainer", **DEVICE}


def minutes(duration: str) -> int:
    """A duration of Prometheus, such as 2m or 6h, in whole minutes."""
    total = sum(float(n) * _MINUTES[unit] for n, unit in re.findall(r"(\d+)([smhd])", duration))
    assert total == int(total)
    return int(total)


@dataclass(frozen=True)
class Series:
    """One series: its value while all is well and while it is not.

    Of a counter these are what it gains a minute. A clock shows the time while all is well, and stands still otherwise.
    """

    name: str
    labels: dict[str, str]
    well: float = 0
    wrong: float = 0
    kind: Literal["level", "counter", "clock"] = "level"

    @property
    def text(self) -> str:
        inside = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.name}{{{inside}}}"

    def values(self, phases: list[tuple[str, int]]) -> str:
        """Values for phases of so many minutes each: well, wrong or gone."""
        found: list[str] = []
        now = 0.0
        for phase, length in phases:
            for _ in range(length):
                if phase == "gone":
                    found.append("stale")
                    continue
                value = self.well if phase == "well" else self.wrong
                if self.kind == "clock":
                    now = 60 * len(found) if phase == "well" else now
                else:
                    now = now + value if self.kind == "counter" else value
                found.append(f"{now:.0f}")
        return " ".join(found)


@dataclass(frozen=True)
class Case:
    """How one alert comes about. `lag` and `tail`: minutes by which its expression follows what is wrong."""

    alert: str
    series: tuple[Series, ...]
    labels: dict[str, str]
    lag: int = 0
    tail: int = 0


@dataclass(frozen=True)
class Timing:
    """The `for` and `keep_firing_for` of an alert, in minutes."""

    pending: int
    keep: int


def lifecycle(case: Case, timing: Timing) -> dict[str, Any]:
    """Quiet, pending, firing, resolved."""
    wrong = case.lag + timing.pending + 10
    after = case.tail + timing.keep + 5
    begin = QUIET + case.lag
    end = QUIET + wrong + case.tail  # first minute at which the expression is quiet again
    checks = [(QUIET - 1, False), (begin + timing.pending, True), (end - 1, True)]
    if timing.pending > 1:
        checks.append((begin + timing.pending - 1, False))
    if timing.keep:
        checks.append((end + timing.keep - 1, True))
    checks.append((end + timing.keep + 1, False))
    test = _test(f"{case.alert}: life", case, [("well", QUIET), ("wrong", wrong), ("well", after)], checks)
    test["promql_expr_test"] = [_pending(case, begin, 1), _pending(case, QUIET - 1, 0)]
    return test


def vanishing(case: Case, timing: Timing, *, down: bool) -> dict[str, Any]:
    """Firing until the series go: the pod's end, or with `down` the exporter's."""
    firing = QUIET + case.lag + timing.pending + 5
    gone = case.tail + timing.keep + 15
    checks = [(firing - 1, True)]
    if timing.keep:
        checks.append((firing + timing.keep - 1, True))  # does not flap
    checks += [(firing + case.tail + timing.keep + 1, False), (firing + gone - 1, False)]
    name = f"{case.alert}: {'exporter down' if down else 'pod gone'}"
    test = _test(name, case, [("well", QUIET), ("wrong", firing - QUIET), ("gone", gone)], checks)
    test["input_series"].append({"series": EXPORTER, "values": f"1x{firing - 1} {'0' if down else '1'}x{gone}"})
    expected = [{"exp_labels": {"severity": "warning", **TARGET}}] if down else []
    test["alert_rule_test"].append(
        {"eval_time": f"{firing + 10}m", "alertname": "PodgpuExporterDown", "exp_alerts": expected}
    )
    return test


def _test(name: str, case: Case, phases: list[tuple[str, int]], checks: list[tuple[int, bool]]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": series.text, "values": series.values(phases)} for series in case.series],
        "alert_rule_test": list(_alerts(case, checks)),
    }


def _alerts(case: Case, checks: list[tuple[int, bool]]) -> Iterator[dict[str, Any]]:
    for minute, firing in sorted(checks):
        expected = [{"exp_labels": case.labels}] if firing else []
        yield {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": expected}


def _pending(case: Case, minute: int, count: int) -> dict[str, Any]:
    return {
        "expr": f'count(ALERTS{{alertname="{case.alert}"}}) or vector(0)',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": "{}", "value": count}],
    }
