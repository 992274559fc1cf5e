"""Panels as Grafana's classic dashboards describe them: what each kind needs, and nothing that is Grafana's default.

Guarantees: a panel has a title, a description, a unit and the dashboard's data source. Its place is the layout's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
BYTES = "bytes"  # IEC
RATIO = "percentunit"
COUNT = "none"
SECONDS = "s"
HOURS = "suffix:h"
GIB_HOURS = "suffix:GiBh"

_RED, _ORANGE, _GREEN = "red", "orange", "green"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel. The legend is a template of labels such as `{{pod}}`; a table's, its column's heading."""

    expr: str
    legend: str = ""


def thresholds(*steps: tuple[float | None, str]) -> Json:
    """Colours from a value on; the first step has none."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


NOTHING_IS_GOOD = thresholds((None, _GREEN), (1, _RED))
FULL_IS_BAD = thresholds((None, _GREEN), (0.9, _ORANGE), (1.0, _RED))
NEUTRAL = thresholds((None, "blue"))


def stat(title: str, description: str, query: str, *, unit: str = COUNT, steps: Json = NEUTRAL) -> Json:
    """One number of now."""
    panel = _panel("stat", title, description, [Query(query)], unit=unit, instant=True)
    panel["fieldConfig"]["defaults"] |= {"thresholds": steps, "color": {"mode": "thresholds"}}
    panel["options"] = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "textMode": "value",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return panel


def timeseries(
    title: str,
    description: str,
    *queries: Query,
    unit: str,
    stacked: bool = False,
    line_at: float | None = None,
    lines: Sequence[str] = (),
    most: float | None = None,
) -> Json:
    """Lines over time, or areas on top of each other. `lines`: legends that stay lines where others are stacked."""
    panel = _panel("timeseries", title, description, queries, unit=unit, instant=False)
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 60 if stacked else 8,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if line_at is None else "line"},
    }
    defaults: Json = {"custom": custom, "min": 0, "color": {"mode": "palette-classic"}}
    if most is not None:
        defaults["max"] = most
    if line_at is not None:
        defaults["thresholds"] = thresholds((None, "transparent"), (line_at, _RED))
    panel["fieldConfig"]["defaults"] |= defaults
    panel["fieldConfig"]["overrides"] = [_plain_line(name) for name in lines]
    panel["options"] = {
        "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"], "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def bars(title: str, description: str, query: Query, *, unit: str, most: float | None = None, steps: Json) -> Json:
    """One bar for each series of now."""
    panel = _panel("bargauge", title, description, [query], unit=unit, instant=True)
    panel["fieldConfig"]["defaults"] |= {"thresholds": steps, "color": {"mode": "thresholds"}, "min": 0}
    if most is not None:
        panel["fieldConfig"]["defaults"]["max"] = most
    panel["options"] = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return panel


def table(
    title: str,
    description: str,
    *columns: Query,
    labels: Sequence[str],
    units: Mapping[str, str],
    sort: str,
    thresholds_of: Mapping[str, Json] | None = None,
) -> Json:
    """Rows by the labels of all queries, in this order; each query is a column, and its legend the heading."""
    panel = _panel("table", title, description, columns, unit=COUNT, instant=True)
    for target in panel["targets"]:
        target["format"] = "table"
    headings = {f"Value #{target['refId']}": target["legendFormat"] for target in panel["targets"]}
    if len(columns) == 1:
        headings = {"Value": columns[0].legend}
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": {name: place for place, name in enumerate([*labels, *headings])},
                "renameByName": headings,
            },
        },
    ]
    panel["fieldConfig"]["overrides"] = [
        _column(name, unit, (thresholds_of or {}).get(name)) for name, unit in units.items()
    ]
    panel["fieldConfig"]["defaults"]["custom"] = {"minWidth": 80}
    panel["options"] = {"showHeader": True, "sortBy": [{"displayName": sort, "desc": True}]}
    return panel


def _panel(kind: str, title: str, description: str, queries: Sequence[Query], *, unit: str, instant: bool) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": instant,
                "range": not instant,
            }
            for number, query in enumerate(queries)
        ],
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
    }


def _plain_line(name: str) -> Json:
    """A total that stands beside its stacked parts, not on top of them."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": "custom.stacking", "value": {"mode": "none", "group": "B"}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "custom.lineWidth", "value": 2},
            {"id": "color", "value": {"mode": "fixed", "fixedColor": "text"}},
        ],
    }


def _column(name: str, unit: str, steps: Json | None) -> Json:
    properties: list[Json] = [{"id": "unit", "value": unit}]
    if steps is not None:
        properties += [
            {"id": "thresholds", "value": steps},
            {"id": "color", "value": {"mode": "thresholds"}},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    return {"matcher": {"id": "byName", "options": name}, "properties": properties}
