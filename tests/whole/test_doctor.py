"""`podgpu doctor` on simulated nodes in several states of health: the real program, from the outside."""

import json
import os
import re
import subprocess
import sys

import pytest

from simulator.nvml import state
from simulator.processes import exporter_environment, exporter_flags

pytestmark = pytest.mark.whole


@pytest.fixture
def doctor(make):
    def of(scenario, *arguments, prepare=lambda whole: None, without=(), **how):
        whole = make(scenario, **how)
        prepare(whole)
        flags = [flag for flag in exporter_flags(whole.paths, address=":0") if not flag.startswith(without)]
        return subprocess.run(
            [sys.executable, "-m", "exporter", "doctor", *arguments, *flags],
            env={**os.environ, **exporter_environment(whole.paths)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return of


def found(result, subject):
    return [finding for finding in json.loads(result.stdout)["findings"] if finding["subject"] == subject]


def test_a_node_with_limits_by_control_group_has_nothing_to_change(doctor):
    result = doctor("cgroup-limits", "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["fit"]
    assert [finding for finding in told["findings"] if finding["grade"] in ("gap", "unfit")] == []
    assert "Pods API" in found(result, "pods")[0]["found"]
    assert all("control group" in gpu["by"] for gpu in told["holding"])


@pytest.mark.parametrize(("scenario", "protocol"), [("mps-v2", 2), ("mps-v3", 3)])
def test_mps_daemons_are_told_by_protocol(doctor, scenario, protocol):
    result = doctor(scenario, "--json")
    assert result.returncode == 0, result.stderr
    daemons = found(result, "MPS")
    assert daemons
    assert all(f"protocol {protocol}" in daemon["found"] for daemon in daemons)
    told = json.loads(result.stdout)
    assert next(each for each in told["measured"] if each["what"].startswith("MPS"))["missing"] == ""
    # A driver that knows protocol 3 also limits control groups, which is the stronger.
    assert all(("protocol 2" if protocol == 2 else "control group") in gpu["by"] for gpu in told["holding"])


def test_for_a_person(doctor):
    result = doctor("time-slicing")
    assert result.returncode == 0, result.stderr
    first, _, rest = result.stdout.partition("\n")
    assert re.fullmatch(r"podgpu \S+ on this node: GPU memory can be attributed, .* to change", first)
    assert re.search(r"^yes +GPU memory of each container ", rest, re.MULTILINE)
    assert re.search(r"^no +GPU 0 +no limits by control group", rest, re.MULTILINE)
    assert "Traceback" not in result.stderr


def test_without_the_host_s_processes_the_node_is_unfit(doctor):
    result = doctor("mixed", "--json", prepare=lambda whole: whole.node.hide_processes())
    assert result.returncode == 1
    (finding,) = found(result, "process ids")
    assert finding["grade"] == "unfit"
    assert finding["change"] == "set hostPID: true on the pod"


def test_without_a_kubelet_allocations_are_a_gap(doctor):
    result = doctor("mixed", "--json", kubelet=False)
    assert result.returncode == 0
    (finding,) = found(result, "kubelet")
    assert finding["grade"] == "gap"
    assert "mount the directory" in finding["change"]


def test_without_the_driver_s_library_the_node_is_unfit(doctor):
    result = doctor("mixed", driver=False)
    assert result.returncode == 1
    assert "can NOT be attributed" in result.stdout
    assert "runtimeClassName: nvidia" in result.stdout


def test_a_driver_that_hangs_ends_in_time_and_says_where_to_look(doctor):
    hung = state.Fault("nvmlDeviceGetMemoryInfo_v2", gpu=0, hang=True)
    result = doctor("mixed", "--json", "--interval=1s", prepare=lambda whole: whole.fault(hung))
    assert result.returncode == 0
    (finding,) = found(result, "GPU 0")
    assert finding["grade"] == "gap"
    assert "Xid" in finding["change"]
    assert found(result, "GPU 1")[0]["grade"] == "ok"


def test_a_daemon_that_does_not_answer_is_a_gap(doctor):
    def killed(whole):
        whole.daemons.end()

    result = doctor("mps-v2", "--json", prepare=killed)
    assert result.returncode == 0
    assert [finding["grade"] for finding in found(result, "MPS")] == ["gap"]
