"""Each query of a dashboard has an answer on a real Prometheus that scrapes simulated nodes."""

import math
import time

import pytest

from simulator.scenario_file import names
from tests.dashboards.boards import substituted, targets
from tests.e2e.conftest import NODES, eventually
from tests.promql import metrics
from tests.rules.conftest import GROUPS, RECORDED

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

_RECORDED = {rule["record"]: metrics(rule["expr"]) for rule in RECORDED}
_LOOKS_BACK = 125  # seconds, in which there are two full minutes whenever it begins
_DCGM = {"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL"}  # of another exporter
# What no scenario of NODES has.
_NOT_SIMULATED = {
    "podgpu_container_mps_active_thread_ratio",
    "podgpu_container_mps_clients",
    "podgpu_container_mps_thread_ratio_seconds_total",
    "podgpu_mps_active_thread_ratio",
    "podgpu_mps_daemon_up",
    "podgpu_mps_pinned_memory_limit_bytes",
    "podgpu_mps_server_clients",
    "podgpu_mps_server_state",
}


def scraped(query):
    """The scraped metrics that a query needs, through the rules."""
    found = set()
    for name in metrics(query):
        found |= set().union(*(scraped(inner) for inner in _RECORDED[name])) if name in _RECORDED else {name}
    return found


ALL = [(name, panel, substituted(target["expr"], __range="2m")) for name, _, panel, target in targets()]
ANSWERABLE = [one for one in ALL if not scraped(one[2]) & _NOT_SIMULATED]


@pytest.fixture(scope="module")
def aged(stack):
    """The stack, when it has two full minutes behind it."""
    eventually(
        lambda: stack.query(f"time() - min_over_time(timestamp(up)[10m:1s]) > {_LOOKS_BACK}"),
        patience=2 * _LOOKS_BACK,
        what="two minutes of scrapes",
    )
    return stack


@pytest.mark.parametrize(("panel", "query"), [one[1:] for one in ANSWERABLE], ids=[one[0] for one in ANSWERABLE])
def test_it_has_an_answer(aged, panel, query):
    if panel["type"] == "timeseries":
        now = time.time()
        result = aged.ask("query_range", query=query, start=f"{now - 60}", end=f"{now}", step="5")["result"]
        values = [float(value) for series in result for _, value in series["values"]]
    else:
        values = [value for _, value in aged.query(query)]
    assert values
    assert all(math.isfinite(value) for value in values)


def test_every_metric_that_is_asked_for_is_there(aged):
    """A query that ends in `or vector(0)` has an answer even where nothing is."""
    asked = set().union(*(metrics(query) for _, _, query in ANSWERABLE))
    missing = [name for name in sorted(asked) if not aged.query(f"count({name})")]
    assert not missing


def test_what_is_not_simulated_is_not_there(aged):
    """Otherwise its queries should be asked as well."""
    assert "mps-v3" not in set(names()) - set(NODES.values()), "there is a scenario with an MPS daemon: use it"
    assert [name for name in sorted(_NOT_SIMULATED) if aged.query(f"count({name})")] == []


def test_every_rule_is_evaluated_without_an_error(aged):
    rules = [rule for group in aged.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == sum(len(group["rules"]) for group in GROUPS)
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []


def test_every_rule_that_can_records_something(aged):
    expected = {name for name in _RECORDED if not scraped(name) & (_NOT_SIMULATED | _DCGM)}
    assert expected
    missing = [name for name in sorted(expected) if not aged.query(f"count({name})")]
    assert not missing


def test_containers_add_up_to_what_each_device_says(aged):
    """At one instant of one scrape: the sum over containers is the device's class, byte for byte."""
    differs = """
        sum by (node, gpu) (podgpu_container_memory_used_bytes)
        - sum by (node, gpu) (podgpu_device_memory_bytes{class="containers"})
        != 0
    """
    assert aged.query("count(podgpu_container_memory_used_bytes) > 0")
    assert aged.query(differs) == []


def test_levels_add_up(aged):
    for above in ("workload", "namespace"):
        total = f"sum({above}:podgpu_container_memory_used_bytes:sum) / sum(podgpu_container_memory_used_bytes)"
        ((_, ratio),) = aged.query(total)
        assert ratio == pytest.approx(1, abs=0.1)  # rules are evaluated up to a second after the scrape


def test_the_pods_of_both_nodes_are_there_under_their_own_names(aged):
    found = {
        (labels["node"], labels["namespace"], labels["pod"])
        for labels, _ in aged.query("podgpu_container_memory_used_bytes")
    }
    assert {node for node, _, _ in found} == set(NODES)
    assert ("node-a", "research", "llm-train-0") in found
    assert not [one for one in found if one[1] == "monitoring"]
    assert aged.query("count({__name__=~'podgpu_.*',exported_namespace!=''}) or vector(0)") == [({}, 0)]
