"""The Alertmanager example: it is valid, each alert reaches who it should, and inhibitions name alerts that exist."""

import re

import pytest
import yaml

from tests.rules.cases import CASES
from tests.rules.conftest import ALERTS, DASHBOARDS, program, run

EXAMPLE = DASHBOARDS / "alertmanager" / "alertmanager.yaml"
LABELS = {case.alert: case.labels for case in CASES}


def receivers(labels):
    command = ("amtool", "config", "routes", "test", f"--config.file={EXAMPLE}")
    done = run(program(command[0]), *command[1:], *(f"{name}={value}" for name, value in labels.items()))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split(",")


def test_it_is_valid():
    done = run(program("amtool"), "check-config", str(EXAMPLE))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("alert", "namespace", "receiver"),
    [
        ("PodgpuPodMemoryOverLimit", "research", "team-research"),
        ("PodgpuJobMemoryOverLimit", "vision", "team-vision"),
        ("PodgpuPodMemoryNearLimit", "vision", "team-vision"),
        ("PodgpuPodMemoryOverLimit", "nobody-said-whose", "platform-pager"),
        ("PodgpuCapNotEnforced", "research", "platform"),
        ("PodgpuUseWithoutAllocation", "research", "platform"),
        ("PodgpuExporterDown", None, "platform"),
        ("PodgpuExporterAbsent", None, "platform-pager"),
        ("PodgpuMpsDaemonDown", None, "platform-pager"),
        ("PodgpuIdleReservation", "research", "digest"),
        ("PodgpuWholeGpuIsShared", "vision", "digest"),
    ],
)
def test_who_is_told(alert, namespace, receiver):
    labels = {"alertname": alert, **LABELS[alert]}
    if namespace is not None:
        labels["namespace"] = namespace
    assert receivers(labels) == [receiver]


def test_inhibitions_match_alerts_that_exist_by_labels_that_both_have():
    for rule in yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]:
        sides = []
        for matchers in (rule["source_matchers"], rule["target_matchers"]):
            pattern = re.fullmatch(r'alertname=~?"(.*)"', matchers[0])[1]
            for part in pattern.split("|"):
                assert any(re.fullmatch(part, alert) for alert in ALERTS), part
            sides.append([alert for alert in ALERTS if re.fullmatch(pattern, alert)])
        needed = set(rule["equal"]) - {"cluster"}  # absent on both sides is equal too
        for alert in (*sides[0], *sides[1]):
            assert needed <= LABELS[alert].keys(), (alert, needed)
        assert not set(sides[0]) & set(sides[1]), "an alert would silence itself"
