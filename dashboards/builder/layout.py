"""A dashboard of rows of panels: their places, the variables, and the links between the dashboards."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.builder.panels import DATASOURCE, Json

_SCHEMA = 41  # what Grafana 11 and 12 write; older and newer ones read it
_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Row:
    """Panels side by side under a heading, all of one height. Without widths they share the width evenly."""

    title: str
    height: int
    panels: Sequence[Json]
    widths: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that the viewer chooses, from the values of a label."""

    name: str
    label: str
    query: str
    all_value: str = ".+"
    hide: int = 0


CLUSTER = Variable("cluster", "Cluster", "label_values(podgpu_build_info, cluster)", all_value=".*")
NAMESPACE = Variable(
    "namespace", "Namespace", 'label_values(podgpu_container_memory_used_bytes{cluster=~"$cluster"}, namespace)'
)
WORKLOAD = Variable(
    "workload",
    "Workload",
    'label_values(pod:podgpu_workload:info{cluster=~"$cluster",namespace=~"$namespace"}, workload)',
)
GPU = Variable("gpu", "GPU", 'label_values(podgpu_device_info{cluster=~"$cluster"}, gpu_uuid)')
VARIABLES = (CLUSTER, NAMESPACE, WORKLOAD, GPU)


def dashboard(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    since: str,
    variables: Sequence[Variable] = VARIABLES,
    choices: Sequence[Json] = (),
) -> Json:
    """A whole dashboard. The fixed uid keeps links and bookmarks alive over updates."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["podgpu", "gpu"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": since, "to": "now"},
        "links": [
            {
                "title": "podgpu",
                "type": "dashboards",
                "icon": "external link",
                "tooltip": "The other dashboards of podgpu, for the same time and the same choice",
                "url": "",
                "tags": ["podgpu"],
                "asDropdown": False,
                "targetBlank": False,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_datasource(), *(_variable(one) for one in variables), *choices]},
        "annotations": {"list": []},
        "panels": _placed(rows),
    }


def choice(name: str, label: str, values: Sequence[str]) -> Json:
    """A variable with a fixed list of values."""
    return {
        "name": name,
        "label": label,
        "type": "custom",
        "query": ",".join(values),
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "skipUrlSync": False,
        "current": {"text": values[0], "value": values[0], "selected": True},
        "options": [{"text": value, "value": value, "selected": value == values[0]} for value in values],
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "refresh": 1,
        "skipUrlSync": False,
        "options": [],
    }


def _variable(variable: Variable) -> Json:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": variable.query,
        "regex": "",
        "multi": True,
        "includeAll": True,
        "allValue": variable.all_value,
        "hide": variable.hide,
        "refresh": 2,
        "sort": 1,
        "skipUrlSync": False,
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
        "options": [],
    }


def _placed(rows: Sequence[Row]) -> list[Json]:
    placed: list[Json] = []
    y = 0
    for row in rows:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        widths = row.widths or [_WIDTH // len(row.panels)] * len(row.panels)
        x = 0
        for panel, width in zip(row.panels, widths, strict=True):
            place = {"x": x, "y": y, "w": width, "h": row.height}
            if panel["type"] == "timeseries" and width < _WIDTH // 2:  # no room for a table beside the lines
                legend = {"displayMode": "list", "placement": "bottom", "calcs": [], "showLegend": True}
                panel = {**panel, "options": {**panel["options"], "legend": legend}}
            placed.append({"id": len(placed) + 1, **panel, "gridPos": place})
            x += width
        y += row.height
    return placed
