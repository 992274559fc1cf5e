"""`podgpu explain` on a simulated node: each step from the driver's rows to the page."""

import json
import os
import subprocess
import sys

import pytest

from simulator.processes import exporter_environment, exporter_flags

pytestmark = pytest.mark.whole

GIB = 1 << 30


@pytest.fixture
def scenario():
    return "mixed"


@pytest.fixture
def explain(make, scenario):
    whole = make(scenario)

    def run(*arguments):
        flags = [flag for flag in exporter_flags(whole.paths, address=":0") if not flag.startswith("--web.")]
        return subprocess.run(
            [sys.executable, "-m", "exporter", "explain", *arguments, *flags],
            env={**os.environ, **exporter_environment(whole.paths)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_pod_with_its_processes_cgroups_allocation_and_series(explain):
    result = explain("research/eval-5f7c", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert [(p["gpu"], p["lists"], p["used"], p["container"]) for p in told["processes"]] == [
        (0, ["compute"], 2 * GIB, "eval"),
        (0, ["compute", "graphics"], 3 * GIB // 2, "eval"),
    ]
    assert all("kubepods-burstable-pod" in process["cgroup"] for process in told["processes"])
    assert all(process["start_ticks"] > 0 for process in told["processes"])
    (allocation,) = told["allocation"]
    assert allocation.startswith("eval: nvidia.com/gpu.shared: GPU-")
    used = [line for line in told["series"] if line.startswith("podgpu_container_memory_used_bytes{")]
    assert [float(line.rpartition(" ")[2]) for line in used] == [7 * GIB // 2]
    assert told["problems"] == []


def test_one_container_for_a_person(explain):
    result = explain("vision/detector-0", "serve")
    assert result.returncode == 0, result.stderr
    assert "6.00 GiB  lists compute  container serve" in result.stdout
    assert "crio-" in result.stdout
    assert 'container="warmup"' not in result.stdout


def test_a_pod_without_a_gpu_names_those_that_have_one(explain):
    result = explain("research/nobody")
    assert result.returncode == 1
    assert "neither holds nor uses a GPU" in result.stdout
    assert "search/ranker-a" in result.stdout


@pytest.mark.parametrize("scenario", ["annotations"])
def test_annotations_as_they_were_understood_and_their_errors(explain):
    told = json.loads(explain("team-a/train-0", "--json").stdout)
    assert told["annotations"] == {"gpu-fraction": "0.25", "podgpu.io/job": "nightly"}
    assert told["understood"] == {
        "gpu-fraction": "0.25",
        "gpu-fraction-container-name": "trainer",
        "podgpu.io/job": "nightly",
    }
    assert any(line.startswith("podgpu_container_memory_overrun_bytes{") for line in told["series"])
    typo = explain("team-b/typo-0").stdout
    assert "annotation errors\n  unknown_suffix: " in typo
    assert "nvidia.com/container.main.gpu-memory.limits" in typo


@pytest.mark.parametrize(("arguments", "says"), [(("nobody",), "NAMESPACE/POD"), ((), "NAMESPACE/POD")])
def test_a_wrong_target_is_one_line(explain, arguments, says):
    result = explain(*arguments)
    assert result.returncode == 2
    assert says in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
