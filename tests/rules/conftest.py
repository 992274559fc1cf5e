"""The rules as files, and promtool to evaluate them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.promql import known, labels_of
from tools.debian_packages import find

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
RULES = DASHBOARDS / "rules"
GROUPS = tuple(group for path in sorted(RULES.glob("*.yaml")) for group in yaml.safe_load(path.read_text())["groups"])
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RECORDED = [rule for group in GROUPS for rule in group["rules"] if "record" in rule]


def recorded() -> dict[str, frozenset[str]]:
    """The labels of every recorded series, each rule checked on the way."""
    names = known()
    found: dict[str, frozenset[str]] = {}
    for rule in RECORDED:
        labels = labels_of(rule["expr"], {**names, **found}) | rule.get("labels", {}).keys()
        found[rule["record"]] = found.get(rule["record"], labels) | labels
    return found


def program(name: str) -> str:
    """Where a program is. One that is missing fails the test that needs it."""
    found = find(name)
    assert found is not None, f"{name} is missing; `make tools` fetches it"
    return str(found)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def promtool(tmp_path: Path) -> Callable[..., str]:
    """Evaluates the rules on a timeline with `promtool test rules`; returns what it says, empty when all is expected.

    Annotations are stripped unless they are asked for, so that wording can change without a change here.
    """

    def test(*tests: dict[str, Any], annotations: bool = False) -> str:
        groups = [
            {
                **group,
                "rules": [
                    {key: value for key, value in rule.items() if annotations or key != "annotations"}
                    for rule in group["rules"]
                ],
            }
            for group in GROUPS
        ]
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
        content = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": "1m",
            "group_eval_order": [group["name"] for group in sorted(groups, key=_recording_first)],
            "tests": list(tests),
        }
        (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
        done = run(program("promtool"), "test", "rules", str(tmp_path / "tests.yaml"))
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "FAILED" in said, said
        return said if done.returncode else ""

    return test


def _recording_first(group: dict[str, Any]) -> bool:
    return any("alert" in rule for rule in group["rules"])
