"""The worked example and the queries of docs/chargeback.md, computed."""

import re
from pathlib import Path

import pytest

from tests.rules.conftest import GROUPS
from tests.rules.test_recording import GIB, METHODS, charged, growing, level, node
from tests.rules.timelines import CONTAINER, DEVICE

PAGE = (Path(__file__).parents[2] / "docs" / "chargeback.md").read_text()


def table(name):
    """The rows of a table below a marker, as lists of cells."""
    text = PAGE.partition(f"<!-- example: {name} -->\n")[2].partition("\n\n")[0]
    return [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in text.splitlines() if "---" not in row]


def queries():
    return re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def example():
    amounts = {row[0]: int(row[1]) for row in table("input")[1:]}
    capacity, overhead = amounts.pop("capacity"), amounts.pop("overhead")
    return charged(DEVICE, overhead, amounts, capacity=capacity)


def test_the_example_is_what_the_rules_compute(promtool, example):
    header, *rows = table("charges")
    assert tuple(header[1:]) == METHODS
    expected = {
        f'{{method="{method}",namespace="{row[0]}"}}': float(value)
        for row in rows
        for method, value in zip(METHODS, row[1:], strict=True)
        if row[0] != "sum" and value != "-"
    }
    sums = {f'{{method="{m}"}}': float(value) for m, value in zip(METHODS, rows[-1][1:], strict=True)}
    charges = "namespace_gpu:podgpu_charged_byte_seconds:increase1h"
    assert (
        promtool(
            node(
                example,
                (f"round(sum by (method, namespace) ({charges}) / 3600 / 2^30, 0.0001)", expected),
                (f"round(sum by (method) ({charges}) / 3600 / 2^30, 0.0001)", sums),
            )
        )
        == ""
    )


def test_the_example_of_too_many_promises(promtool):
    promised = {"research": 60, "vision": 36}
    assert "`research` been guaranteed 60 GiB and `vision` 36" in " ".join(PAGE.split())
    paid = [float(value) for value in re.search(r"pay ([\d.]+) and ([\d.]+)", PAGE).groups()]
    expected = {
        f'{{method="{method}",namespace="{name}"}}': value
        for method in METHODS
        for name, value in zip(promised, paid, strict=True)
    }
    charges = 'namespace_gpu:podgpu_charged_byte_seconds:increase1h{namespace!~"__.*"}'
    assert (
        promtool(
            node(
                charged(DEVICE, 2, promised),
                (f"round(sum by (method, namespace) ({charges}) / 3600 / 2^30, 0.0001)", expected),
                ("round(sum(gpu:podgpu_idle_byte_seconds:increase1h))", {"{}": 0}),
            )
        )
        == ""
    )


def test_the_gpu_hours_of_the_example(promtool, example):
    said = re.search(r"`research` ([\d.]+) of an hour by `idle-separate`, ([\d.]+) .*?, ([\d.]+) by", PAGE).groups()
    expected = {f'{{method="{method}"}}': float(hours) for method, hours in zip(METHODS, said, strict=True)}
    hours = 'namespace:podgpu_charged_gpu_hours:increase1h{namespace="research"}'
    assert promtool(node(example, (f"round(sum by (method) ({hours}), 0.0001)", expected))) == ""


def test_four_pods_with_a_quarter_each_add_up_to_one_gpu_hour(promtool):
    series = [
        level("podgpu_device_memory_capacity_bytes", 80 * GIB, DEVICE),
        growing("podgpu_device_memory_byte_seconds_total", 80 * GIB, {**DEVICE, "class": "containers"}),
        *(
            growing("podgpu_container_memory_committed_byte_seconds_total", 20 * GIB, pod=f"pod-{number}")
            for number in range(4)
        ),
    ]
    expected = {f'{{method="{method}"}}': 1 for method in METHODS}
    hours = 'namespace:podgpu_charged_gpu_hours:increase1h{namespace="research"}'
    assert promtool(node(series, (f"round(sum by (method) ({hours}), 0.000001)", expected))) == ""


def test_a_day_is_the_sum_of_its_hours(promtool, example):
    """24 hours of the example, from full hour to full hour."""
    day = next(query for query in queries() if "[1d:1h]" in query and "2^30" in query)
    test = node(example, (f"round({day}, 0.01)", {}), at=24 * 60)
    _, *rows = table("charges")
    test["promql_expr_test"][0]["exp_samples"] = [
        {"labels": f'{{method="{method}",namespace="{row[0]}"}}', "value": 24 * float(value)}
        for row in rows
        for method, value in zip(METHODS, row[1:], strict=True)
        if row[0] != "sum" and value != "-"
    ]
    assert promtool(test) == ""


def test_the_larger_share(promtool):
    series = [
        *charged(DEVICE, 0, {"memory-heavy": 40, "thread-heavy": 8}),
        growing("podgpu_container_mps_thread_ratio_seconds_total", 10, namespace="memory-heavy"),
        growing("podgpu_container_mps_thread_ratio_seconds_total", 60, namespace="thread-heavy"),
    ]
    query = next(query for query in queries() if "resource" in query).replace("/ 3600,", "/ 360000,")  # in percent
    expected = {'{gpu_uuid="GPU-1",namespace="memory-heavy"}': 0.5, '{gpu_uuid="GPU-1",namespace="thread-heavy"}': 0.6}
    assert promtool(node(series, (f"round({query}, 0.0001)", expected))) == ""


def test_teams_add_up(promtool):
    series = [
        growing("podgpu_container_memory_committed_byte_seconds_total", 2 * GIB, pod="train-0"),
        growing("podgpu_container_memory_committed_byte_seconds_total", 3 * GIB, pod="train-1"),
        *(
            level(
                "podgpu_pod_labels",
                1,
                {key: CONTAINER[key] for key in ("namespace", "node", "job")},
                pod=pod,
                label_team=team,
            )
            for pod, team in (("train-0", "red"), ("train-1", "blue"))
        ),
    ]
    query = next(query for query in queries() if "label_team" in query).replace("[1d]", "[1h]")
    expected = {'{label_team="red"}': 2, '{label_team="blue"}': 3}
    assert promtool(node(series, (f"round({query}, 0.0001)", expected))) == ""


def test_every_method_of_the_rules_is_on_the_page():
    methods = {
        rule["labels"]["method"] for group in GROUPS for rule in group["rules"] if "method" in rule.get("labels", {})
    }
    assert methods == set(METHODS)
    for method in methods | {"gpu-hours", "share-hours", "dominant-share"}:
        assert f"`{method}`" in PAGE
