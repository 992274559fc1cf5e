"""The text of dmem files: a GPU is found by its key, in whatever order, beside whatever else."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.model import Backend, CgroupMemory
from exporter.sources import dmem

KEY = "nvidia/00000000:02:00.0/vidmem"
amounts = st.integers(0, dmem.EVERYTHING)
hexadecimal = st.text("0123456789abcdef", min_size=2, max_size=2)
keys = st.builds("nvidia/{}{}{}{}:{}:{}.0/vidmem".format, *([hexadecimal] * 6)).filter(lambda key: key != KEY)
# As other drivers write them, and some that look nearly like ours.
foreign = st.sampled_from(
    [
        "drm/0000:03:00.0/vram0 1024",
        "drm/0000:03:00.0/stolen max",
        "nvidia/00000000:02:00.0/sysmem 7",
        "nvidia/0000:02:00.0/vidmem 7",
        "NVIDIA/00000000:02:00.0/vidmem 7",
        " nvidia/00000000:02:00.0/vidmem 7",
        "nvidia/00000000:02:00.0/vidmem  7",
        "nvidia/00000000:02:00.0/vidmem -7",
        "nvidia/00000000:02:00.0/vidmem 7K",
        "nvidia/00000000:02:00.0/vidmem \u0667",
        "nvidia/00000000:02:00.0/vidmem 99999999999999999999",
        "nvidia/00000000:02:00.0/vidmem",
        "",
    ]
)


def line(key: str, amount: int) -> str:
    return f"{key} {'max' if amount == dmem.EVERYTHING else amount}"


@given(st.dictionaries(keys, amounts, max_size=8), st.lists(foreign), st.randoms())
def test_each_gpu_is_found_in_any_order_and_beside_other_drivers(values, others, random):
    lines = [*(line(key, amount) for key, amount in values.items()), *others]
    random.shuffle(lines)
    text = "".join(f"{found}\n" for found in lines).encode()
    assert {key: dmem.amount(text, key) for key in values} == values
    assert dmem.amount(text, KEY) is None


@given(st.dictionaries(keys, st.integers(0, dmem.EVERYTHING - 1), max_size=8), st.lists(foreign), st.randoms())
def test_the_gpus_that_the_kernel_counts(values, others, random):
    lines = [*(line(key, amount) for key, amount in values.items()), *others]
    random.shuffle(lines)
    assert dmem.regions("".join(f"{found}\n" for found in lines).encode()) - {KEY} == set(values)


@given(st.binary())
@example(b"nvidia/00000000:02:00.0/vidmem 7\n\xff\xfe\n\0")
@example(b"nvidia/00000000:02:00.0/vidmem")
@example(b"nvidia/00000000:02:00.0/vidmem ")
def test_junk_never_raises(text):
    assert dmem.regions(text) <= {KEY}
    assert dmem.amount(text, KEY) in (None, 7)
    assert dmem.memory(KEY, current=text, hard=text, soft=text) in (None, CgroupMemory(Backend.DMEM, 7, 7, soft=7))


@pytest.mark.parametrize(
    ("bus_id", "key"),
    [
        ("00000000:02:00.0", KEY),
        ("0000:02:00.0", KEY),
        ("00000001:C3:1F.0", "nvidia/00000001:c3:1f.0/vidmem"),
        ("", None),
        ("02:00.0", None),
        ("00000000:02:00.0 ", None),
    ],
)
def test_the_key_of_a_gpu(bus_id, key):
    assert dmem.region(bus_id) == key


def of(current: bytes, hard: bytes, soft: bytes) -> CgroupMemory | None:
    return dmem.memory(KEY, current=current, hard=hard, soft=soft)


def test_max_is_no_limit_and_never_a_number_n65():
    found = of(line(KEY, 5).encode(), line(KEY, dmem.EVERYTHING).encode(), line(KEY, 0).encode())
    assert found == CgroupMemory(Backend.DMEM, charged=5, hard=None, soft=0)


def test_a_region_that_is_not_in_all_files_is_left_out():
    whole, empty = line(KEY, 5).encode(), b""
    assert of(whole, whole, whole) == CgroupMemory(Backend.DMEM, 5, 5, soft=5)
    for texts in ((empty, whole, whole), (whole, empty, whole), (whole, whole, empty)):
        assert of(*texts) is None


def test_a_charge_of_max_makes_no_sense():
    assert of(line(KEY, dmem.EVERYTHING).encode(), line(KEY, 1).encode(), line(KEY, 0).encode()) is None
