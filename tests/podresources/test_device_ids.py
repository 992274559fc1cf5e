"""What device ids mean: every known form, everything that only looks like one, and any text at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podresources import DeviceId, Kind, parse, parse_dra

U = "8a5b0f4e-1c2d-4e3f-9a0b-112233445566"
M = "c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"

KNOWN = [
    pytest.param(f"GPU-{U}", {"kind": Kind.GPU, "uuid": f"GPU-{U}"}, id="D01 whole GPU"),
    pytest.param(f"MIG-{M}", {"kind": Kind.MIG, "uuid": f"MIG-{M}"}, id="D02 D03 MIG"),
    pytest.param(
        f"MIG-GPU-{U}/7/0",
        {"kind": Kind.MIG, "uuid": f"GPU-{U}", "gpu_instance": 7, "compute_instance": 0},
        id="D04 MIG of an old driver",
    ),
    pytest.param(
        f"MIG-GPU-{U}/1/2::3",
        {"kind": Kind.MIG, "uuid": f"GPU-{U}", "gpu_instance": 1, "compute_instance": 2, "replica": "3"},
        id="D04 replica",
    ),
    pytest.param(f"GPU-{U}::12", {"kind": Kind.GPU, "uuid": f"GPU-{U}", "replica": "12"}, id="D05 D06 replica"),
    pytest.param(f"MIG-{M}::0", {"kind": Kind.MIG, "uuid": f"MIG-{M}", "replica": "0"}, id="D07 B72 replica of MIG"),
    pytest.param("all", {"kind": Kind.ALL}, id="D08 B49 every GPU"),
    pytest.param("all::2", {"kind": Kind.ALL, "replica": "2"}, id="D08 B49 replica of every GPU"),
    pytest.param("nvidia0", {"kind": Kind.GPU, "minor": 0}, id="D10 GKE"),
    pytest.param("nvidia12", {"kind": Kind.GPU, "minor": 12}, id="D10 GKE, two digits"),
    pytest.param("nvidia0/gi1", {"kind": Kind.MIG, "minor": 0, "gpu_instance": 1}, id="D11 GKE MIG"),
    pytest.param("nvidia0/vgpu3", {"kind": Kind.GPU, "minor": 0, "replica": "3"}, id="D12 GKE sharing"),
    pytest.param(
        "nvidia0/gi1/vgpu2",
        {"kind": Kind.MIG, "minor": 0, "gpu_instance": 1, "replica": "2"},
        id="D13 GKE MIG and sharing",
    ),
]

UNKNOWN = [
    pytest.param("0", id="D09 an index"),
    pytest.param(f"GPU-{U}-0", id="D14 D15 D26 the kubelet's pick is not the GPU"),
    pytest.param("volcano-gpu-memory-3", id="D16"),
    pytest.param(f"GPU-{U}-_-7", id="D17 a unit of memory"),
    pytest.param(f"{U}-_-7", id="D17 without prefix"),
    pytest.param("tencent.com/vcuda-core-5", id="D18"),
    pytest.param("k8s.gpu.nvidia.com/claim=1-gpu-0", id="D25 CDI of a claim"),
    pytest.param(f"nvidia.com/gpu=GPU-{U}", id="D25 CDI"),
    pytest.param("0000:3b:00.0", id="B43 PCI address"),
    "GPU-x::",
    "GPU-x",
    "::3",
    "::",
    "all::",
    f"GPU-{U}::",
    f"GPU-{U}::-1",
    f"GPU-{U}::+1",
    f"GPU-{U}::x",
    f"GPU-{U}::3::4",
    f"GPU-{U}::007",
    f"GPU-{U}::٣",  # a digit, but no program's
    f"GPU-{U}\n",
    f" GPU-{U}",
    f"xGPU-{U}",
    f"GPU-{U.upper()}",
    f"GPU-{U}/1/2",
    f"MIG-GPU-{U}",
    f"MIG-GPU-{U}/1",
    f"MIG-GPU-{U}/1/",
    f"MIG-GPU-{U}/1/2/3",
    "nvidia",
    "nvidia-1",
    "nvidia01",
    "nvidia0/",
    "nvidia0/gi",
    "nvidia0/vgpu",
    "nvidia0/vgpu1/gi1",
    "nvidia0::1",
    "nvidia" + "9" * 5000,
    "MIG-",
    "GPU-",
    "ALL",
    "",
    "a" * 10_240,
    f"GPU-{U}::" + "1" * 10_240,
]


@pytest.mark.parametrize(("text", "fields"), KNOWN)
def test_known_form(text, fields):
    assert parse(text) == DeviceId(text, **fields)


@pytest.mark.parametrize("text", UNKNOWN)
def test_anything_else_is_unknown_and_kept(text):
    assert parse(text) == DeviceId(text, kind=Kind.UNKNOWN)


@pytest.mark.parametrize(
    ("device", "fields"),
    [
        pytest.param("gpu-0", {"kind": Kind.GPU, "minor": 0}, id="D20 GPU"),
        pytest.param("gpu-11", {"kind": Kind.GPU, "minor": 11}, id="D20 GPU, two digits"),
        pytest.param("gpu-1-mig-2g47gb-14-0", {"kind": Kind.MIG, "minor": 1}, id="D21 MIG"),
        pytest.param("gpu-1-mig-1g10gb-me-20-4", {"kind": Kind.MIG, "minor": 1}, id="D21 MIG with an attribute"),
        pytest.param("gpu-3-mig-19-0-1", {"kind": Kind.MIG, "minor": 3}, id="D22 MIG, older driver"),
        pytest.param("gpu-vfio-0", {}, id="D23 passthrough"),
        pytest.param("gpu-", {}, id="no number"),
        pytest.param("gpu-0-mig", {}, id="half a MIG name"),
        pytest.param("gpu-0-mig-1g10gb", {}, id="MIG without its place"),
        pytest.param("gpu-00", {}, id="leading zero"),
        pytest.param("", {}, id="empty"),
        pytest.param("gpu-0-mig-" + "a-" * 5000, {}, id="10 KB"),
    ],
)
def test_dra_device_name(device, fields):
    raw = f"gpu.nvidia.com/node-1/{device}"
    assert parse_dra("gpu.nvidia.com", "node-1", device) == DeviceId(raw, **fields)


def test_dra_share_is_a_replica():
    assert parse_dra("gpu.nvidia.com", "n", "gpu-0", share_id="s-1").replica == "s-1"  # D24


def test_dra_name_of_another_driver_is_not_interpreted():
    assert parse_dra("gpu.example.com", "n", "gpu-0") == DeviceId("gpu.example.com/n/gpu-0")


hexadecimal = st.text("0123456789abcdef", min_size=32, max_size=32)
uuids = hexadecimal.map(lambda h: f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}")
numbers = st.integers(0, 999_999)
replicas = st.none() | numbers


@st.composite
def formatted(draw):
    """A device that is there, and how its plugin writes it."""
    replica = draw(replicas)
    suffix, text = ("", "") if replica is None else (f"::{replica}", str(replica))
    form = draw(st.sampled_from(["gpu", "mig", "old", "gke", "all"]))
    if form == "gke":
        minor, gpu_instance = draw(numbers), draw(st.none() | numbers)
        raw = f"nvidia{minor}" + ("" if gpu_instance is None else f"/gi{gpu_instance}")
        raw += "" if replica is None else f"/vgpu{replica}"
        kind = Kind.GPU if gpu_instance is None else Kind.MIG
        return DeviceId(raw, kind=kind, minor=minor, gpu_instance=gpu_instance, replica=text)
    if form == "all":
        return DeviceId(f"all{suffix}", kind=Kind.ALL, replica=text)
    uuid = draw(uuids)
    if form == "old":
        gi, ci = draw(numbers), draw(numbers)
        raw = f"MIG-GPU-{uuid}/{gi}/{ci}{suffix}"
        return DeviceId(raw, kind=Kind.MIG, uuid=f"GPU-{uuid}", gpu_instance=gi, compute_instance=ci, replica=text)
    name = f"{form.upper()}-{uuid}"
    return DeviceId(f"{name}{suffix}", kind=Kind(form), uuid=name, replica=text)


@given(formatted())
def test_what_a_plugin_writes_is_read_back(device):
    assert parse(device.raw) == device


texts = st.text() | st.text("GPUMIGnvidiaall0123456789abcdef-:/_", max_size=80)
near = st.tuples(formatted(), st.integers(0, 80), texts.map(lambda t: t[:3])).map(
    lambda t: t[0].raw[: t[1]] + t[2] + t[0].raw[t[1] :]
)


@given(texts | near)
def test_no_text_raises_and_every_text_is_kept(text):
    device = parse(text)
    assert device.raw == text
    if device.kind is Kind.UNKNOWN:
        assert device == DeviceId(text)
    elif device.kind is not Kind.ALL:
        assert device.uuid or device.minor is not None


@given(texts, texts, texts)
def test_no_dra_name_raises(driver, pool, device):
    assert parse_dra(driver, pool, device).raw == f"{driver}/{pool}/{device}"
