"""Manifests that wrap rules and dashboards hold what those say now."""

import json
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import CHART, DEPLOY, ROOT
from tools.manifests import files


@pytest.mark.parametrize(
    ("path", "content"), [*files()], ids=lambda value: value.name if isinstance(value, Path) else ""
)
def test_derived_files_are_up_to_date(path, content):
    assert path.read_text() == content, "run `make manifests`"


def test_the_rules_are_all_there_recording_before_alerting():
    groups = yaml.safe_load((DEPLOY / "components/prometheusrule/rules.yaml").read_text())["spec"]["groups"]
    originals = [
        group
        for path in sorted((ROOT / "dashboards/rules").glob("*.yaml"))
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    assert sorted(groups, key=lambda group: group["name"]) == sorted(originals, key=lambda group: group["name"])
    kinds = ["alert" in group["rules"][0] for group in groups]
    assert kinds == sorted(kinds)


DASHBOARDS = sorted((ROOT / "dashboards").glob("podgpu-*.json"))


def test_all_dashboards_are_in_the_component_and_in_the_chart():
    component = yaml.safe_load((DEPLOY / "components/dashboards/kustomization.yaml").read_text())
    assert component["resources"] == [f"{path.stem}.yaml" for path in DASHBOARDS]
    assert sorted((CHART / "files").glob("*.json")) == [CHART / "files" / path.name for path in DASHBOARDS]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_s_config_map_holds_the_dashboard(path):
    wrapped = yaml.safe_load((DEPLOY / f"components/dashboards/{path.stem}.yaml").read_text())
    assert json.loads(wrapped["data"][path.name]) == json.loads(path.read_text())
    assert len(json.dumps(wrapped)) < 262144  # kubectl keeps a copy in an annotation, which may be no larger


def test_the_chart_s_files_are_the_originals():
    for path in sorted((CHART / "files").iterdir()):
        assert path.is_symlink()
        assert path.resolve().is_file()
        assert path.resolve().is_relative_to(ROOT)
