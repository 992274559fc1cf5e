"""The checked-in code is what the compiler makes of the text, and the package says what is public."""

import inspect
import subprocess
import sys
from types import ModuleType

import podresources
from podresources.generate import ROOT, generate
from podresources.v1 import podresources_pb2 as pb


def test_checked_in_code_is_what_the_text_generates(tmp_path):
    written = generate(tmp_path)
    assert len(written) == 10
    for path in written:
        assert path.read_text() == (ROOT / path.relative_to(tmp_path)).read_text(), f"run {generate.__module__}"


def number(field: int, value: int) -> bytes:
    """A number of one byte, as it stands on the wire."""
    return bytes([field << 3, value])


def content(field: int, *parts: bytes) -> bytes:
    """A text or a message, as it stands on the wire."""
    whole = b"".join(parts)
    return bytes([field << 3 | 2, len(whole)]) + whole


def test_field_numbers_are_those_on_the_wire():
    device = content(1, content(1, b"cdi"))
    device += content(2, b"driver") + content(3, b"pool") + content(4, b"device") + content(5, b"share")
    numa = content(3, content(1, number(1, 9)))
    container = content(
        3,
        content(1, b"main"),
        content(2, content(1, b"resource"), content(2, b"id"), numa),
        content(3, b"\x03"),
        content(4, content(1, b"memory"), number(2, 99), numa),
        content(5, content(2, b"claim"), content(3, b"claims"), content(4, device)),
    )
    wire = content(1, b"pod") + content(2, b"space") + container
    wire += content(4, b"\x07") + content(5, content(1, b"memory"), number(2, 98))
    nine = pb.TopologyInfo(nodes=[pb.NUMANode(ID=9)])
    claimed = pb.ClaimResource(
        driver_name="driver", pool_name="pool", device_name="device", share_id="share", cdi_devices=[{"name": "cdi"}]
    )
    assert pb.PodResources.FromString(wire) == pb.PodResources(
        name="pod",
        namespace="space",
        cpu_ids=[7],
        memory=[pb.ContainerMemory(memory_type="memory", size=98)],
        containers=[
            pb.ContainerResources(
                name="main",
                devices=[pb.ContainerDevices(resource_name="resource", device_ids=["id"], topology=nine)],
                cpu_ids=[3],
                memory=[pb.ContainerMemory(memory_type="memory", size=99, topology=nine)],
                dynamic_resources=[
                    pb.DynamicResource(claim_name="claim", claim_namespace="claims", claim_resources=[claimed])
                ],
            )
        ],
    )
    allocatable = pb.AllocatableResourcesResponse(devices=[{"resource_name": "r"}], cpu_ids=[1], memory=[{"size": 5}])
    assert allocatable.SerializeToString() == content(1, content(1, b"r")) + content(2, b"\x01") + content(
        3, number(2, 5)
    )
    request = pb.GetPodResourcesRequest(pod_name="pod", pod_namespace="space")
    assert request.SerializeToString() == content(1, b"pod") + content(2, b"space")


def test_every_public_name_is_listed():
    public = {
        name
        for name, value in vars(podresources).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(public) == sorted(podresources.__all__)


def test_every_error_of_the_tree_is_public_and_says_what_to_change():
    kinds = podresources.PodResourcesError.__subclasses__()
    assert len(kinds) == 14
    tree = inspect.getdoc(inspect.getmodule(podresources.PodResourcesError)) or ""
    for kind in kinds:
        assert kind.__name__ in podresources.__all__
        assert f"── {kind.__name__} " in tree
        text = str(kind("/run/k.sock", "what\n happened"))
        assert text.startswith("/run/k.sock: what happened; ")
        assert "\n" not in text
        assert kind.advice


def test_the_package_needs_nothing_else_of_the_project():
    code = "import sys, podresources; print([m for m in sys.modules if m.split('.')[0] in ('exporter', 'simulator')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
