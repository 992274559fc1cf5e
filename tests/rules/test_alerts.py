"""Every alert through quiet, pending, firing and resolved, and through the end of what it is about."""

import re

import pytest

from tests.rules.cases import CASES
from tests.rules.conftest import ALERTS
from tests.rules.timelines import TARGET, Timing, lifecycle, minutes, vanishing

ABOUT_THE_EXPORTER = ("PodgpuExporterDown", "PodgpuExporterAbsent")
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)


def timing(case):
    rule = ALERTS[case.alert]
    return Timing(minutes(rule["for"]), minutes(rule.get("keep_firing_for", "0m")))


def test_every_alert_has_its_case():
    assert sorted(case.alert for case in CASES) == sorted(ALERTS)


@each_case
def test_quiet_pending_firing_resolved(case, promtool):
    assert promtool(lifecycle(case, timing(case))) == ""


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.alert not in ABOUT_THE_EXPORTER], ids=lambda case: case.alert
)
def test_it_resolves_when_the_pod_or_the_exporter_is_gone(case, promtool):
    tests = (vanishing(case, timing(case), down=False), vanishing(case, timing(case), down=True))
    assert promtool(*tests) == ""


def test_an_exporter_that_is_no_target_any_more_is_not_down_but_the_last_one_is_missed(promtool):
    test = {
        "interval": "1m",
        "input_series": [{"series": 'up{job="podgpu",instance="10.0.0.1:9836",node="node-a"}', "values": "0x9 stale"}],
        "alert_rule_test": [
            {
                "eval_time": "9m",
                "alertname": "PodgpuExporterDown",
                "exp_alerts": [{"exp_labels": {"severity": "warning", **TARGET}}],
            },
            {"eval_time": "15m", "alertname": "PodgpuExporterDown", "exp_alerts": []},
            {
                "eval_time": "15m",
                "alertname": "PodgpuExporterAbsent",
                "exp_alerts": [{"exp_labels": {"severity": "critical"}}],
            },
        ],
    }
    assert promtool(test) == ""


@each_case
def test_the_text_names_what_it_is_about(case, promtool):
    """promtool shows the rendered annotations of an alert that was not expected."""
    test = lifecycle(case, timing(case))
    test.pop("promql_expr_test")
    for check in test["alert_rule_test"]:
        check["exp_alerts"] = []
    said = promtool(test, annotations=True)
    assert "<error" not in said
    description = re.search(r'description="((?:[^"\\]|\\.)*)"', said)
    assert description, said
    assert "<no value>" not in said
    named = {"pod", "namespace", "node", "workload", "pipe_directory", "source"} & case.labels.keys()
    for label in named:
        assert case.labels[label] in description[1], f"{label} is not in: {description[1]}"


@each_case
def test_a_template_uses_only_labels_that_the_alert_has(case):
    used = set(re.findall(r"\$labels\.(\w+)", str(ALERTS[case.alert]["annotations"])))
    assert used <= case.labels.keys() | {"gpu_instance"}  # a label that is empty on most GPUs


def test_a_cap_is_no_news_where_nothing_applies_caps(promtool):
    case = next(case for case in CASES if case.alert == "PodgpuCapNotEnforced")
    test = lifecycle(case, timing(case))
    test.pop("promql_expr_test")
    test["input_series"] = [entry for entry in test["input_series"] if "applied" not in entry["series"]]
    for check in test["alert_rule_test"]:
        check["exp_alerts"] = []
    assert promtool(test) == ""


def test_a_small_overrun_is_within_tolerance(promtool):
    case = next(case for case in CASES if case.alert == "PodgpuPodMemoryOverLimit")
    test = lifecycle(case, timing(case))
    test.pop("promql_expr_test")
    for entry in test["input_series"]:
        if "overrun" in entry["series"]:
            entry["values"] = re.sub(r"\b2147483648\b", str((8 << 30) // 100), entry["values"])
    for check in test["alert_rule_test"]:
        check["exp_alerts"] = []
    assert promtool(test) == ""
