"""From the kubelet's socket to model values: which devices count, what a failure is called, what a restart hides."""

import dataclasses

import pytest

import podresources
from exporter.errors import Failure, Reason
from exporter.model import Allocation, AllocationReading, ContainerName, DeviceKind, DeviceRef
from exporter.sources import kubelet as module
from exporter.sources.kubelet import GRACE, RETRY, KubeletSource
from simulator.kubelet import serve, write_state

U1 = "GPU-11111111-1111-1111-1111-111111111111"
U2 = "GPU-22222222-2222-2222-2222-222222222222"
M1 = "MIG-33333333-3333-3333-3333-333333333333"


class Time:
    """A clock that moves only when it is told to, or slept on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def source(node, clock):
    source = KubeletSource(node.socket, deadline=20, monotonic=clock.monotonic, sleep=clock.sleep)
    yield source
    source.close()


def pod(name: str, *containers: dict) -> dict:
    return {"namespace": "team", "name": name, "containers": list(containers)}


def holding(**resources: list[str]) -> dict:
    return {"name": "main", "devices": [{"resource": r, "ids": ids} for r, ids in resources.items()]}


def gpu(uuid: str, replica: str = "") -> DeviceRef:
    raw = f"{uuid}::{replica}" if replica else uuid
    return DeviceRef(raw, DeviceKind.MIG if uuid.startswith("MIG") else DeviceKind.GPU, uuid=uuid, replica=replica)


def allocated(source: KubeletSource) -> list[tuple[str, str, list[str]]]:
    value = source.read().value
    assert value is not None
    return [(a.name.pod, a.resource, [device.raw for device in a.devices]) for a in value.allocations]


def failure(source: KubeletSource) -> Failure:
    failed = source.read().failure
    assert failed is not None
    return failed


def test_a_reading(node, source):
    node.says(
        pods=[
            pod("b", holding(**{"nvidia.com/gpu": [f"{U2}::1", f"{U2}::0"]})),
            pod("a", holding(**{"nvidia.com/mig-1g.10gb": [M1]}), {"name": "sidecar", "cpu_ids": [1]}),
            pod("empty"),
        ],
        allocatable={
            "devices": [{"resource": "nvidia.com/gpu", "ids": [U1, f"{U2}::0"]}, {"resource": "x/y", "ids": ["z"]}]
        },
    )
    reading = source.read()
    assert (reading.source, reading.failure, reading.seconds) == ("kubelet", None, 0.0)
    assert reading.value == AllocationReading(
        allocations=(
            Allocation(ContainerName("team", "a", "main"), "nvidia.com/mig-1g.10gb", (gpu(M1),)),
            Allocation(ContainerName("team", "b", "main"), "nvidia.com/gpu", (gpu(U2, "0"), gpu(U2, "1"))),
        ),
        allocatable=(("nvidia.com/gpu", gpu(U1)), ("nvidia.com/gpu", gpu(U2, "0"))),
    )


def test_every_part_of_a_device_id_reaches_the_model(node, source):
    node.says(pods=[pod("p", holding(**{"nvidia.com/gpu": ["nvidia2/gi1/vgpu3", f"MIG-{U1}/7/0", "all"]}))])
    value = source.read().value
    assert value is not None
    assert value.allocations[0].devices == (
        DeviceRef(f"MIG-{U1}/7/0", DeviceKind.MIG, uuid=U1, gpu_instance=7, compute_instance=0),
        DeviceRef("all", DeviceKind.ALL),
        DeviceRef("nvidia2/gi1/vgpu3", DeviceKind.MIG, minor=2, gpu_instance=1, replica="3"),
    )
    assert {f.name for f in dataclasses.fields(DeviceRef)} == {
        f.name for f in dataclasses.fields(podresources.DeviceId)
    }
    assert [kind.value for kind in DeviceKind] == [kind.value for kind in podresources.Kind]


COUNTED = [
    pytest.param("nvidia.com/gpu", U1, id="plain"),
    pytest.param("nvidia.com/gpu.shared", f"{U1}::0", id="K13 renamed by the plugin"),
    pytest.param("example.com/a100", U1, id="K13 renamed by hand"),
    pytest.param("example.com/slice", M1, id="MIG renamed"),
    pytest.param("example.com/slice", "nvidia0/gi1", id="minor form"),
    pytest.param("nvidia.com/GA102GL_A10", "0000:3b:00.0", id="B43 passthrough"),
    pytest.param("nvidia.com/gpu", "0", id="D09"),
    pytest.param("nvidia.com/gpu", "all", id="B49"),
    pytest.param("nvidia.com/gpu", f"{U1}-0", id="D14"),
    pytest.param("volcano.sh/vgpu-number", f"{U1}-0", id="D15"),
    pytest.param("aliyun.com/gpu-mem", f"{U1}-_-4", id="D17"),
    pytest.param("example.com/GPU", "x", id="upper case"),
]
IGNORED = [
    pytest.param("rdma/hca_shared_devices_a", "7", id="rdma"),
    pytest.param("amd.com/gpu", "0000:83:00.0", id="AMD"),
    pytest.param("gpu.intel.com/i915", "card0-0", id="Intel"),
    pytest.param("xilinx.com/fpga", "fpga0", id="fpga"),
    pytest.param("smarter-devices/fuse", "all", id="another plugin's all"),
    pytest.param("example.com/passthrough", "0000:3b:00.0", id="not configured"),
    pytest.param("notnvidia.com/x", "x", id="another vendor"),
]


@pytest.mark.parametrize(("resource", "device_id"), COUNTED)
def test_device_that_counts(node, source, resource, device_id):
    devices = [{"resource": resource, "ids": [device_id]}]
    node.says(pods=[pod("p", holding(**{resource: [device_id]}))], allocatable={"devices": devices})
    value = source.read().value
    assert value is not None
    assert [(a.resource, [d.raw for d in a.devices]) for a in value.allocations] == [(resource, [device_id])]
    assert value.allocatable is not None
    assert [(r, d.raw) for r, d in value.allocatable] == [(resource, device_id)]


@pytest.mark.parametrize(("resource", "device_id"), IGNORED)
def test_device_of_others(node, source, resource, device_id):
    devices = [{"resource": resource, "ids": [device_id]}]
    node.says(pods=[pod("p", holding(**{resource: [device_id]}))], allocatable={"devices": devices})
    assert source.read().value == AllocationReading(allocations=(), allocatable=())


def test_b43_configured_resource_counts_although_nothing_shows_it(node):
    node.says(pods=[pod("p", holding(**{"example.com/passthrough": ["0000:3b:00.0"]}))])
    source = KubeletSource(node.socket, deadline=20, extra_resources=["example.com/passthrough"])
    value = source.read().value
    assert value is not None
    assert value.allocations[0].devices == (DeviceRef("0000:3b:00.0", DeviceKind.UNKNOWN),)


def test_k68_dra_claims_are_allocations_and_counted_once(node, source):
    def claim(name: str, *devices: tuple[str, str, str]) -> dict:
        resources = [{"driver": d, "pool": "n", "device": device, "share_id": s} for d, device, s in devices]
        return {"claim_namespace": "team", "claim_name": name, "resources": resources}

    claims = [
        claim("one", ("gpu.nvidia.com", "gpu-1", ""), ("gpu.nvidia.com", "gpu-0", ""), ("gpu.nvidia.com", "gpu-0", "")),
        claim("two", ("gpu.nvidia.com", "gpu-1", ""), ("gpu.nvidia.com", "gpu-2-mig-1g10gb-19-0", "")),
        claim("other", ("compute-domain.nvidia.com", "channel-0", ""), ("nic.example.com", "gpu-7", "")),
    ]
    node.says(pods=[pod("p", {"name": "main", "dynamic_resources": claims})])
    value = source.read().value
    assert value is not None
    assert value.allocations == (
        Allocation(
            ContainerName("team", "p", "main"),
            "gpu.nvidia.com",
            (
                DeviceRef("gpu.nvidia.com/n/gpu-0", DeviceKind.GPU, minor=0),
                DeviceRef("gpu.nvidia.com/n/gpu-1", DeviceKind.GPU, minor=1),
                DeviceRef("gpu.nvidia.com/n/gpu-2-mig-1g10gb-19-0", DeviceKind.MIG, minor=2),
            ),
        ),
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"code": "UNIMPLEMENTED", "text": "unknown method"},
        {"code": "UNKNOWN", "text": "disabled"},
        {"code": "RESOURCE_EXHAUSTED", "text": "rejected by rate limit"},
    ],
)
def test_no_allocatable_is_not_none_allocated(node, source, fault):
    node.says(
        pods=[pod("p", holding(**{"nvidia.com/gpu": [U1]}))], faults=[{"method": "GetAllocatableResources", **fault}]
    )
    value = source.read().value
    assert value is not None
    assert len(value.allocations) == 1
    assert value.allocatable is None


def test_allocatable_that_hangs_costs_half_the_deadline_and_nothing_else(node):
    node.says(faults=[{"method": "GetAllocatableResources", "hang": True}])
    assert KubeletSource(node.socket, deadline=0.6).read().value == AllocationReading(allocations=(), allocatable=None)


def test_every_error_has_a_reason():
    assert set(module.REASONS) == set(podresources.PodResourcesError.__subclasses__())


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        ("RESOURCE_EXHAUSTED", "rejected by rate limit", Reason.RATE_LIMITED),
        ("UNIMPLEMENTED", "unknown service v1.PodResourcesLister", Reason.UNIMPLEMENTED),
        ("FAILED_PRECONDITION", "not ready", Reason.UNAVAILABLE),
        ("UNAVAILABLE", "shutting down", Reason.UNAVAILABLE),
    ],
)
def test_status_becomes_a_reason(node, source, code, text, reason):
    node.says(faults=[{"method": "List", "code": code, "text": text}])
    failed = failure(source)
    assert failed.reason is reason
    assert text in failed.detail
    assert str(node.socket) in failed.detail


def test_k07_k22_b44_what_is_at_the_path_becomes_a_reason_and_recovers(node, source):
    node.running[0].stop()
    assert failure(source).reason is Reason.SOCKET_MISSING
    node.socket.mkdir()
    assert failure(source) == Failure(
        Reason.NOT_A_SOCKET,
        f"{node.socket}: path is a directory; "
        "remove it, and mount the directory that holds the socket instead of the socket",
    )
    node.socket.rmdir()
    node.start()
    assert source.read().failure is None


def test_b37_too_large_and_hung_and_malformed(node, raw_server):
    node.says(padding_mib=65)
    assert failure(KubeletSource(node.socket, deadline=60)).reason is Reason.TOO_LARGE
    node.says(faults=[{"method": "List", "hang": True}])
    hung = failure(KubeletSource(node.socket, deadline=0.4))
    assert (hung.reason, "no answer in 0.2 s" in hung.detail) == (Reason.TIMEOUT, True)
    assert failure(KubeletSource(raw_server(List=b"\xff"), deadline=20)).reason is Reason.MALFORMED


def test_b38_a_refused_list_is_tried_once_more_and_only_once(node, source, clock):
    refusal = {"method": "List", "code": "RESOURCE_EXHAUSTED", "text": "rejected by rate limit"}
    node.says(faults=[{**refusal, "count": 1}])
    reading = source.read()
    assert reading.failure is None
    assert reading.seconds == pytest.approx(RETRY)
    node.says(faults=[refusal])
    before = node.running[0].calls["List"]
    assert failure(source).reason is Reason.RATE_LIMITED
    assert node.running[0].calls["List"] == before + 2


def test_no_other_failure_is_tried_again(node, source):
    node.says(faults=[{"method": "List", "code": "UNAVAILABLE"}])
    failure(source)
    assert node.running[0].calls["List"] == 1


class TestRestart:
    """A kubelet that has just started lists its pods only as it takes them up again."""

    BOTH = (pod("a", holding(**{"nvidia.com/gpu": [U1]})), pod("b", holding(**{"nvidia.com/gpu": [U2]})))

    @staticmethod
    def restart(node, *pods: dict) -> None:
        node.running[-1].stop()
        node.says(pods=list(pods))
        node.start()

    @pytest.fixture
    def known(self, node, source):
        node.says(pods=list(self.BOTH))
        assert len(allocated(source)) == 2
        return source

    def test_short_list_is_not_believed_until_it_is_complete(self, node, known, clock):
        self.restart(node)
        assert failure(known).reason is Reason.UNAVAILABLE
        clock.now += 2
        node.says(pods=[self.BOTH[0]])
        failed = failure(known)
        assert "restarted 2 s ago" in failed.detail
        assert "1 of the 2 allocations" in failed.detail
        node.says(pods=list(self.BOTH))
        assert len(allocated(known)) == 2

    def test_short_list_is_believed_after_the_grace(self, node, known, clock):
        self.restart(node, self.BOTH[0])
        failure(known)
        clock.now += GRACE - 0.01
        failure(known)
        clock.now += 0.01
        assert [name for name, _, _ in allocated(known)] == ["a"]

    def test_each_restart_has_its_own_grace(self, node, known, clock):
        self.restart(node)
        failure(known)
        clock.now += GRACE - 1
        self.restart(node)
        failure(known)
        clock.now += 2
        failure(known)
        clock.now += GRACE
        assert allocated(known) == []

    def test_a_complete_list_ends_the_grace(self, node, known):
        self.restart(node, *self.BOTH)
        assert len(allocated(known)) == 2
        node.says(pods=[])
        assert allocated(known) == []

    def test_more_than_before_is_complete(self, node, known):
        self.restart(node, *self.BOTH, pod("c", holding(**{"nvidia.com/gpu": [f"{U1}::1"]})))
        assert len(allocated(known)) == 3

    def test_a_pod_that_went_without_a_restart_is_gone_at_once(self, node, known):
        node.says(pods=[self.BOTH[1]])
        assert [name for name, _, _ in allocated(known)] == ["b"]

    def test_the_first_list_of_all_is_believed(self, source):
        assert allocated(source) == []

    def test_the_socket_was_away_in_between(self, node, known, clock):
        node.running[-1].stop()
        assert failure(known).reason is Reason.SOCKET_MISSING
        clock.now += 100
        node.says(pods=[])
        node.start()
        assert "restarted 0 s ago" in failure(known).detail


def test_k08_k12_without_a_path_the_known_places_are_tried_until_one_is_there(tmp_path):
    places = [str(tmp_path / "none.sock"), str(tmp_path / "kubelet.sock")]
    source = KubeletSource(deadline=5.0, places=places)
    failure = source.read().failure
    assert failure.reason is Reason.SOCKET_MISSING
    assert all(place in failure.detail for place in places)
    write_state(tmp_path / "state", {"pods": []})
    with serve(places[1], tmp_path / "state"):
        assert source.read().value == AllocationReading((), ())


def test_what_can_be_handed_out_is_asked_for_twice_a_minute_and_after_each_change(tmp_path):
    now = 0.0
    socket, state = tmp_path / "kubelet.sock", tmp_path / "state"
    write_state(state, {"pods": []})
    with serve(socket, state) as kubelet:
        source = KubeletSource(socket, deadline=5.0, monotonic=lambda: now)
        for _ in range(6):
            source.read()
            now += 5.0
        assert (kubelet.calls["List"], kubelet.calls["GetAllocatableResources"]) == (6, 1)
        source.read()
        assert kubelet.calls["GetAllocatableResources"] == 2
        devices = [{"resource": "nvidia.com/gpu", "ids": [U1]}]
        write_state(
            state, {"pods": [{"namespace": "n", "name": "p", "containers": [{"name": "c", "devices": devices}]}]}
        )
        source.read()
        assert kubelet.calls["GetAllocatableResources"] == 3
