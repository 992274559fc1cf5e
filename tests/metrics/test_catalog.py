import re

import pytest

from enforcer import metrics as enforcer
from exporter.metrics import catalog
from exporter.metrics.catalog import CONTAINER, DOMAIN, PREFIX, Family

FAMILIES = (*catalog.FAMILIES, *enforcer.GROUP.families)

UNITS = ("bytes", "seconds", "ratio", "byte_seconds")
# Labels that a Prometheus target carries itself, or that clash with what people attach to every target.
TARGET_LABELS = {
    *("cluster", "zone", "region", "env", "service", "owner", "customer", "type"),
    *("namespace", "pod", "container", "node", "instance", "job"),
}
DOCUMENTED = {"namespace", "pod", "container"}  # the workload's: docs/metrics.md demands honorLabels for them

each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def words(family):
    name = family.name.removeprefix(PREFIX)
    return (name.removesuffix("_total") if family.type == "counter" else name).split("_")


def test_every_constant_is_listed_once_and_names_are_unique():
    values = [*vars(catalog).values(), *vars(enforcer).values()]
    constants = [value for value in values if isinstance(value, Family)]
    assert len(constants) == len(FAMILIES)
    assert set(constants) == set(FAMILIES)
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_no_openmetrics_name_is_another_family():
    bare = [family.name.removesuffix("_total") for family in FAMILIES]
    assert len(set(bare)) == len(bare)


@each_family
def test_names_are_prefixed_snake_case_without_colon(family):
    assert re.fullmatch(r"podgpu(_[a-z][a-z0-9]*)+", family.name)
    for label in family.labels:
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", label)
    assert len(set(family.labels)) == len(family.labels)


@each_family
def test_b96_the_unit_ends_the_name_and_is_said_in_the_help(family):
    last = words(family)[-1]
    if family.unit:
        *_, before, _ = words(family)
        assert family.unit == ("byte_seconds" if (before, last) == ("byte", "seconds") else last)
        assert re.search(rf"\b{family.unit.replace('_', '-')}\b", family.meaning.lower())
    else:
        assert last not in UNITS
    assert not set(words(family)) & {"mib", "mb", "gb", "ms", "us", "ns", "percent", "milliseconds"}


@each_family
def test_b95_counters_end_in_total_and_gauges_look_like_nothing_else(family):
    assert family.type in ("gauge", "counter")
    assert family.name.endswith("_total") == (family.type == "counter")
    assert not family.name.endswith(("_sum", "_count", "_bucket", "_created"))


@each_family
def test_info_families_are_gauges_of_one_without_unit(family):
    if family.name.endswith("_info"):
        assert (family.type, family.unit) == ("gauge", "")
        assert family.meaning.startswith("Always 1")


@each_family
def test_no_label_is_part_of_the_name_except_the_subject(family):
    subject, *rest = words(family)
    if subject == "mps":
        subject, *rest = rest  # a daemon, a server
    if rest == ["state"]:
        rest = []  # a state set: one series per state, and the label has its name
    for label in family.labels:
        assert f"_{label}_" not in f"_{'_'.join(rest)}_", f"{label} is in {subject}'s {family.name}"


@each_family
def test_b120_no_label_of_a_target_and_none_that_a_process_chooses(family):
    assert not set(family.labels) & (TARGET_LABELS - DOCUMENTED)
    private = {"pid", "process", "process_name", "command", "user", "uid", "pod_uid", "image"}
    if family in (catalog.POD_INFO, catalog.MPS_SERVER_INFO):
        private.remove("uid")  # an info metric is where it belongs, so that no value series needs it
    assert not set(family.labels) & private


@each_family
def test_b13_labels_start_with_the_level_and_only_the_container_level_has_a_pod(family):
    if family.name.startswith("podgpu_container_"):
        assert family.labels[: len(CONTAINER)] == CONTAINER
    elif family in (catalog.POD_INFO, catalog.ANNOTATION_ERRORS):
        assert family.labels[:2] == CONTAINER[:2]
        assert not set(family.labels) & set(DOMAIN)
    else:
        assert not set(family.labels) & DOCUMENTED
    if family.name.startswith(("podgpu_device_", "podgpu_mig_")):
        assert family.labels[: len(DOMAIN)] == DOMAIN


@each_family
def test_the_help_is_one_line_and_names_its_source(family):
    assert family.meaning.endswith(".")
    assert "\n" not in family.help
    assert family.help == f"{family.meaning} Source: {family.source}."
    assert re.search(
        r"nvml[A-Z]|NVML|kubelet PodResources|kubelet Pods API|MPS control daemon|/proc/|^podgpu\b|^podgpu_",
        family.source,
    )
