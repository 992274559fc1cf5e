"""The forms in which users ask and what admission and the binder make of them, on a GPU of 81559 MiB."""

import pytest

from exporter.caps.contract import read
from exporter.caps.requests import ComputeMode, Limits, limits
from exporter.model import ContainerKind, PodContainer

MIB = 1 << 20
CAPACITY = 81559 * MIB
MAIN = (PodContainer("main"), PodContainer("helper"), PodContainer("gpu-init", ContainerKind.INIT))
C = "nvidia.com/container.main."
REQUEST, LIMIT, DEVICES = f"{C}gpu-memory.request", f"{C}gpu-memory.limit", f"{C}gpus.devices"
PORTION_LIMIT = "kai.scheduler/container.main.gpu-memory.portion.limit"
ONE = {DEVICES: "GPU-5f2c", "received-resource-type": "Fraction"}
CDI = {DEVICES: "k8s.device-plugin.nvidia.com/gpu=GPU-5f2c", "received-resource-type": "Fraction"}

FORMS = [
    ("a fraction", {"gpu-fraction": "0.5"}, {}, 40779, 40779),
    ("a fraction, bound", {"gpu-fraction": "0.5"}, {REQUEST: "40779Mi", **ONE}, 40779, 40779),
    ("a fraction, bound by CDI name", {"gpu-fraction": "0.5"}, {REQUEST: "40779Mi", **CDI}, 40779, 40779),
    (
        "a fraction, bound after a reserve",
        {"gpu-fraction": "0.5"},
        {REQUEST: "40267Mi", f"{C}gpu-compute.portion": "0.5", **ONE},
        40267,
        40267,
    ),
    ("MiB", {"gpu-memory": "4096"}, {}, 4096, 4096),
    ("MiB, admitted", {"gpu-memory": "4096"}, {REQUEST: "4Gi"}, 4096, 4096),
    ("MiB, admitted and bound", {"gpu-memory": "4096"}, {REQUEST: "4Gi", **ONE}, 4096, 4096),
    ("a request", {REQUEST: "7680Mi"}, {}, 7680, 7680),
    ("a request, bound", {REQUEST: "7680Mi"}, ONE, 7680, 7680),
    ("a request and a limit", {REQUEST: "4096Mi", LIMIT: "8192Mi"}, {}, 4096, 8192),
    ("a request and a limit, bound", {REQUEST: "4096Mi", LIMIT: "8192Mi"}, ONE, 4096, 8192),
    ("a limit alone", {LIMIT: "6Gi"}, {}, 6144, 6144),
    ("a fraction and its limit", {"gpu-fraction": "0.5", PORTION_LIMIT: "0.8"}, {}, 40779, 65247),
    ("a fraction and its limit, short", {"gpu-fraction": "0.5", "gpu-fraction.limit": "0.8"}, {}, 40779, 65247),
    (
        "a fraction and its limit, admitted",
        {"gpu-fraction": "0.5", "gpu-fraction.limit": "0.8"},
        {PORTION_LIMIT: "0.8"},
        40779,
        65247,
    ),
    (
        "a fraction and its limit, bound",
        {"gpu-fraction": "0.5", "gpu-fraction.limit": "0.8"},
        {PORTION_LIMIT: "0.8", REQUEST: "40779Mi", LIMIT: "65247Mi", **ONE},
        40779,
        65247,
    ),
    ("MiB and a limit", {"gpu-memory": "4096", "gpu-memory.limit": "8Gi"}, {}, 4096, 8192),
    (
        "MiB and a limit, admitted",
        {"gpu-memory": "4096", "gpu-memory.limit": "8Gi"},
        {REQUEST: "4Gi", LIMIT: "8Gi"},
        4096,
        8192,
    ),
]


@pytest.mark.parametrize(("written", "added", "requested", "limit"), [f[1:] for f in FORMS], ids=[f[0] for f in FORMS])
def test_every_form_gives_the_bytes_that_the_scheduler_gives(written, added, requested, limit):
    caps = read(written | added, MAIN)
    assert caps.errors == ()
    assert list(caps.requests) == ["main"]
    assert limits(caps.requests["main"], CAPACITY) == Limits(requested * MIB, limit * MIB)


def test_a_request_for_two_devices_is_for_each_of_them():
    asked = {REQUEST: "7680Mi", "gpu-fraction-num-devices": "2"}
    assert read(asked, MAIN).of("main").device_count == 2
    caps = read(asked | {DEVICES: "GPU-a,GPU-b"}, MAIN)
    assert caps.errors == ()
    assert (caps.of("main").devices, caps.of("main").device_count) == (("GPU-a", "GPU-b"), 2)
    assert limits(caps.of("main"), CAPACITY) == Limits(7680 * MIB, 7680 * MIB)


@pytest.mark.parametrize(
    "asked",
    [{"gpu-memory": "4096"}, {"gpu-memory": "4096", "nvidia.com/container.gpu-init.gpu-memory.request": "4Gi"}],
)
def test_the_shorthands_are_about_the_named_container_which_may_be_an_init_container(asked):
    caps = read(asked | {"gpu-fraction-container-name": "gpu-init"}, MAIN)
    assert caps.errors == ()
    assert list(caps.requests) == ["gpu-init"]
    assert limits(caps.of("gpu-init"), None).limit == 4096 * MIB


def test_without_a_name_they_are_about_the_first_container_that_is_no_init_container():
    containers = (PodContainer("setup", ContainerKind.INIT), PodContainer("proxy", ContainerKind.SIDECAR), *MAIN)
    assert list(read({"gpu-memory": "4096"}, containers).requests) == ["main"]


def test_modes_without_enforcement_leave_the_fraction_to_be_read():
    caps = read({"gpu-fraction": "0.5", "received-resource-type": "Fraction", "runai/shared-gpu-configmap": "x"}, MAIN)
    assert caps.errors == ()
    assert limits(caps.of("main"), CAPACITY).limit == 40779 * MIB


@pytest.mark.parametrize("kind", [ContainerKind.MAIN, ContainerKind.INIT, ContainerKind.SIDECAR])
def test_each_container_has_its_own_keys(kind):
    containers = (PodContainer("main"), PodContainer("other", kind))
    caps = read({REQUEST: "1Gi", "nvidia.com/container.other.gpu-memory.limit": "2Gi"}, containers)
    assert caps.errors == ()
    assert {name: limits(request, None).limit for name, request in caps.requests.items()} == {
        "main": 1024 * MIB,
        "other": 2048 * MIB,
    }


def test_a_container_put_in_for_debugging_has_no_keys():
    caps = read({REQUEST: "1Gi"}, (PodContainer("main", ContainerKind.EPHEMERAL),))
    assert [error.reason for error in caps.errors] == ["unknown_container"]
    assert not caps.requests


@pytest.mark.parametrize("name", ["gpu-memory.limit", "a.gpu-memory.request", "gpu-memory", "b.gpus.devices.c"])
def test_a_container_may_be_named_like_a_suffix(name):
    containers = (PodContainer(name), PodContainer("a"))
    caps = read({f"nvidia.com/container.{name}.gpu-memory.limit": "2Gi"}, containers)
    assert caps.errors == ()
    assert limits(caps.of(name), None).limit == 2048 * MIB
    assert list(caps.requests) == [name]


def test_the_prefix_is_the_clusters_choice():
    caps = read({"acme.io/gpu.main.gpu-memory.limit": "2Gi"}, MAIN, prefix="acme.io/gpu.")
    assert caps.errors == ()
    assert limits(caps.of("main"), None).limit == 2048 * MIB


@pytest.mark.parametrize(
    ("annotations", "mode", "percentage"),
    [
        ({}, ComputeMode.TIME_SLICING, None),
        ({f"{C}gpu-compute.mode": "sm-sharing"}, ComputeMode.SM_SHARING, None),
        ({"kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"}, ComputeMode.SM_SHARING, None),
        ({f"{C}gpu-compute.mode": "time-slicing", f"{C}gpu-compute.portion": "0.5"}, ComputeMode.TIME_SLICING, None),
        ({f"{C}gpu-compute.portion": "0.5"}, ComputeMode.TIME_SLICING, None),
        ({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.portion": "0.336"}, ComputeMode.SM_SHARING, 33),
        ({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.portion": "0.125"}, ComputeMode.SM_SHARING, 12),
        ({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.portion": "0.29"}, ComputeMode.SM_SHARING, 29),
        ({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.portion": "0.005"}, ComputeMode.SM_SHARING, 1),
        ({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.portion": " 1 "}, ComputeMode.SM_SHARING, 100),
        ({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.request": "0.25"}, ComputeMode.SM_SHARING, 25),
        (
            {
                f"{C}gpu-compute.mode": "sm-sharing",
                f"{C}gpu-compute.request": "0.25",
                f"{C}gpu-compute.portion": "0.3",
            },
            ComputeMode.SM_SHARING,
            30,
        ),
        ({"podgpu.io/container.main.active-thread-percentage": "40"}, ComputeMode.TIME_SLICING, 40),
        (
            {
                f"{C}gpu-compute.mode": "sm-sharing",
                f"{C}gpu-compute.portion": "0.5",
                "podgpu.io/container.main.active-thread-percentage": "40",
            },
            ComputeMode.SM_SHARING,
            40,
        ),
    ],
)
def test_compute_shares_of_schedulers_need_sm_sharing_and_our_own_does_not(annotations, mode, percentage):
    caps = read({REQUEST: "1Gi"} | annotations, MAIN)
    assert caps.errors == ()
    request = caps.of("main")
    assert (request.compute_mode, request.active_thread_percentage) == (mode, percentage)
    assert request.active_thread_ratio == (None if percentage is None else percentage / 100)


def test_threads_alone_are_a_request_too():
    request = read({"podgpu.io/container.main.active-thread-percentage": "40"}, MAIN).requests["main"]
    assert limits(request, CAPACITY) == Limits(None, None)
    assert request.active_thread_ratio == 0.4


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("", ()),
        ("  ", ()),
        ("all", ("all",)),
        ("0,1", ("0", "1")),
        ("GPU-a, MIG-b", ("GPU-a", "MIG-b")),
        ("k8s.device-plugin.nvidia.com/gpu=GPU-a,k8s.device-plugin.nvidia.com/gpu=GPU-b", ("GPU-a", "GPU-b")),
        ("management.nvidia.com/gpu=all", ("all",)),
        ("nvidia.com/gpu=0:1", ("0:1",)),
    ],
)
def test_devices_lose_their_cdi_kind(text, devices):
    caps = read({REQUEST: "1Gi", DEVICES: text}, MAIN)
    assert caps.errors == ()
    assert caps.of("main").devices == devices


def test_what_holds_for_the_pod_is_known_of_containers_without_a_request():
    caps = read({"podgpu.io/on-overrun": "freeze", "podgpu.io/job": "nightly-eval", REQUEST: "1Gi"}, MAIN)
    assert caps.errors == ()
    assert (caps.on_overrun, caps.job) == ("freeze", "nightly-eval")
    for name in ("main", "helper"):
        assert (caps.of(name).on_overrun, caps.of(name).job) == ("freeze", "nightly-eval")
    assert list(caps.requests) == ["main"]
    assert caps.of("helper").limit is None


def test_the_keys_that_a_request_came_from_are_named():
    caps = read({"gpu-fraction": "0.5", REQUEST: "40779Mi", f"{C}gpu-compute.mode": "sm-sharing"}, MAIN)
    assert caps.of("main").sources == (f"{C}gpu-compute.mode", REQUEST)


def test_a_share_of_an_unknown_capacity_is_not_known():
    request = read({"gpu-fraction": "0.5"}, MAIN).of("main")
    assert limits(request, None) == Limits(None, None)
    assert limits(request, 100 * MIB) == Limits(50 * MIB, 50 * MIB)
    assert limits(request, 1) == Limits(MIB, MIB)


def test_a_share_is_of_whole_mebibytes_as_node_labels_count_them():
    request = read({"gpu-fraction": "0.999"}, MAIN).of("main")
    assert limits(request, 4 * MIB - 1).limit == 2 * MIB
