"""Whether the exporter's own cgroup is limited, so that the driver may show it less memory than there is."""

import shutil

import pytest

from exporter.sources.container_cgroups import own_directory
from simulator.nvml import state
from simulator.procfs import CONTAINER_CGROUP_NAMESPACE
from tests.memory_limits.conftest import GETTER, GIB, cgroup, device, ref, value

OWN = "/system.slice/podgpu.service"  # where the simulated procfs puts us


@pytest.fixture(params=["dmem", "misc"])
def machine(request):
    return request.getfixturevalue(request.param)


def limited(machine, *gpus):
    return value(machine.source().read({device(number): [] for number in gpus or (0, 1)})).own_limited


def test_no_limit_and_one_on_one_gpu(machine):
    machine.tree.put(OWN)
    assert limited(machine) is False
    machine.limit(OWN, 8 * GIB, gpu=1)
    assert limited(machine) is True
    assert limited(machine, 0) is False


def test_a_limit_that_was_taken_back(machine):
    machine.tree.put(OWN)
    machine.limit(OWN, 8 * GIB)
    machine.limit(OWN, state.UNLIMITED)
    assert limited(machine) is False


def test_our_directory_is_not_to_be_seen(machine):
    assert limited(machine) is None
    shutil.rmtree(machine.directory / "proc" / "self")
    assert limited(machine) is None


def test_a_cgroup_namespace_of_our_own(machine):
    place = cgroup(1)
    machine.put(place)
    machine.limit(place.path, GIB)
    machine.processes.set_self("0::/\n", cgroup_namespace=CONTAINER_CGROUP_NAMESPACE)
    assert limited(machine) is None  # the host's tree does not show which cgroup is ours
    tree, procfs = machine.folder(place.path), machine.directory / "proc"
    assert own_directory(procfs, tree) == str(tree)  # unless it is mounted from inside the namespace


def test_paths_that_lead_out_of_the_tree(machine):
    machine.tree.put("/kubepods.slice")
    for path in ("/../kubepods.slice", "/..", "/kubepods.slice/.."):
        machine.processes.set_self(f"0::{path}\n")
        assert own_directory(machine.directory / "proc", machine.tree.root) is None


def test_in_the_root(machine):
    machine.processes.set_self("0::/\n")
    assert limited(machine) is False


def test_a_call_that_fails_leaves_it_open(misc):
    misc.tree.put(OWN)
    misc.write(state.Fault(GETTER, gpu=0, code=999))
    assert limited(misc) is None
    misc.limit(OWN, GIB, gpu=1)
    assert limited(misc) is True


def test_a_container_asked_for_beside_it(machine):
    place = cgroup(1)
    machine.put(place)
    machine.tree.put(OWN)
    machine.limit(place.path, GIB)
    assert value(machine.source().read({device(0): [ref(place)]})).own_limited is False
