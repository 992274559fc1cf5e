"""What every rule must be like: names, labels, wording, runbooks; and nothing in it that does not exist."""

import re

import pytest

from tests.promql import QueryError, known, labels_of, metrics
from tests.rules.cases import CASES
from tests.rules.conftest import ALERTS, DASHBOARDS, GROUPS, RECORDED, RULES, program, recorded, run

RUNBOOKS = DASHBOARDS.parent / "docs" / "runbooks"
LEVELS = {
    "pod": {"namespace", "pod"},
    "pod_gpu": {"namespace", "pod", "gpu_uuid"},
    "workload": {"namespace", "workload_kind", "workload"},
    "namespace": {"namespace"},
    "namespace_gpu": {"namespace", "gpu_uuid"},
    "node": {"node"},
    "gpu": {"gpu_uuid"},
}
ABOVE = {"pod": {"container"}, "namespace": {"pod", "container"}, "workload": {"pod", "container"}}
each_alert = pytest.mark.parametrize("alert", sorted(ALERTS))


@pytest.mark.parametrize("path", sorted(RULES.glob("*.yaml")), ids=lambda path: path.name)
def test_promtool_finds_nothing_to_say(path):
    done = run(program("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_and_label_of_the_rules_exists():
    names = {**known(), **recorded()}
    for rule in ALERTS.values():
        labels_of(rule["expr"], names)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("podgpu_container_memory_usd_bytes", "no metric"),
        ("sum by (pods) (podgpu_container_memory_used_bytes)", "pods"),
        ('podgpu_device_memory_bytes{clas="free"}', "clas"),
        ('podgpu_device_memory_bytes{class="fre"}', "never fre"),
        ("podgpu_container_memory_used_bytes / podgpu_device_memory_capacity_bytes", "never matches"),
        ("podgpu_device_up * on (gpu_uid) group_left () podgpu_device_up", "gpu_uid"),
        ("podgpu_device_up * on (gpu_uuid) group_left (nam) podgpu_device_info", "nam"),
        ('label_replace(podgpu_device_up, "a", "$1", "UUID", "(.*)")', "UUID"),
        ("sum(", "sum("),
    ],
)
def test_what_does_not_exist_is_found(query, says):
    with pytest.raises(QueryError, match=re.escape(says)):
        labels_of(query, known())


def test_recorded_names_say_their_level_and_operation():
    for name, labels in recorded().items():
        level, _, operation = name.split(":")
        assert LEVELS[level] <= labels, name
        assert not ABOVE.get(level, set()) & labels, name
        assert re.fullmatch(r"sum|max|share|info|increase1h", operation), name


def test_a_name_is_recorded_once_for_each_set_of_static_labels():
    keys = [(rule["record"], tuple(sorted(rule.get("labels", {}).items()))) for rule in RECORDED]
    assert len(keys) == len(set(keys))


def test_group_names_are_ours_and_unique():
    names = [group["name"] for group in GROUPS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"podgpu\.[a-z]+", name) for name in names)


@each_alert
def test_an_alert_has_all_that_people_need(alert):
    rule = ALERTS[alert]
    assert re.fullmatch(r"Podgpu([A-Z][a-z]+)+", alert)
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert "for" in rule
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert "{{" not in rule["annotations"]["summary"], "a summary names no values, so that it can be grouped by"
    assert "$labels" in rule["annotations"]["description"] or alert == "PodgpuExporterAbsent"
    assert rule["annotations"]["runbook_url"] == f"https://podgpu.example/runbooks/{alert}.md"


@each_alert
def test_an_alert_compares_or_it_would_always_fire(alert):
    assert re.search(r"==|[<>]|\babsent\b", ALERTS[alert]["expr"])


@each_alert
def test_b_alerts_keep_the_labels_that_tell_where(alert):
    labels = labels_of(ALERTS[alert]["expr"], {**known(), **recorded()})
    expected = next(case.labels for case in CASES if case.alert == alert).keys() - {"severity"}
    assert expected <= labels
    assert not labels & {"uid", "pid"}


@each_alert
def test_an_alert_has_a_runbook_with_every_part(alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert re.findall(r"^#+ .*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE) == [
        f"# {alert}",
        *("## Meaning", "## Impact", "## Diagnosis", "## Mitigation"),
    ]
    for part in re.split(r"^## \w+$", text, flags=re.MULTILINE)[1:]:
        assert len(part.split()) >= 15, f"a part says too little: {part}"
    assert "```" in text, "a runbook has commands"


def test_no_runbook_without_alert():
    assert {path.stem for path in RUNBOOKS.glob("Podgpu*.md")} == set(ALERTS)


@each_alert
def test_the_queries_of_a_runbook_exist(alert):
    text = (RUNBOOKS / f"{alert}.md").read_text()
    names = {**known(), **recorded()}
    for query in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
        for one in re.split(r"\n\n|(?<=\S)\n(?=\w)", query.strip()):
            labels_of(one, names)
    for name in re.findall(r"\bpodgpu_[a-z_]+\b", text):
        assert name in names, f"there is no metric {name}"


def test_metrics_are_found_at_any_depth():
    assert metrics("sum(rate(up[5m])) / on () group_left () max_over_time(podgpu_device_up[1h:1m])") == {
        "up",
        "podgpu_device_up",
    }
