"""The documentation against what it is about: links lead somewhere, and what is named exists."""

import re
from urllib.parse import unquote

import pytest
import yaml

from exporter.settings import FLAGS
from tests.deploy.manifests import CHART, COMPONENTS, ROOT
from tests.promql import known, labels_of

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
ELSEWHERE = {"--mode", "--set", "--namespace", "--create-namespace", "--overwrite", "--target", "--tag", "--mps"}


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def fenced(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text()), target


def test_every_page_is_in_the_index():
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text()))
    assert listed == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", ["install.md", "upgrading.md", "troubleshooting.md", "comparison.md"])
def test_components_and_values_exist(page):
    text = (DOCS / page).read_text()
    names = {path.name for path in COMPONENTS}
    for named in re.findall(r"[Cc]omponents? ((?:`[\w-]+`(?:, | and | or )?)+)", text):
        assert set(re.findall(r"`([\w-]+)`", named)) <= names
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in re.findall(r"--set (\w[\w.]*)=", text):
        value = values
        for part in path.split("."):
            if part == "release":  # a label of the user's own
                break
            assert part in value, path
            value = value[part]


@pytest.mark.parametrize("page", ["install.md", "troubleshooting.md"])
def test_flags_exist(page):
    text = (DOCS / page).read_text()
    flags = {f"--{flag.name}" for flag in FLAGS}
    for named in re.findall(r"`(--[a-z][\w.-]+)", text):
        assert named in flags | ELSEWHERE, named


@pytest.mark.parametrize("page", ["install.md", "comparison.md"])
def test_queries_ask_for_metrics_and_labels_that_exist(page):
    names = {
        **known(),
        "DCGM_FI_DEV_POWER_USAGE": frozenset({"UUID", "gpu", "job", "instance"}),
    }
    queries = fenced(DOCS / page, "promql")
    assert queries
    for query in queries:
        labels_of(query, {name: labels | {"node"} for name, labels in names.items()})


@pytest.mark.parametrize("page", [*PAGES, *sorted(DOCS.glob("runbooks/*.md"))], ids=lambda page: page.name)
def test_metrics_that_are_named_exist(page):
    rules = yaml.safe_load((ROOT / "dashboards/rules/podgpu.rules.yaml").read_text())
    recorded = {rule["record"] for group in rules["groups"] for rule in group["rules"]}
    for name in re.findall(r"`(podgpu_[a-z_]+)[`{ ]", page.read_text()):
        assert re.sub("_(bucket|count|sum)$", "", name) in known() or name in recorded, name


def test_yaml_examples_are_yaml():
    for page in PAGES:
        for block in fenced(page, "yaml"):
            assert yaml.safe_load(block) is not None


def test_the_plain_prometheus_example_keeps_labels_and_finds_the_port():
    (example,) = yaml.safe_load(fenced(DOCS / "install.md", "yaml")[0])
    assert example["honor_labels"] is True
    assert example["job_name"] == "podgpu"
    assert {"node"} == {each["target_label"] for each in example["relabel_configs"] if "target_label" in each}
