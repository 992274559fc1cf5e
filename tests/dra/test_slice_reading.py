"""What the source makes of ResourceSlices, and how seldom it asks for them."""

import json
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Failure, Reason
from exporter.model import DraAttributes, DraDevice, DraType, SliceReading
from exporter.sources.resourceslices import EARLIEST, EVERY, parse
from tests.dra.conftest import GPU_A, GPU_B, MIG_A, NODE, WHOLE, device, make_source, resource_slice

V1, V1BETA2, V1BETA1 = (f"/apis/resource.k8s.io/{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1"))
CLAIMED = frozenset({DraDevice("gpu.nvidia.com", NODE, "gpu-0")})
UNKNOWN = DraDevice("gpu.nvidia.com", NODE, "gpu-0-mig-19-6-1")


def key(name, pool=NODE):
    return DraDevice("gpu.nvidia.com", pool, name)


def devices(*slices):
    found = parse(json.dumps({"kind": "ResourceSliceList", "items": list(slices)}).encode(), node=NODE)
    assert isinstance(found, SliceReading)
    assert isinstance(found.devices, MappingProxyType)
    return dict(found.devices)


# --- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "asked"),
    [
        (["v1", "v1beta2", "v1beta1"], [V1]),
        (["v1beta2", "v1beta1"], [V1, V1BETA2]),
        (["v1beta1"], [V1, V1BETA2, V1BETA1]),
    ],
)
def test_k20_each_version_of_the_api_is_read_and_the_one_that_answered_is_remembered(
    cluster, source, time, served, asked
):
    cluster.says(versions=served, slices=[WHOLE])
    assert source.read(CLAIMED).value.devices == {key("gpu-0"): DraAttributes(DraType.GPU, uuid=GPU_A)}
    assert list(cluster.server.calls) == asked
    time.now += EVERY
    source.read(CLAIMED)
    assert cluster.server.calls == {path: 2 if path == asked[-1] else 1 for path in asked}


def test_a_version_that_goes_away_is_replaced_by_another(cluster, source, time):
    cluster.says(versions=["v1beta1"], slices=[WHOLE])
    source.read(CLAIMED)
    cluster.says(versions=["v1"], slices=[WHOLE])
    time.now += EVERY
    assert source.read(CLAIMED).value is not None


def test_only_this_nodes_slices_of_nvidias_driver_count(cluster, source):
    cluster.says(
        slices=[
            WHOLE,
            resource_slice(device("gpu-1", type="gpu", uuid=GPU_B), node="node-2", pool="node-2"),
            resource_slice(device("gpu-1", type="gpu", uuid=GPU_B), driver="gpu.example.com"),
            resource_slice(device("channel-0", type="channel"), driver="compute-domain.nvidia.com"),
        ]
    )
    assert set(source.read(CLAIMED).value.devices) == {key("gpu-0")}


def test_a_server_that_ignores_the_selector_changes_nothing():
    assert devices(WHOLE, resource_slice(device("gpu-1", type="gpu", uuid=GPU_B), node="node-2")) == {
        key("gpu-0"): DraAttributes(DraType.GPU, uuid=GPU_A)
    }


def test_every_kind_of_device():
    found = devices(
        resource_slice(
            device("gpu-0", type="gpu", uuid=GPU_A, productName="NVIDIA H100"),
            device("gpu-1-mig-19-0-1", type="mig", uuid=MIG_A, parentUUID=GPU_B, profile="1g.10gb"),
            device("gpu-1-mig-2g47gb-14-0", type="mig", parentUUID=GPU_B, profile="2g.47gb"),
            device("gpu-vfio-0", type="vfio", uuid=GPU_A),
            device("gpu-9", type="hologram", uuid=GPU_B),
            device("gpu-8"),
        )
    )
    assert found == {
        key("gpu-0"): DraAttributes(DraType.GPU, uuid=GPU_A),
        key("gpu-1-mig-19-0-1"): DraAttributes(DraType.MIG, uuid=MIG_A, parent_uuid=GPU_B, profile="1g.10gb"),
        key("gpu-1-mig-2g47gb-14-0"): DraAttributes(DraType.MIG, parent_uuid=GPU_B, profile="2g.47gb"),
        key("gpu-vfio-0"): DraAttributes(DraType.VFIO, uuid=GPU_A),
    }


def test_attributes_named_with_the_drivers_domain():
    named = device("gpu-0", **{"gpu.nvidia.com/type": "gpu", "gpu.nvidia.com/uuid": GPU_A, "example.com/uuid": GPU_B})
    assert devices(resource_slice(named)) == {key("gpu-0"): DraAttributes(DraType.GPU, uuid=GPU_A)}


def test_of_two_generations_of_a_pool_the_older_is_over():
    old = resource_slice(device("gpu-0", type="gpu", uuid=GPU_A), device("gpu-1", type="gpu", uuid=GPU_B))
    new = resource_slice(device("gpu-0", type="gpu", uuid=GPU_B), generation=2)
    other = resource_slice(device("gpu-0", type="gpu", uuid=GPU_A), pool="rack/7")
    expected = {
        key("gpu-0"): DraAttributes(DraType.GPU, uuid=GPU_B),
        key("gpu-0", "rack/7"): DraAttributes(DraType.GPU, uuid=GPU_A),
    }
    assert devices(old, new, other) == devices(other, new, old) == expected
    # The newest slice may be the one that has only the counters which the devices share.
    assert key("gpu-1") not in devices(old, {"spec": {**new["spec"], "devices": None}})


def test_a_device_described_twice_counts_only_if_the_descriptions_agree():
    one, same, other = (device("gpu-0", type="gpu", uuid=uuid) for uuid in (GPU_A, GPU_A, GPU_B))
    assert set(devices(resource_slice(one, same))) == {key("gpu-0")}
    assert devices(resource_slice(one, other, one)) == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Please log in</html>",
        b"null",
        b"[]",
        b'{"kind": "Status"}',
        b"[" * 100_000,
        b'\xff\xfe{"',
        b'{"kind": "ResourceSliceList"',
    ],
)
def test_what_is_no_list_of_slices_is_malformed(body):
    found = parse(body, node=NODE)
    assert isinstance(found, Failure)
    assert found.reason is Reason.MALFORMED


@pytest.mark.parametrize("items", [None, [], {}])
def test_a_list_without_items_has_no_devices(items):
    assert parse(json.dumps({"kind": "ResourceSliceList", "items": items}).encode(), node=NODE) == SliceReading({})


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "driver", "nodeName", "pool", "name", "generation", "devices", "attributes", "basic"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(anything, anything)
def test_a_bad_entry_costs_itself(spec, entry):
    """Whatever stands beside it, a good slice is read."""
    broken = {"driver": "gpu.nvidia.com", "nodeName": NODE, "pool": {"name": "p"}, "devices": [entry]}
    if isinstance(spec, dict):
        broken |= {name: value for name, value in spec.items() if name in ("pool", "devices")}
    found = devices({"spec": broken}, {"spec": spec}, entry, resource_slice(*WHOLE["spec"]["devices"], pool="good"))
    assert found[key("gpu-0", "good")] == DraAttributes(DraType.GPU, uuid=GPU_A)


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason", "says"),
    [
        ({"faults": [{"status": 403}]}, Reason.NO_PERMISSION, "resources: [resourceslices], verbs: [list]"),
        ({"faults": [{"status": 429}]}, Reason.RATE_LIMITED, ""),
        ({"faults": [{"status": 500}]}, Reason.UNAVAILABLE, "500"),
        ({"faults": [{"cut": True}]}, Reason.UNAVAILABLE, ""),
        ({"faults": [{"body": "{}"}]}, Reason.MALFORMED, "ResourceSliceList"),
        ({"tokens": ["another"]}, Reason.NO_PERMISSION, "token"),
        ({"versions": []}, Reason.NOT_SUPPORTED, "ResourceSlices"),
    ],
)
def test_b77_a_failure_is_a_value_and_over_when_the_server_is_well_again(cluster, source, time, state, reason, says):
    cluster.says(slices=[WHOLE], **state)
    reading = source.read(CLAIMED)
    assert reading.failure is not None
    assert reading.failure.reason is reason
    assert says in reading.failure.detail
    cluster.says(slices=[WHOLE])
    time.now += EVERY
    assert source.read(CLAIMED).value is not None


def test_a_failure_ends_what_was_known(cluster, source, time):
    assert source.read(CLAIMED).value is not None
    cluster.server.stop()
    time.now += EVERY
    assert source.read(CLAIMED).failure.reason is Reason.UNAVAILABLE
    assert source.read(CLAIMED).failure.reason is Reason.UNAVAILABLE


def test_a_hung_server_costs_one_deadline(cluster, time):
    cluster.says(faults=[{"hang": True}])
    source = make_source(cluster, time, deadline=0.3)
    assert source.read(CLAIMED).failure.reason is Reason.TIMEOUT
    assert source.read(CLAIMED).failure.reason is Reason.TIMEOUT
    assert cluster.requests == 1


def test_without_the_nodes_name_nothing_is_asked(cluster, time):
    reading = make_source(cluster, time, node="").read(CLAIMED)
    assert reading.failure.reason is Reason.MISSING
    assert "PODGPU_NODE_NAME" in reading.failure.detail
    assert cluster.requests == 0


# --- how often ----------------------------------------------------------------------------------------------------


def minutes(source, time, claimed, count, *, step=5.0):
    """Cycles of some minutes."""
    for _ in range(round(count * 60 / step)):
        source.read(claimed)
        time.now += step


def test_k63_in_steady_state_there_is_one_request_a_minute(cluster, source, time):
    minutes(source, time, CLAIMED, 10)
    assert cluster.requests == 10


def test_many_nodes_do_not_ask_at_the_same_moment(cluster, time):
    source = make_source(cluster, time, chance=lambda: 1.0)
    minutes(source, time, CLAIMED, 10)
    assert cluster.requests == 600 / (EVERY * 1.25)


def test_b40_b67_a_device_that_is_not_there_is_asked_for_once(cluster, source, time):
    source.read(CLAIMED)
    time.now += 2 * EARLIEST
    source.read(CLAIMED | {UNKNOWN})
    assert cluster.requests == 2
    # Neither as long as the claim stays, nor when its pod is restarted again and again.
    for _ in range(4):
        time.now += 2 * EARLIEST
        source.read(CLAIMED)
        source.read(CLAIMED | {UNKNOWN})
    assert cluster.requests == 2


def test_b67_a_device_that_was_just_made_is_found_before_the_minute_is_over(cluster, source, time):
    source.read(CLAIMED)
    made = device(UNKNOWN.device, type="mig", uuid=MIG_A, parentUUID=GPU_A, profile="1g.10gb")
    cluster.says(slices=[resource_slice(*WHOLE["spec"]["devices"], made, generation=2)])
    time.now += EARLIEST
    assert source.read(CLAIMED | {UNKNOWN}).value.devices[UNKNOWN].uuid == MIG_A


def test_when_the_slices_change_a_missing_device_may_be_asked_for_again(cluster, source, time):
    source.read(CLAIMED | {UNKNOWN})
    cluster.says(slices=[resource_slice(device("gpu-0", type="gpu", uuid=GPU_B), generation=2)])
    time.now += EVERY
    source.read(CLAIMED)  # without the claim: the new answer says nothing of its device yet
    time.now += EARLIEST
    before = cluster.requests
    source.read(CLAIMED | {UNKNOWN})
    assert cluster.requests == before + 1


def test_a_new_name_at_each_cycle_does_not_make_a_request_at_each_cycle(cluster, source, time):
    for number in range(60):
        source.read(CLAIMED | {key(f"gpu-{number}-mig-19-0-1")})
        time.now += 1.0
    assert cluster.requests == 60 / EARLIEST


def test_k55_failures_make_requests_rarer(cluster, source, time):
    cluster.says(faults=[{"status": 410}])
    minutes(source, time, CLAIMED | {UNKNOWN}, 10, step=1.0)
    assert cluster.requests == 6 + 9  # after 1, 3, 7, 15, 31 and 63 s, then each minute


def test_k54_after_410_the_servers_memory_is_not_asked_again(cluster, source, time, monkeypatch):
    asked = []
    get = source._api.get
    monkeypatch.setattr(source._api, "get", lambda path: asked.append(path) or get(path))
    cluster.says(slices=[WHOLE], faults=[{"status": 410, "count": 1}])
    assert source.read(CLAIMED).failure is not None
    time.now += 1
    assert source.read(CLAIMED).value is not None
    time.now += EVERY
    source.read(CLAIMED)
    query = f"{V1}?fieldSelector=spec.nodeName%3D{NODE}"
    assert asked == [f"{query}&resourceVersion=0", query, f"{query}&resourceVersion=0"]


@pytest.mark.parametrize(
    ("status", "asks_for", "waits"),
    [(429, "30", 30), (503, "30", 30), (429, None, 1), (403, None, 60), (403, "120", 120), (429, "999999", 600)],
)
def test_v06_a_server_is_left_alone_for_as_long_as_it_asks(cluster, source, time, status, asks_for, waits):
    headers = {} if asks_for is None else {"Retry-After": asks_for}
    cluster.says(slices=[WHOLE], faults=[{"status": status, "headers": headers, "count": 1}])
    source.read(CLAIMED)
    time.now += waits - 0.5
    source.read(CLAIMED | {UNKNOWN})
    assert cluster.requests == 1
    time.now += 0.5
    assert source.read(CLAIMED).value is not None
    assert cluster.requests == 2


def test_k57_a_rotated_token_is_used_without_a_restart(cluster, source, time):
    source.read(CLAIMED)
    cluster.says(slices=[WHOLE], tokens=["second-token"])
    time.now += EVERY
    assert source.read(CLAIMED).failure.reason is Reason.NO_PERMISSION
    (cluster.folder / "token").write_text("second-token")
    time.now += 1
    assert source.read(CLAIMED).value is not None
