"""Nodes that users reported of other programs: each a running exporter, with what it must go on saying."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from simulator.kubelet import write_state
from simulator.nvml import counters
from simulator.nvml.state import Fault
from simulator.scenario_file import load

pytestmark = pytest.mark.whole

USED = "podgpu_container_memory_used_bytes"
GIB = 1 << 30

SLICED = """
description: A GPU under MIG beside a whole one
gpus:
  - {memory: 80GiB}
  - memory: 80GiB
    resource: nvidia.com/mig-3g.40gb
    mig:
      - {gpu_instance: 1, slices: 3, memory: 40GiB}
      - {gpu_instance: 2, slices: 3, memory: 40GiB}
pods:
  - name: whole
    containers: [{holds: [{gpu: 0}], processes: [{gpu: 0, memory: 3GiB}]}]
  - name: slice
    containers: [{holds: [{gpu: 1, gpu_instance: 2}], processes: [{gpu: 1, gpu_instance: 2, memory: 5GiB}]}]
"""
# What may be called on a node of strangers: nothing that sets, resets or profiles.
HARMLESS = ("nvmlInit", "nvmlShutdown", "nvmlErrorString", "nvmlSystemGet", "nvmlDeviceGet", "nvmlDeviceIsMig")


@pytest.fixture
def scenario(tmp_path_factory):
    def of(text):
        path = tmp_path_factory.mktemp("scenario") / "reported.yaml"
        path.write_text(text)
        return load(str(path))

    return of


def test_b39_b102_b109_b111_scrapes_and_the_end_wait_for_nobody(make):
    """The whole driver hangs, and so does the kubelet; twenty scrapers come at once, and then the node is drained."""
    whole = make("mixed")
    whole.start_exporter()
    whole.fault(Fault("*", hang=True))
    write_state(whole.paths.kubelet_state, {"faults": [{"method": "List", "hang": True}]})
    whole.eventually(
        lambda: [whole.value("podgpu_source_up", source=source) for source in ("nvml", "kubelet")] == [0, 0]
    )
    begun = time.monotonic()
    with ThreadPoolExecutor(20) as scrapers:
        pages = list(scrapers.map(lambda _: whole.page(), range(100)))
    assert time.monotonic() - begun < 5
    assert all("podgpu_snapshot_timestamp_seconds" in page and f"\n{USED}{{" not in page for page in pages)
    assert whole.status_of("/-/healthy") == 200
    begun = time.monotonic()
    assert whole.processes.stop(whole.exporter) == 0
    assert time.monotonic() - begun < 5


def test_k18_b40_b61_b69_b109_a_node_with_mig_from_its_hanging_start_on(make, scenario):
    whole = make(scenario(SLICED))
    state = whole.node.driver_state(0)
    slow = Fault("nvmlDeviceGetMigDeviceHandleByIndex", hang=True)
    whole.driver_writes(replace(state, faults=(slow,)))
    whole.start_exporter()  # ready although the enumeration has not ended
    assert whole.status_of("/-/healthy") == 200
    assert whole.values(USED, gpu="0") == [3 * GIB]
    assert whole.values(USED, gpu="1") == []
    whole.driver_writes(state)
    sliced = {"pod": "slice", "gpu": "1", "gpu_instance": "2", "gpu_uuid": whole.node.scenario.gpus[1].uuid}
    whole.eventually(lambda: whole.values(USED, **sliced) == [5 * GIB])
    assert whole.value("podgpu_container_slots", **sliced) == 1
    mig_uuid = whole.node.scenario.gpus[1].mig_uuid(2, 0)
    assert whole.value("podgpu_mig_device_info", gpu_instance="2", mig_uuid=mig_uuid, profile="3g.40gb") == 1

    # Thirty pods hold MIG devices that the driver does not have. Nobody goes looking for them.
    unknown = [f"MIG-{n:08d}-0000-0000-0000-000000000000" for n in range(30)]
    write_state(
        whole.paths.kubelet_state,
        {
            "pods": [
                {
                    "namespace": "default",
                    "name": f"stale-{n}",
                    "containers": [{"name": "main", "devices": [{"resource": "nvidia.com/mig", "ids": [mig]}]}],
                }
                for n, mig in enumerate(unknown)
            ]
        },
    )
    whole.eventually(lambda: whole.value("podgpu_condition", condition="unknown_device_allocated") == 1)
    whole.until_next_cycles()
    assert whole.values(USED, **sliced) == [5 * GIB]
    assert whole.value("podgpu_source_duration_seconds", source="kubelet") < 1
    calls = counters.read(whole.paths.driver_calls)
    assert "nvmlDeviceGetMigDeviceHandleByIndex" in calls
    assert {symbol for symbol in calls if not symbol.startswith(HARMLESS)} == set()
    looked_up = calls.get("nvmlDeviceGetHandleByUUID")
    assert looked_up is None or looked_up.total <= 2  # the node's own GPUs, once each


def test_b112_a_busy_node_is_scraped_at_once_and_each_source_says_how_long_it_takes(make, scenario):
    """8 GPUs, 30 pods on each, 5 processes in each pod, and a driver that takes 5 ms for every call."""
    text = ["description: A busy node", "gpus:"]
    text += ["  - {memory: 80GiB, sharing: time-slicing, replicas: 30}"] * 8 + ["pods:"]
    for gpu in range(8):
        processes = ", ".join([f"{{gpu: {gpu}, memory: 100MiB}}"] * 5)
        text += [
            f"  - {{name: p-{gpu}-{pod}, containers: [{{holds: [{{gpu: {gpu}}}], processes: [{processes}]}}]}}"
            for pod in range(30)
        ]
    whole = make(scenario("\n".join(text)))
    whole.fault(Fault("*", delay_ms=5))
    whole.start_exporter("--interval=4s")
    begun = time.monotonic()
    page = whole.page()
    assert time.monotonic() - begun < 1
    assert page.count(f"\n{USED}{{") == 240
    for source in ("nvml", "procfs", "kubelet", "pods", "cgroups"):
        assert 0 < whole.value("podgpu_source_duration_seconds", source=source) < 1
