"""What CUDA_MPS_* variables of a client mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ClientEnvironment
from exporter.mps_variables import VariableLimit, pinned_limit, thread_ratio
from tests.builders import GIB, MIB, U1, U2

VOID = VariableLimit(void=True)
NONE = VariableLimit()
UNKNOWN = VariableLimit(unknown=True)


def limit(text, *, gpu=U1, server=(U1,), held=(), **devices):
    environment = ClientEnvironment(pinned=text, **devices)
    return pinned_limit(environment, gpu_uuid=gpu, server_devices=server, held=held)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0=2G", VariableLimit(2 * GIB)),
        ("0=512M", VariableLimit(512 * MIB)),
        ("0=512MB", VariableLimit(512 * MIB)),  # only the first letter of a unit counts
        (" 0 = 2G ,", VariableLimit(2 * GIB)),
        (f"{U1}=3G", VariableLimit(3 * GIB)),
        (f"{U1[:12]}=3G", VariableLimit(3 * GIB)),
        ("0=4G,0=2G", VariableLimit(2 * GIB)),
        ("0=1073741824", NONE),  # bytes: taken for MiB, so no limit at all
        ("0=1.5G", NONE),
        ("0=0G", NONE),
        ("0=", NONE),
        ("2G", NONE),
        ("", NONE),
        (None, NONE),
        ("0=2G,1=4G", VOID),
        (f"{U2}=2G", VOID),
        ("1=junk", VOID),
    ],
)
def test_one_visible_gpu(text, expected):
    assert limit(text) == expected


def test_ordinals_are_those_of_the_gpus_that_the_client_sees():
    assert limit("1=2G", server=(U2, U1)) == UNKNOWN  # the server has two, and how many the container has is not known
    assert limit("0=2G", server=(U2, U1)) == NONE  # there is an ordinal 0; which GPU it is, is not known
    assert limit("1=2G", server=(U2, U1), held=(U1, U2)) == VariableLimit(2 * GIB)
    assert limit("0=2G", server=(U2, U1), held=(U1,)) == VariableLimit(2 * GIB)
    assert limit("0=2G,1=2G", server=(U2, U1), held=(U1,)) == VOID
    assert limit("0=2G", server=(U2, U1), nvidia_devices="all") == NONE  # of the other GPU
    assert limit("1=2G", server=(U2, U1), nvidia_devices="all") == VariableLimit(2 * GIB)
    assert limit("0=2G,1=4G", server=(U2, U1), nvidia_devices=U1) == VOID


def test_cuda_visible_devices_narrows_and_reorders():
    both = {"server": (U1, U2), "held": (U1, U2)}
    assert limit("0=2G,1=4G", cuda_devices="0", **both) == VOID
    assert limit("0=2G", cuda_devices="1", **both) == NONE
    assert limit("0=2G", gpu=U2, cuda_devices="1", **both) == VariableLimit(2 * GIB)
    assert limit("0=2G,1=4G", cuda_devices=f"{U2},{U1}", **both) == VariableLimit(4 * GIB)
    assert limit("0=2G,1=4G", cuda_devices="0,7,1", **both) == VOID  # what follows an unknown device is not seen
    assert limit("0=2G", cuda_devices="", **both) == VOID


def test_numbers_of_a_container_tell_how_many_but_not_which():
    assert limit("0=2G", nvidia_devices="3") == VariableLimit(2 * GIB)
    assert limit("0=2G,1=4G", nvidia_devices="3") == VOID
    assert limit("0=2G,1=4G", nvidia_devices="2,3", server=None) == NONE


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("25", 0.25),
        ("12.5", 0.125),
        ("100", 1.0),
        ("0", None),
        ("101", None),
        ("-5", None),
        ("50%", None),
        (None, None),
    ],
)
def test_thread_percentage(text, ratio):
    assert thread_ratio(ClientEnvironment(percentage=text)) == ratio


_TEXT = st.one_of(st.none(), st.text(max_size=40), st.from_regex(r"([0-9a-zA-Z-]{0,9}=[0-9]{0,5}[MGK]?,?){0,4}"))


@given(_TEXT, _TEXT, _TEXT, _TEXT)
def test_no_text_raises_or_means_more_than_it_says(pinned, percentage, cuda, nvidia):
    environment = ClientEnvironment(pinned, percentage, None, cuda, nvidia)
    found = pinned_limit(environment, gpu_uuid=U1, server_devices=(U1, U2), held=())
    assert found.limit is None or (found.limit > 0 and not found.void and not found.unknown)
    ratio = thread_ratio(environment)
    assert ratio is None or 0 < ratio <= 1
