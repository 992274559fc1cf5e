"""The committed dashboards, and their queries as a Prometheus gets them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "dashboards"
BOARDS: dict[str, dict[str, Any]] = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
VALUES = {
    "$__rate_interval": "1m",
    "$__range": "1h",
    "$cluster": ".*",
    "$namespace": ".+",
    "$workload": ".+",
    "$gpu": ".+",
    "$method": "idle-separate",
}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels but the rows' headings."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def targets() -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Every query: a name for it, the dashboard's file, the panel, the target."""
    return [
        (f"{file[:-5]} / {panel['title']} / {target['refId']}", file, panel, target)
        for file, board in BOARDS.items()
        for panel in panels(board)
        for target in panel["targets"]
    ]


def substituted(expr: str, **values: str) -> str:
    """A query with a value for each variable. Raises KeyError for a variable that nobody knows."""
    given = {**VALUES, **{f"${name}": value for name, value in values.items()}}
    return re.sub(r"\$\w+", lambda found: given[found[0]], expr)
