"""Things that break under a running exporter: each costs its own series, and comes back by itself."""

import os
import shutil
import signal
from dataclasses import replace

import pytest

from simulator.kubelet import write_state
from simulator.nvml.state import Fault

pytestmark = pytest.mark.whole

LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"
USED = "podgpu_container_memory_used_bytes"
BYTE_SECONDS = "podgpu_container_memory_used_byte_seconds_total"


@pytest.fixture
def running(make):
    whole = make("mixed")
    whole.start_exporter()
    return whole


def used(whole, gpu):
    return whole.values(USED, gpu=gpu)


def test_a_lost_gpu_costs_its_series_and_comes_back(running):
    before = sorted(used(running, "1"))
    running.fault(Fault("nvmlDeviceGetMemoryInfo_v2", gpu=0, code=15))
    running.eventually(lambda: running.value("podgpu_device_up", gpu="0") == 0)
    assert used(running, "0") == []
    assert running.values("podgpu_device_memory_bytes", gpu="0") == []
    assert running.value("podgpu_device_up", gpu="1") == 1
    assert sorted(used(running, "1")) == before
    assert running.value("podgpu_source_errors_total", source="nvml", reason="gpu_lost") > 0
    running.fault()
    running.eventually(lambda: running.value("podgpu_device_up", gpu="0") == 1 and len(used(running, "0")) == 4)


def test_a_hung_list_call_costs_one_gpu_and_no_thread(running):
    running.fault(Fault(LISTS, gpu=1, hang=True))
    running.eventually(lambda: running.value("podgpu_device_up", gpu="1") == 0)
    running.until_next_cycles()
    threads, begun = running.threads(), running.value("podgpu_snapshot_timestamp_seconds")
    for _ in range(100):
        assert used(running, "1") == []
        assert len(used(running, "0")) == 4
    running.until_next_cycles()
    assert running.threads() == threads
    assert running.value("podgpu_snapshot_timestamp_seconds") > begun
    assert running.status_of("/-/healthy") == 200
    assert running.value("podgpu_source_errors_total", source="nvml", reason="timeout") > 0
    running.fault()
    running.eventually(lambda: running.value("podgpu_device_up", gpu="1") == 1)


def test_a_hung_call_does_not_hold_up_the_end(running):
    running.fault(Fault(LISTS, gpu=1, hang=True))
    running.eventually(lambda: running.value("podgpu_device_up", gpu="1") == 0)
    assert running.processes.stop(running.exporter) == 0


def test_a_kubelet_that_restarts_costs_allocations_only(running):
    assert len(running.values("podgpu_container_slots")) == 7
    running.processes.stop(running.kubelet)
    running.eventually(lambda: running.value("podgpu_source_up", source="kubelet") == 0)
    assert running.values("podgpu_container_slots") == running.values("podgpu_container_allocated") == []
    assert len(used(running, "0")) == 4
    running.start_kubelet()
    running.eventually(lambda: len(running.values("podgpu_container_slots")) == 7)
    assert running.value("podgpu_source_up", source="kubelet") == 1


def test_a_kubelet_that_was_killed_and_left_its_socket(running):
    running.kubelet.send_signal(signal.SIGKILL)
    running.eventually(lambda: running.value("podgpu_source_up", source="kubelet") == 0)
    running.start_kubelet()
    running.eventually(lambda: running.value("podgpu_source_up", source="kubelet") == 1)


def test_a_kubelet_that_never_answers_costs_one_deadline(running):
    write_state(running.paths.kubelet_state, {"faults": [{"method": "List", "hang": True}]})
    running.eventually(lambda: running.value("podgpu_source_up", source="kubelet") == 0)
    assert running.value("podgpu_source_errors_total", source="kubelet", reason="timeout") > 0
    running.until_next_cycles()
    assert len(used(running, "1")) == 3


def test_a_driver_that_comes_after_the_exporter_is_found(make, libraries):
    whole = make("mixed", driver=False)
    whole.paths.library.mkdir()  # the loader asks only once whether a folder of its path exists
    whole.start_exporter()
    assert whole.value("podgpu_source_up", source="nvml") == 0
    assert whole.value("podgpu_source_errors_total", source="nvml", reason="library_not_found") > 0
    assert "libnvidia-ml.so.1 is not on this container's library path" in whole.log
    whole.paths.library.rmdir()
    libraries(whole.paths, whole.node.scenario)
    whole.eventually(lambda: len(whole.values(USED)) == 7)


def test_a_driver_that_is_loaded_later_is_found(make):
    whole = make("mixed")
    state = whole.node.driver_state(0)
    whole.driver_writes(replace(state, driver=replace(state.driver, init_code=9)))
    whole.start_exporter()
    assert whole.value("podgpu_source_up", source="nvml") == 0
    assert "the NVIDIA kernel driver is not loaded" in whole.log
    whole.driver_writes(state)
    whole.eventually(lambda: len(whole.values(USED)) == 7)


def test_a_list_that_grows_between_two_calls_loses_nobody(running):
    before = sorted(running.values(USED))
    running.fault(Fault(LISTS, grows=1, calls=1), Fault("nvmlDeviceGetMPSComputeRunningProcesses_v3", grows=2, calls=1))
    running.until_next_cycles(3)
    assert sorted(running.values(USED)) == before


def test_without_a_kubelet_use_is_still_attributed(make):
    whole = make("mixed", kubelet=False)
    whole.start_exporter()
    assert len(whole.values(USED)) == 7
    assert whole.value("podgpu_source_errors_total", source="kubelet", reason="socket_missing") > 0
    assert str(whole.paths.kubelet_socket) in whole.log


def test_without_log_links_bytes_go_by_uid(running):
    before = sorted(running.values(USED))
    shutil.rmtree(running.paths.logs)
    running.eventually(lambda: running.value("podgpu_source_up", source="pods") == 0)
    assert sorted(running.values(USED, namespace="")) == before
    pod = running.node.scenario.pods[0]
    assert running.value(USED, pod=pod.uid, container=pod.container_id("trainer")[:12]) == 18 * (1 << 30)


def test_n03_b55_a_private_pid_namespace_attributes_nothing(running):
    running.node.hide_processes()
    running.eventually(lambda: running.value("podgpu_condition", condition="blind_pid_namespace") == 1)
    assert running.values(USED) == []
    assert running.values("podgpu_device_memory_bytes", **{"class": "containers"}) == []
    assert len(running.values("podgpu_device_memory_bytes", **{"class": "unread"})) == 2
    assert "hostPID: true" in running.log


def test_p4_a_pod_that_ends_is_gone_and_a_new_one_comes(running):
    assert running.values(USED, pod="nightly-reindex") == []
    running.node.advance(30)
    running.eventually(lambda: running.values(USED, pod="nightly-reindex") == [4 * (1 << 30)])
    running.node.advance(60)
    running.eventually(lambda: running.values(USED, pod="nightly-reindex") == [])
    assert running.values("podgpu_container_memory_peak_bytes", pod="nightly-reindex") == []
    running.until_next_cycles()
    (counted,) = running.values(BYTE_SECONDS, pod="nightly-reindex")
    assert counted > 0
    running.until_next_cycles()
    assert running.values(BYTE_SECONDS, pod="nightly-reindex") == [counted]


def test_p4_the_counters_of_a_pod_that_ended_go_after_the_retention(make):
    whole = make("mixed")
    whole.node.advance(30)
    whole.start_exporter("--retain=1s")
    whole.eventually(lambda: len(whole.values(BYTE_SECONDS, pod="nightly-reindex")) == 1)
    whole.node.advance(60)
    whole.eventually(lambda: whole.values(BYTE_SECONDS, pod="nightly-reindex") == [])
    assert len(whole.values(BYTE_SECONDS)) == len(whole.values(USED)) == 7


def test_a_stopped_sampler_withholds_values_and_is_unhealthy(running):
    """The sampler waits for /proc for ever when the tree is a pipe that nobody writes to; its deadline must hold."""
    victim = next(path for path in running.paths.procfs.iterdir() if path.name.isdigit() and int(path.name) > 2)
    (victim / "stat").unlink()
    os.mkfifo(victim / "stat")
    running.eventually(lambda: running.value("podgpu_source_up", source="procfs") == 0)
    assert running.value("podgpu_source_errors_total", source="procfs", reason="timeout") > 0
    assert running.values(USED) == []
    assert len(running.values("podgpu_device_memory_bytes", **{"class": "unread"})) == 2
    assert running.status_of("/-/healthy") == 200
