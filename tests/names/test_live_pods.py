"""Which pods have a cgroup, on every layout of the cgroup file system."""

import itertools
import shutil

import pytest

from exporter.clock import Clock
from exporter.errors import Reason
from exporter.sources.livepods import LivePodsSource
from simulator.cgroupfs import Cgroupfs, ContainerCgroup, Driver, QoS, Runtime

UIDS = [f"0a1b2c3d-0000-4000-8000-{n:012d}" for n in range(3)]
STATIC = "b53dfa9e2dc9b890f7fadb2770857b03"


class Time:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def source(tmp_path, time):
    return LivePodsSource(tmp_path, clock=Clock(monotonic=time))


def path(uid, driver=Driver.SYSTEMD, qos=QoS.BURSTABLE, runtime=Runtime.CONTAINERD):
    return ContainerCgroup(uid, "f" * 64, driver=driver, qos=qos, runtime=runtime).path


@pytest.mark.parametrize(("driver", "qos"), list(itertools.product(Driver, QoS)))
def test_a_pod_of_every_driver_and_qos_class(tmp_path, source, driver, qos):
    tree = Cgroupfs(tmp_path)
    tree.put(path(UIDS[0], driver, qos))
    tree.put("/system.slice/containerd.service")
    assert source.read().value.uids == {UIDS[0]}


def test_pods_come_and_go(tmp_path, source, time):
    tree = Cgroupfs(tmp_path)
    tree.put(path(UIDS[0]))
    tree.put(path(STATIC))
    assert source.read().value.uids == {UIDS[0], STATIC}
    tree.put(path(UIDS[1]))
    assert source.read().value.uids == {UIDS[0], UIDS[1], STATIC}
    tree.put(path(UIDS[2], qos=QoS.GUARANTEED))  # in a folder that held no pod before
    time.now += 61
    assert source.read().value.uids == {*UIDS, STATIC}
    shutil.rmtree(tmp_path / "fs/cgroup/kubepods.slice/kubepods-burstable.slice")
    assert source.read().value.uids == {UIDS[2]}


@pytest.mark.parametrize("controller", ["systemd", "memory"])
def test_cgroup_v1_has_a_tree_for_each_controller(tmp_path, source, controller):
    folder = tmp_path / "fs" / "cgroup" / controller / "kubepods" / "burstable" / f"pod{UIDS[0]}"
    folder.mkdir(parents=True)
    assert source.read().value.uids == {UIDS[0]}


def test_a_cgroup_root_and_a_node_in_a_container(tmp_path, source):
    tree = Cgroupfs(tmp_path)
    tree.put(f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UIDS[0].replace('-', '_')}.slice")
    tree.put(f"/custom/kubepods/pod{UIDS[1]}")
    assert source.read().value.uids == {UIDS[0], UIDS[1]}


def test_a_tree_without_any_pod_is_a_failure_and_not_a_node_without_pods(tmp_path, source):
    Cgroupfs(tmp_path).put("/system.slice")
    failure = source.read().failure
    assert failure.reason is Reason.MISSING
    assert "--path.sysfs" in failure.detail


def test_no_tree_at_all(source):
    assert source.read().failure.reason is Reason.MISSING


def test_names_that_only_look_like_pods_are_none(tmp_path, source):
    tree = Cgroupfs(tmp_path)
    tree.put("/podruntime.slice")
    tree.put(f"/machine.slice/libpod-{'f' * 64}.scope")
    assert source.read().failure.reason is Reason.MISSING
