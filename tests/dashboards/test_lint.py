"""What Grafana's linter for dashboards asks for, and that nothing is asked of Prometheus that does not exist."""

import re

import pytest

from tests.dashboards.boards import BOARDS, panels, substituted, targets
from tests.promql import functions, known, labels_of, metrics
from tests.rules.conftest import recorded

UNITS = {"bytes", "percentunit", "none", "s", "ops", "suffix:h", "suffix:GiBh"}
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_EVERY = ("datasource", "cluster", "namespace", "workload", "gpu")
NAMES = {**known(), **recorded()}
ALL = targets()

each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
each_panel = pytest.mark.parametrize(
    "panel",
    [panel for board in BOARDS.values() for panel in panels(board)],
    ids=[f"{file[:-5]} / {panel['title']}" for file, board in BOARDS.items() for panel in panels(board)],
)
each_target = pytest.mark.parametrize(
    ("file", "panel", "target"), [one[1:] for one in ALL], ids=[one[0] for one in ALL]
)


def variables(board):
    return {one["name"]: one for one in board["templating"]["list"]}


@each_board
def test_variables(board):
    found = variables(board)
    assert tuple(found)[: len(_EVERY)] == _EVERY
    assert (found["datasource"]["type"], found["datasource"]["query"]) == ("datasource", "prometheus")
    assert found["datasource"]["label"] == "Data source"
    for name in _EVERY[1:]:
        variable = found[name]
        assert variable["datasource"] == _DATASOURCE
        assert variable["refresh"] == 2, "values follow the time range"
        assert (variable["multi"], variable["includeAll"]) == (True, True)
        # Where there is only one cluster nothing has the label, and `.+` would match nothing.
        assert variable["allValue"] == (".*" if name == "cluster" else ".+")
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]).groups()
        assert label in labels_of(substituted(selector), NAMES)


@each_board
def test_every_variable_is_used(board):
    text = str(board["panels"]) + str([one["query"] for one in board["templating"]["list"]])
    for name in variables(board):
        assert re.search(rf"\$\{{?{name}\b", text), f"{name} changes nothing"


@each_panel
def test_a_panel_says_what_it_shows(panel):
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["datasource"] == _DATASOURCE
    assert panel["targets"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@each_panel
def test_a_tables_columns_have_units(panel):
    if panel["type"] == "table":
        columns = {target["legendFormat"] for target in panel["targets"]}
        overridden = {
            override["matcher"]["options"]: {one["id"]: one["value"] for one in override["properties"]}["unit"]
            for override in panel["fieldConfig"]["overrides"]
        }
        assert overridden.keys() == columns
        assert set(overridden.values()) <= UNITS
        assert panel["options"]["sortBy"][0]["displayName"] in columns


@each_target
def test_every_metric_and_label_exists(file, panel, target):
    labels = labels_of(substituted(target["expr"]), NAMES)
    if panel["type"] != "table":
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert legend <= labels, "a label of the legend is not in the answer"


@each_panel
def test_a_tables_queries_have_the_same_labels(panel):
    """Rows are merged by them."""
    if panel["type"] == "table":
        (labels,) = {labels_of(substituted(target["expr"]), NAMES) for target in panel["targets"]}
        order = panel["transformations"][-1]["options"]["indexByName"]
        assert labels == {name for name in order if not name.startswith("Value")}


@each_target
def test_counters_are_rated_and_nothing_else_is(file, panel, target):
    query = substituted(target["expr"])
    rated = set()
    for name, inside in functions(query):
        if name in ("rate", "irate", "increase"):
            rated |= inside
            assert all(metric.endswith("_total") for metric in inside)
    assert {metric for metric in metrics(query) if metric.endswith("_total")} <= rated


@each_target
def test_ranges_follow_the_dashboard(file, panel, target):
    for written in re.findall(r"\[([^\]]+)\]", target["expr"]):
        assert written in ("$__rate_interval", "$__range", "$__range:1m")
    if panel["type"] == "timeseries":
        assert "$__range" not in target["expr"], "each point would be the whole range's"


@each_target
def test_a_choice_of_clusters_reaches_every_selector(file, panel, target):
    for selector in re.findall(r"\b(?:\w+:)*podgpu_[\w:]+(?:\{[^}]*\})?", target["expr"]):
        assert 'cluster=~"$cluster"' in selector, selector


@each_target
def test_tables_and_single_values_are_of_now(file, panel, target):
    assert target["instant"] == (panel["type"] != "timeseries")
    assert target["datasource"] == _DATASOURCE
