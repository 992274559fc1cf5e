"""What is around the program, read from files as the kernel writes them."""

import pytest

from exporter.sources.surroundings import surroundings

STATUS = "Name:\tpodgpu\nCapInh:\t0000000000000000\nCapEff:\t{}\nCapBnd:\t000001ffffffffff\n"


def read(tmp_path, mask=None):
    status = tmp_path / "status"
    if mask is not None:
        status.write_text(STATUS.format(mask))
    return surroundings(sysfs=tmp_path / "sys", control="no-such-command", pods_from="", status=status)


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("0000000000000000", set()),
        ("0000000000080000", {"SYS_PTRACE"}),
        ("0000000000280002", {"SYS_PTRACE", "SYS_ADMIN", "DAC_OVERRIDE"}),
    ],
)
def test_capabilities_by_their_bits(tmp_path, mask, names):
    assert read(tmp_path, mask).capabilities == names


@pytest.mark.parametrize("mask", [None, "", "not hex"])
def test_rights_that_cannot_be_read_are_unknown(tmp_path, mask):
    assert read(tmp_path, mask).capabilities is None


@pytest.mark.parametrize(("entry", "version"), [("cgroup.controllers", 2), ("memory/tasks", 1), ("elsewhere/x", None)])
def test_the_version_of_the_cgroup_tree(tmp_path, entry, version):
    path = tmp_path / "sys/fs/cgroup" / entry
    path.parent.mkdir(parents=True)
    path.touch()
    assert read(tmp_path, "0").cgroup_version == version


def test_dmem_is_there_when_it_counts_a_device(tmp_path):
    root = tmp_path / "sys/fs/cgroup"
    root.mkdir(parents=True)
    assert not read(tmp_path, "0").dmem
    (root / "dmem.capacity").write_text("nvidia/00000000:81:00.0/vidmem 85899345920\n")
    assert read(tmp_path, "0").dmem
