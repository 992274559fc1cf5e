"""Which GPU an ordinal is, and when that can't be told."""

import pytest

from exporter.sources.mps_devices import ordinals
from tests.mps_client.conftest import gpus

SAME = gpus("H100", "H100", "H100")
MIXED = gpus("T4", "H100", "H100")
A, B, C = (gpu.uuid for gpu in SAME)


@pytest.mark.parametrize(
    ("devices", "visible", "order", "allowed", "uuids"),
    [
        pytest.param(SAME, None, None, "", (A, B, C), id="alike"),
        pytest.param(SAME[::-1], None, None, "", (A, B, C), id="in-any-order"),
        pytest.param(MIXED, None, None, "", None, id="fastest-first"),
        pytest.param(MIXED, None, "FASTEST_FIRST", "", None, id="fastest-first-by-name"),
        pytest.param(MIXED, None, "PCI_BUS_ID", "", (A, B, C), id="by-the-bus"),
        pytest.param(SAME, "2,0", None, "", (C, A), id="indices"),
        pytest.param(MIXED, "2,0", None, "", None, id="indices-of-unknown-order"),
        pytest.param(MIXED, "2,0", "PCI_BUS_ID", "", (C, A), id="indices-by-the-bus"),
        pytest.param(MIXED, f"{B},{A}", None, "", (B, A), id="uuids"),
        pytest.param(MIXED, "GPU-00000001", None, "", (B,), id="beginning-of-a-uuid"),
        pytest.param(MIXED, "GPU-0000000", None, "", None, id="ambiguous-beginning"),
        pytest.param(MIXED, "GPU-ffff", None, "", None, id="unknown-uuid"),
        pytest.param(SAME, "MIG-1,MIG-2", None, "", ("MIG-1", "MIG-2"), id="mig"),
        pytest.param(SAME, "", None, "", (), id="none-visible"),
        pytest.param(SAME, "0,0", None, "", None, id="twice"),
        pytest.param(SAME, "3", None, "", None, id="out-of-range"),
        pytest.param(SAME, "-1", None, "", None, id="negative"),
        pytest.param(SAME, "NoDevFiles", None, "", None, id="nonsense"),
        pytest.param((), None, None, "", None, id="gpus-not-known"),
        pytest.param(MIXED, None, None, f"{C},{B}", (C, B), id="allowed-uuids"),
        pytest.param(SAME, None, None, "1", (B,), id="allowed-ordinal"),
        pytest.param(SAME, f"{C},{B}", None, "1", (B,), id="allowed-ordinal-of-the-daemon"),
        pytest.param(MIXED, None, None, "1", None, id="allowed-ordinal-of-unknown-order"),
        pytest.param(SAME, "1", None, "-", (B,), id="all-allowed"),
    ],
)
def test_ordinals(devices, visible, order, allowed, uuids):
    assert ordinals(devices, visible=visible, order=order, allowed=allowed) == uuids
