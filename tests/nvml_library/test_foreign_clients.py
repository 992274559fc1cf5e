"""Programs that know nothing of the simulation, in processes of their own, through the ordinary loader."""

import json
import os
import subprocess
import sys

import pytest

from simulator.nvml.state import Memory, Row, RowKind

GIB = 2**30

PYNVML = """
import json, os, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
rows = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
print(json.dumps([
    pynvml.nvmlSystemGetDriverVersion(),
    pynvml.nvmlDeviceGetName(handle),
    [[row.pid, row.usedGpuMemory] for row in rows],
]))
pynvml.nvmlShutdown()
"""

NVITOP = """
import json, nvitop
print(json.dumps([
    [device.uuid(), device.memory_total(), device.memory_used(),
     sorted([pid, process.type, process.gpu_memory()] for pid, process in device.processes().items())]
    for device in nvitop.Device.all()
]))
"""


@pytest.fixture
def run(node, built):
    def start(*command):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(built.parent), "COLUMNS": "100", "TERM": "dumb"}
        return subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    return start


def test_pynvml(node, gpu, run):
    node.write(gpu(0, rows=(Row(5, used=6), Row(7, used=None))))
    assert json.loads(run("-c", PYNVML)) == ["580.65.06", "NVIDIA H100 80GB HBM3", [[5, 6], [7, None]]]
    assert node.calls("nvmlDeviceGetComputeRunningProcesses_v3") == 2


def test_nvitop_lists_devices_and_processes(node, gpu, run):
    pid = os.getpid()
    rows = (Row(pid, used=3 * GIB), Row(pid, used=3 * GIB, kind=RowKind.GRAPHICS))
    node.write(gpu(0, memory=Memory(80 * GIB, used=4 * GIB), rows=rows), gpu(1))
    assert json.loads(run("-c", NVITOP)) == [
        [gpu(0).uuid, 80 * GIB, 4 * GIB, [[pid, "C+G", 3 * GIB]]],
        [gpu(1).uuid, 80 * GIB, 10 * GIB, []],
    ]


def test_nvitop_draws_its_screen_once(node, gpu, run):
    node.write(gpu(0, rows=(Row(os.getpid(), used=3 * GIB),)))
    screen = run("-m", "nvitop", "-1", "--ascii")
    assert "580.65.06" in screen
    assert str(os.getpid()) in screen
    assert "3072MiB" in screen
