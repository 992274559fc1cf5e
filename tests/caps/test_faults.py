"""Everything that is wrong with values and with keys together, and what still holds then."""

import pytest

from exporter.caps.contract import read
from exporter.caps.requests import ErrorReason
from exporter.model import PodContainer

MAIN = (PodContainer("main"), PodContainer("helper"))
C = "nvidia.com/container.main."
REQUEST, LIMIT = f"{C}gpu-memory.request", f"{C}gpu-memory.limit"
PORTION_LIMIT = "kai.scheduler/container.main.gpu-memory.portion.limit"
THREADS = "podgpu.io/container.main.active-thread-percentage"


@pytest.mark.parametrize(
    ("key", "text", "reason", "says"),
    [
        (LIMIT, "", "malformed", "8Gi"),
        (LIMIT, "8GB", "malformed", "write 8Gi"),
        (LIMIT, "8 gib", "malformed", "write 8Gi"),
        (LIMIT, "512mb", "malformed", "write 512Mi"),
        (LIMIT, "8Gi ", "malformed", "write 8Gi"),
        (LIMIT, "8g", "malformed", "write 8Gi"),
        (LIMIT, "8K", "malformed", "write 8Ki"),
        (LIMIT, "8,5Gi", "malformed", "8Gi"),
        (LIMIT, "\u0668Gi", "malformed", "8Gi"),
        (LIMIT, "8Gi\n", "malformed", "8Gi"),
        (LIMIT, "NaN", "malformed", "8Gi"),
        (LIMIT, "0x10Mi", "malformed", "8Gi"),
        (LIMIT, "1e999999999", "malformed", "8Gi"),
        (LIMIT, "." + "0" * 1000 + "1Gi", "malformed", "8Gi"),
        (LIMIT, "8", "unit_missing", "8Mi or 8Gi"),
        (LIMIT, "2048", "unit_missing", "2048Mi"),
        (LIMIT, "0", "out_of_range", "1Mi"),
        (LIMIT, "0Gi", "out_of_range", "1Mi"),
        (LIMIT, "-8Gi", "out_of_range", "1Mi"),
        (LIMIT, "1023Ki", "out_of_range", "1Mi"),
        (LIMIT, "8000m", "out_of_range", "thousandths"),
        (LIMIT, "8Ei", "out_of_range", "less"),
        (LIMIT, "1e99", "out_of_range", "less"),
        ("gpu-memory", "4Gi", "unit_not_allowed", "write 4096"),
        ("gpu-memory", "0", "out_of_range", "above 0"),
        ("gpu-memory", "-1", "out_of_range", "above 0"),
        ("gpu-memory", "4096.5", "malformed", "4096"),
        ("gpu-memory", "\u0664", "malformed", "4096"),
        ("gpu-memory", "9" * 15, "out_of_range", "above 0"),
        ("gpu-fraction", "0", "out_of_range", "above 0"),
        ("gpu-fraction", "1", "out_of_range", "below 1"),
        ("gpu-fraction", "1.5", "out_of_range", "below 1"),
        ("gpu-fraction", "-0.5", "out_of_range", "above 0"),
        ("gpu-fraction", "50%", "unit_not_allowed", "0.5"),
        ("gpu-fraction", "500m", "malformed", "0.5"),
        ("gpu-fraction", "NaN", "malformed", "0.5"),
        ("gpu-fraction", "inf", "malformed", "0.5"),
        ("gpu-fraction", "0,5", "malformed", "0.5"),
        ("gpu-fraction", ".", "malformed", "0.5"),
        ("gpu-fraction", "0.5\n", "malformed", "0.5"),
        ("gpu-fraction", "0." + "1" * 21, "malformed", "20 digits"),
    ],
)
def test_a_memory_value_that_cannot_be_used_gives_an_error_and_no_cap(key, text, reason, says):
    caps = read({key: text}, MAIN)
    (error,) = caps.errors
    assert (error.container, error.key, error.reason) == ("main", key, reason)
    assert error.sentence.startswith(f"{key} is ")
    assert says in error.sentence
    assert not caps.requests


def test_a_bare_number_of_at_least_a_mebibyte_is_bytes():
    assert read({LIMIT: "8589934592"}, MAIN).of("main").limit == 8 << 30


@pytest.mark.parametrize("text", ["8192", "8589934592", "8e9"])
def test_the_shorthand_for_a_limit_needs_a_unit(text):
    caps = read({"gpu-memory": "4096", "gpu-memory.limit": text}, MAIN)
    assert [(error.key, error.reason) for error in caps.errors] == [("gpu-memory.limit", "unit_missing")]
    assert not caps.requests


@pytest.mark.parametrize("key", ["gpu-fraction.limit", PORTION_LIMIT])
@pytest.mark.parametrize(
    ("text", "reason"), [("0.123456", "malformed"), ("1", "out_of_range"), ("80%", "unit_not_allowed")]
)
def test_a_limit_of_a_fraction(key, text, reason):
    caps = read({"gpu-fraction": "0.5", key: text}, MAIN)
    assert [(error.key, error.reason) for error in caps.errors] == [(key, reason)]
    assert not caps.requests


@pytest.mark.parametrize(
    ("annotations", "errors"),
    [
        ({"gpu-fraction": "0.5", "gpu-memory": "4096"}, [("gpu-fraction", "conflict")]),
        ({"gpu-memory": "4096", REQUEST: "5Gi"}, [("gpu-memory", "conflict")]),
        ({"gpu-memory": "4096", LIMIT: "8Gi"}, [("gpu-memory", "conflict")]),
        ({"gpu-memory": "4096", "gpu-memory.limit": "8Gi", LIMIT: "9Gi"}, [("gpu-memory.limit", "conflict")]),
        ({"gpu-fraction": "0.5", LIMIT: "8Gi"}, [("gpu-fraction", "conflict")]),
        ({"gpu-fraction": "0.5", REQUEST: "4Gi", LIMIT: "8Gi"}, [("gpu-fraction", "conflict")]),
        ({"gpu-fraction": "0.5", "gpu-fraction.limit": "0.8", LIMIT: "8Gi"}, [("gpu-fraction", "conflict")]),
        (
            {"gpu-fraction": "0.5", "gpu-fraction.limit": "0.8", PORTION_LIMIT: "0.9"},
            [("gpu-fraction.limit", "conflict")],
        ),
        ({"gpu-memory.limit": "8Gi"}, [("gpu-memory.limit", "incomplete")]),
        ({"gpu-fraction.limit": "0.8"}, [("gpu-fraction.limit", "incomplete")]),
        ({PORTION_LIMIT: "0.8"}, [(PORTION_LIMIT, "incomplete")]),
        ({REQUEST: "4Gi", PORTION_LIMIT: "0.8"}, [(PORTION_LIMIT, "incomplete")]),
        ({"gpu-fraction": "0.5", "gpu-memory.limit": "8Gi"}, [("gpu-memory.limit", "incomplete")]),
        ({REQUEST: "4Gi", LIMIT: "8GB"}, [(LIMIT, "malformed")]),
        (
            {"gpu-fraction-container-name": "trainer", "gpu-memory": "1"},
            [("gpu-fraction-container-name", "unknown_container")],
        ),
    ],
)
def test_rather_no_cap_than_one_that_nobody_wrote(annotations, errors):
    caps = read(annotations, MAIN)
    assert [(error.key, error.reason) for error in caps.errors] == errors
    assert not caps.requests


def test_a_fault_in_one_container_costs_the_others_nothing():
    caps = read({LIMIT: "8GB", "nvidia.com/container.helper.gpu-memory.limit": "2Gi", THREADS: "40"}, MAIN)
    assert caps.of("helper").limit == 2 << 30
    assert (caps.of("main").limit, caps.of("main").active_thread_percentage) == (None, 40)


@pytest.mark.parametrize(
    ("annotations", "container", "key", "reason"),
    [
        ({f"{C}gpu-compute.mode": "SM-Sharing"}, "main", f"{C}gpu-compute.mode", "unknown_value"),
        ({f"{C}gpu-compute.mode": ""}, "main", f"{C}gpu-compute.mode", "unknown_value"),
        ({f"{C}gpu-compute.mode": "mps"}, "main", f"{C}gpu-compute.mode", "unknown_value"),
        (
            {"kai.scheduler/gpu-compute-sharing-mode": "mps"},
            "",
            "kai.scheduler/gpu-compute-sharing-mode",
            "unknown_value",
        ),
        (
            {f"{C}gpu-compute.mode": "time-slicing", "kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"},
            "main",
            f"{C}gpu-compute.mode",
            "conflict",
        ),
        *(
            ({f"{C}gpu-compute.portion": text}, "main", f"{C}gpu-compute.portion", reason)
            for text, reason in [
                ("0", "out_of_range"),
                ("-0", "out_of_range"),
                ("-0.5", "out_of_range"),
                ("50", "out_of_range"),
                ("1.01", "out_of_range"),
                ("", "malformed"),
                ("  ", "malformed"),
                ("NaN", "malformed"),
                ("Inf", "malformed"),
                ("50%", "unit_not_allowed"),
                ("500m", "malformed"),
            ]
        ),
        ({f"{C}gpu-compute.request": "2"}, "main", f"{C}gpu-compute.request", "out_of_range"),
        ({THREADS: "0"}, "main", THREADS, "out_of_range"),
        ({THREADS: "101"}, "main", THREADS, "out_of_range"),
        ({THREADS: "50%"}, "main", THREADS, "unit_not_allowed"),
        ({THREADS: "0.5"}, "main", THREADS, "malformed"),
        ({THREADS: "\u0665\u0660"}, "main", THREADS, "malformed"),
        ({f"{C}gpus.devices": "GPU-a,,GPU-b"}, "main", f"{C}gpus.devices", "malformed"),
        ({f"{C}gpus.devices": "GPU-a,GPU-a"}, "main", f"{C}gpus.devices", "malformed"),
        ({f"{C}gpus.devices": "../../etc"}, "main", f"{C}gpus.devices", "malformed"),
        ({f"{C}gpus.devices": ",".join(map(str, range(65)))}, "main", f"{C}gpus.devices", "out_of_range"),
        (
            {f"{C}gpus.devices": "GPU-a", "gpu-fraction-num-devices": "2"},
            "main",
            f"{C}gpus.devices",
            "conflict",
        ),
        ({"gpu-fraction-num-devices": "0"}, "", "gpu-fraction-num-devices", "out_of_range"),
        ({"gpu-fraction-num-devices": "two"}, "", "gpu-fraction-num-devices", "malformed"),
        ({"gpu-fraction-container-name": "helper"}, "", "gpu-fraction-container-name", "conflict"),
        ({"gpu-fraction-container-name": "trainer"}, "", "gpu-fraction-container-name", "unknown_container"),
        ({"podgpu.io/on-overrun": "kill"}, "", "podgpu.io/on-overrun", "unknown_value"),
        ({"podgpu.io/on-overrun": ""}, "", "podgpu.io/on-overrun", "unknown_value"),
        ({"podgpu.io/job": "a b"}, "", "podgpu.io/job", "malformed"),
        ({"podgpu.io/job": "x" * 64}, "", "podgpu.io/job", "malformed"),
        ({"mps": "yes"}, "", "mps", "unknown_value"),
    ],
)
def test_what_is_wrong_beside_memory_leaves_the_memory_cap(annotations, container, key, reason):
    caps = read({REQUEST: "1Gi"} | annotations, MAIN)
    found = [(error.container, error.key, error.reason) for error in caps.errors]
    assert (container, key, reason) in found
    assert {error[1] for error in found} == {key}
    assert caps.of("main").limit == 1 << 30


@pytest.mark.parametrize(
    "annotations",
    [
        {"gpu-fraction-num-devices": "2"},
        {"gpu-fraction-container-name": "main"},
        {"kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"},
        {f"{C}gpu-compute.mode": "sm-sharing"},
        {"mps": "true"},
    ],
)
def test_what_means_nothing_without_a_memory_request_says_so(annotations):
    caps = read(annotations, MAIN)
    assert [error.reason for error in caps.errors] == ["incomplete"]
    assert not caps.requests


@pytest.mark.parametrize("annotations", [{"mps": "false"}, {"mps": "true", "gpu-fraction": "0.5"}])
def test_the_old_key_for_mps_beside_a_fraction(annotations):
    assert read(annotations, MAIN).errors == ()


def test_our_own_percentage_does_not_lift_the_schedulers():
    caps = read({f"{C}gpu-compute.mode": "sm-sharing", f"{C}gpu-compute.portion": "0.3", THREADS: "80"}, MAIN)
    assert caps.of("main").active_thread_percentage == 30
    assert [(error.key, error.reason) for error in caps.errors] == [(THREADS, "conflict")]


def test_a_number_of_devices_that_may_be_about_either_container():
    asked = {REQUEST: "1Gi", "nvidia.com/container.helper.gpu-memory.limit": "2Gi", "gpu-fraction-num-devices": "2"}
    caps = read(asked, MAIN)
    assert [error.reason for error in caps.errors] == ["conflict"]
    assert [request.device_count for request in caps.requests.values()] == [None, None]


def test_shorthands_of_a_pod_of_which_no_container_is_known():
    assert [error.reason for error in read({"gpu-memory": "4096"}, ()).errors] == ["unknown_container"]


def test_hundreds_of_errors_are_cut_short_and_say_so():
    caps = read({f"nvidia.com/container.main.x{n:03}": "1Gi" for n in range(200)} | {LIMIT: "1Gi"}, MAIN)
    assert len(caps.errors) == 51
    assert caps.errors[-1].reason is ErrorReason.TOO_MANY
    assert "150 further" in caps.errors[-1].sentence
    assert caps.of("main").limit == 1 << 30


def test_hundreds_of_other_annotations_do_not_hide_ours():
    caps = read({f"example.com/a{n:04}": "x" for n in range(1000)} | {LIMIT: "1Gi"}, MAIN)
    assert caps.of("main").limit == 1 << 30
    assert [error.reason for error in caps.errors] == ["too_many"]
