"""What is said of a node, from readings: what makes it unfit, what is a gap, what is merely not there."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.caps_read_back import LimitReadings, with_limits
from exporter.diagnosis import Grade, diagnose
from exporter.errors import Failure, Reason
from exporter.model import (
    NO_NAMES,
    AllocationReading,
    Backend,
    Condition,
    DriverReading,
    LimitReading,
    LivePods,
    MpsDaemon,
    MpsReading,
    MpsServer,
    Pod,
    PodNames,
    ProcessReading,
    Reading,
    ServerStatus,
    Surroundings,
    UtilizationWindow,
)
from exporter.readings import Readings
from exporter.remedies import of_condition
from tests.builders import U1, U2, gpu, mig_gpu, snapshot_of

PODS = PodNames({}, {}, by_uid={"u": Pod("u", "ns", "p")})
AROUND = Surroundings(
    uid=0,
    capabilities=frozenset({"SYS_PTRACE"}),
    cgroup_version=2,
    dmem=False,
    control=True,
    pods_from="the kubelet's Pods API",
)


def driver_of(*devices, version="580.95.05"):
    busy = [replace(device, process_utilization=UtilizationWindow()) for device in devices or (gpu(),)]
    return DriverReading(version, "13.0", tuple(busy))


def node(*, driver=None, processes=None, names=PODS, kubelet=None, live=None, mps=None, memory=None):
    return Readings(
        driver=Reading("nvml", driver or driver_of()),
        processes=Reading("procfs", processes or ProcessReading({})),
        names=Reading("pods", names),
        allocations=Reading("kubelet", kubelet or AllocationReading(())),
        live=Reading("cgroups", live or LivePods(frozenset({"u"}))),
        limits=LimitReadings(
            mps=Reading("mps", mps) if mps is not None else None,
            memory=Reading("memory_limits", memory if memory is not None else LimitReading({})),
        ),
    )


def diagnosis(readings, around=AROUND):
    devices = readings.driver.value.devices if readings.driver.value is not None else ()
    snapshot = snapshot_of(*devices, driver=readings.driver.failure)
    joined = with_limits(snapshot, readings.limits, names=NO_NAMES, seen=())
    return diagnose(readings, joined, around)


def about(told, subject):
    return [finding for finding in told.findings if finding.subject == subject]


def daemon(protocol, *uuids):
    server = MpsServer("s", 1, 0, ServerStatus.ACTIVE, devices=uuids or None)
    return MpsReading({"/run/nvidia/mps/nvidia.com/gpu/pipe": MpsDaemon(protocol, servers=(server,))})


def missing(told, what):
    (ability,) = (each for each in told.measured if each.what.startswith(what))
    return ability.missing


def test_a_healthy_node_has_nothing_to_change():
    told = diagnosis(node(memory=LimitReading({}, backends={U1: Backend.DMEM})))
    assert told.fit
    assert told.gaps == 0
    assert [each.what for each in told.measured if each.missing] == ["MPS shares, clients and limits"]
    assert "dmem" in told.holding[0].by


@pytest.mark.parametrize(
    ("subject", "broken", "change"),
    [
        ("driver", {"driver": Failure(Reason.LIBRARY_NOT_FOUND, "x")}, "runtimeClassName"),
        ("driver", {"driver": Failure(Reason.DRIVER_NOT_LOADED, "x")}, "nodeSelector"),
        ("process ids", {"processes": Failure(Reason.BLIND_PID_NAMESPACE, "x")}, "hostPID: true"),
        ("GPU 0", {"driver": driver_of(gpu(failure=Failure(Reason.GPU_LOST, "x")))}, "Xid"),
    ],
)
def test_what_makes_a_node_unfit(subject, broken, change):
    told = diagnosis(node(**broken))
    assert not told.fit
    assert any(finding.grade is Grade.UNFIT and change in finding.change for finding in about(told, subject))
    assert missing(told, "GPU memory of each container")


@pytest.mark.parametrize(
    ("subject", "broken", "change", "not_measured"),
    [
        ("kubelet", {"kubelet": Failure(Reason.SOCKET_MISSING, "x")}, "mount the directory", "allocations"),
        ("kubelet", {"kubelet": Failure(Reason.NO_PERMISSION, "x")}, "uid 0", "allocations"),
        ("pods", {"names": Failure(Reason.MISSING, "x")}, "list and watch of pods", "names"),
        ("pods' control groups", {"live": Failure(Reason.MISSING, "x")}, "/sys/fs/cgroup", None),
        ("MPS", {"mps": MpsReading({"/p": Failure(Reason.DAEMON_WEDGED, "x")})}, "connection", "MPS"),
        ("control groups", {"memory": Failure(Reason.UNREADABLE, "x")}, "/sys/fs/cgroup", "GPU memory charged"),
    ],
)
def test_what_costs_a_part_and_leaves_the_node_fit(subject, broken, change, not_measured):
    told = diagnosis(node(**broken))
    assert told.fit
    assert any(finding.grade is Grade.GAP and change in finding.change for finding in about(told, subject))
    if not_measured is not None:
        assert missing(told, not_measured)
    assert not missing(told, "GPU memory of each container")


def test_one_lost_gpu_of_two_is_a_gap():
    lost = gpu(index=1, uuid=U2, failure=Failure(Reason.GPU_LOST, "it was here before"))
    told = diagnosis(node(driver=driver_of(gpu(), lost)))
    assert told.fit
    assert about(told, "GPU 0")[0].grade is Grade.FINE
    assert about(told, "GPU 1")[0].grade is Grade.GAP


def test_names_from_the_log_links_are_a_gap_that_names_the_right():
    told = diagnosis(node(names=PodNames({"u": ("ns", "p")}, {})), replace(AROUND, pods_from="the log links"))
    assert about(told, "pods")[0].grade is Grade.GAP
    assert "PODGPU_NODE_NAME" in about(told, "pods")[0].change
    assert "tell names only" in missing(told, "names")


def test_a_node_without_pods_is_judged_by_the_source():
    told = diagnosis(node(names=NO_NAMES))
    assert about(told, "pods")[0].grade is Grade.FINE


def test_an_old_driver_without_limits_is_no_gap_and_a_new_one_is():
    not_unified = Failure(Reason.NOT_SUPPORTED, "needs cgroup v2")
    old = diagnosis(node(memory=not_unified))
    assert about(old, "control groups")[0].grade is Grade.ABSENT
    new = diagnosis(node(driver=driver_of(version="615.10"), memory=not_unified))
    assert about(new, "control groups")[0].grade is Grade.GAP


def test_without_ptrace_mps_is_a_gap_and_a_node_without_mps_needs_none():
    bare = replace(AROUND, capabilities=frozenset())
    assert about(diagnosis(node(), bare), "rights")[0].grade is Grade.FINE
    (finding,) = about(diagnosis(node(mps=daemon(2)), bare), "rights")
    assert finding.grade is Grade.GAP
    assert "CAP_SYS_PTRACE" in finding.change


def test_a_daemon_without_the_control_command_needs_compute():
    broken = MpsReading({"/p": Failure(Reason.MISSING, "nvidia-cuda-mps-control: not found")})
    (finding,) = about(diagnosis(node(mps=broken), replace(AROUND, control=False)), "MPS")
    assert "NVIDIA_DRIVER_CAPABILITIES" in finding.change


@pytest.mark.parametrize(
    ("device", "memory", "mps", "by"),
    [
        (gpu(), LimitReading({}, backends={U1: Backend.MISC}), daemon(3), "counted by the driver"),
        (gpu(), LimitReading({}), daemon(3), "protocol 3"),
        (gpu(), LimitReading({}), daemon(2, U1), "protocol 2"),
        (gpu(), LimitReading({}), daemon(2, U2), ""),  # the daemon serves another GPU
        (gpu(), LimitReading({}), None, ""),
        (gpu(capability=(6, 1)), LimitReading({}), daemon(2), ""),
        (mig_gpu([], []), LimitReading({}), daemon(3), ""),
    ],
)
def test_the_strongest_mechanism_of_a_gpu(device, memory, mps, by):
    (ability,) = diagnosis(node(driver=driver_of(device), memory=memory, mps=mps)).holding
    assert by in ability.by
    assert bool(ability.missing) is not bool(ability.by)


@pytest.mark.parametrize("condition", Condition)
def test_each_condition_has_something_to_do(condition):
    assert of_condition(condition)
    assert "\n" not in of_condition(condition)


failures = st.builds(Failure, st.sampled_from(Reason), st.text(max_size=40))


@given(
    driver=st.one_of(st.none(), failures),
    processes=st.one_of(st.none(), failures),
    kubelet=st.one_of(st.none(), failures),
    names=st.one_of(st.just(PODS), st.just(NO_NAMES), st.builds(lambda f: replace(PODS, stale=f), failures), failures),
    live=st.one_of(st.none(), failures),
    memory=st.one_of(st.none(), failures),
    mps=st.one_of(st.none(), failures, st.builds(lambda f: MpsReading({"/p": f}), failures)),
    around=st.builds(
        Surroundings,
        uid=st.sampled_from([0, 65534]),
        capabilities=st.one_of(st.none(), st.frozensets(st.sampled_from(["SYS_PTRACE", "SYS_ADMIN"]))),
        cgroup_version=st.sampled_from([None, 1, 2]),
        dmem=st.booleans(),
        control=st.booleans(),
        pods_from=st.sampled_from(["", "the log links", "the API server"]),
    ),
)
def test_every_gap_has_one_line_that_says_what_to_change(driver, processes, kubelet, names, live, memory, mps, around):
    readings = node(driver=driver, processes=processes, kubelet=kubelet, names=names, live=live, memory=memory, mps=mps)
    told = diagnosis(readings, around)
    for finding in told.findings:
        assert len(finding.found.splitlines()) == 1
        assert finding.change or finding.grade in (Grade.FINE, Grade.ABSENT)
        assert len(finding.change.splitlines()) <= 1
    assert told.fit == (driver is None and processes is None)
    assert all(bool(ability.missing) is not bool(ability.by) for ability in (*told.measured, *told.holding))
