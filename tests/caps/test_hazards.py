"""What goes wrong in clusters that do everything right."""

import pytest

from exporter.caps.contract import read
from exporter.caps.requests import Limits, limits
from exporter.model import PodContainer

MIB = 1 << 20
CAPACITY = 81559 * MIB
MAIN = (PodContainer("main"),)
C = "nvidia.com/container.main."


def test_a_limit_alone_gets_a_request_above_it_from_the_scheduler():
    caps = read({f"{C}gpu-memory.limit": "6Gi", f"{C}gpu-memory.request": "6524Mi", f"{C}gpus.devices": "GPU-a"}, MAIN)
    assert limits(caps.of("main"), CAPACITY) == Limits(6144 * MIB, 6144 * MIB)
    (error,) = caps.errors
    assert (error.container, error.key, error.reason) == ("main", f"{C}gpu-memory.request", "request_above_limit")
    assert "6524Mi" in error.sentence
    assert "6Gi" in error.sentence


@pytest.mark.parametrize(
    ("annotations", "key"),
    [
        ({"gpu-memory": "8192", "gpu-memory.limit": "4Gi"}, "gpu-memory"),
        ({"gpu-fraction": "0.8", "gpu-fraction.limit": "0.5"}, "gpu-fraction"),
    ],
)
def test_shorthands_are_clamped_likewise(annotations, key):
    caps = read(annotations, MAIN)
    assert [(error.key, error.reason) for error in caps.errors] == [(key, "request_above_limit")]
    assert caps.of("main").requested == caps.of("main").limit
    assert not limits(caps.of("main"), CAPACITY).clamped


def test_bytes_above_a_share_are_clamped_once_the_capacity_is_known():
    caps = read({f"{C}gpu-memory.request": "50Gi", "gpu-fraction": "0.4", "gpu-fraction.limit": "0.5"}, MAIN)
    assert caps.errors == ()
    assert limits(caps.of("main"), 80 << 30) == Limits(40 << 30, 40 << 30, clamped=True)
    assert limits(caps.of("main"), 120 << 30) == Limits(50 << 30, 60 << 30)
    assert limits(caps.of("main"), None) == Limits(50 << 30, None)


def test_the_schedulers_two_decimals_go_before_the_fraction_that_was_asked_for():
    caps = read({"gpu-fraction": "0.0753", f"{C}gpu-memory.request": "6524Mi"}, MAIN)
    assert caps.errors == ()
    assert limits(caps.of("main"), CAPACITY).limit == 6524 * MIB


def test_a_pod_without_a_device_list_has_its_cap_all_the_same():
    caps = read({f"{C}gpu-memory.limit": "6Gi"}, MAIN)
    assert (caps.of("main").devices, caps.of("main").device_count) == ((), None)
    assert limits(caps.of("main"), None).limit == 6144 * MIB


def test_an_annotation_that_is_edited_is_read_as_it_stands():
    before = {f"{C}gpu-memory.limit": "6Gi"}
    assert limits(read(before | {f"{C}gpu-memory.limit": "12Gi"}, MAIN).of("main"), None).limit == 12 << 30
    edited = read(before | {f"{C}gpu-memory.limit": "12GB"}, MAIN)
    assert not edited.requests
    assert edited.errors


def test_a_scheduler_and_an_agent_of_different_versions():
    caps = read({"gpu-fraction": "0.5", "received-resource-type": "Regular"}, MAIN)
    assert [error.reason for error in caps.errors] == ["scheduler_mismatch"]
    assert limits(caps.of("main"), CAPACITY).limit == 40779 * MIB
    assert read({"received-resource-type": "Regular"}, MAIN).errors == ()
