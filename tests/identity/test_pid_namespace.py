"""Whether this procfs shows the node's processes, and whether cgroup paths start at the node's root."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.errors import Reason
from exporter.model import Place
from exporter.sources.procfs import ProcfsSource
from simulator.cgroupfs import ContainerCgroup
from simulator.procfs import CONTAINER_CGROUP_NAMESPACE, CONTAINER_PID_NAMESPACE, Process, Procfs

OWN = ContainerCgroup("4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef" * 4)
PAUSE = ContainerCgroup(OWN.pod_uid, "00ff" * 16)
OTHER = ContainerCgroup("eab5a334-93fe-48a8-b139-9e8079c1f163", "fedcba9876543210" * 4)


def first_process(cgroup_text):
    return Process(1, 1, "init", ("init",), cgroup_text)


def view(tmp_path, *, first, own, private=False, pids=(900,)):
    """A procfs in a pid namespace other than the kernel's initial one."""
    procfs = Procfs(tmp_path / "proc")
    procfs.put(first_process(first))
    procfs.set_self(
        own,
        pid_namespace=CONTAINER_PID_NAMESPACE,
        cgroup_namespace=CONTAINER_CGROUP_NAMESPACE if private else CONTAINER_CGROUP_NAMESPACE + 1,
        pids=pids,
    )
    return ProcfsSource(procfs.root)


def assert_blind(source):
    reading = source.read([1])
    assert reading.failure is not None
    assert reading.failure.reason is Reason.BLIND_PID_NAMESPACE
    assert "hostPID: true" in reading.failure.detail
    assert "\n" not in reading.failure.detail
    assert source.namespace_failure() == reading.failure


def test_nodes_own_namespace_is_fine(tmp_path):
    source = ProcfsSource(Procfs(tmp_path).root)
    assert source.namespace_failure() is None
    assert source.read([1]).value.places == {1: Place()}


@pytest.mark.parametrize("cgroup_text", ["0::/\n", OWN.text])
def test_initial_namespace_is_fine_whatever_the_cgroups(tmp_path, cgroup_text):
    procfs = Procfs(tmp_path)
    procfs.put(first_process(cgroup_text))
    procfs.set_self(cgroup_text)
    assert ProcfsSource(procfs.root).namespace_failure() is None


def test_b55_container_without_host_pid_is_blind(tmp_path):
    procfs = Procfs(tmp_path, blind=True)
    procfs.put(Process(12, 4100, "python3", ("python3",), "0::/\n"))  # exists by chance under a pid of the driver
    assert_blind(ProcfsSource(procfs.root))


@pytest.mark.parametrize(
    ("first", "own", "private"),
    [
        pytest.param(OWN.text_v1, OWN.text_v1, False, id="v1"),
        pytest.param(PAUSE.text_v1, OWN.text_v1, False, id="v1-shared-process-namespace"),
        pytest.param(PAUSE.text, OWN.text, False, id="v2-privileged-shared-process-namespace"),
        pytest.param(f"0::/../cri-containerd-{PAUSE.container_id}.scope\n", "0::/\n", True, id="v2-shared"),
        pytest.param("0::/init.scope\n", "0::/\n", True, id="init-in-a-child-cgroup-of-our-container"),
        pytest.param("", "0::/\n", True, id="empty-cgroup-of-the-first-process"),
        pytest.param("0::/../\n", "0::/\n", True, id="unknown-sibling"),
    ],
)
def test_first_process_in_our_own_pod_is_blind(tmp_path, first, own, private):
    assert_blind(view(tmp_path, first=first, own=own, private=private))


@pytest.mark.parametrize(
    ("first", "own", "private"),
    [
        pytest.param("0::/../../../../../init.scope\n", "0::/\n", True, id="kind-unprivileged"),
        pytest.param("0::/init.scope\n", f"0::/kubelet.slice{OWN.path}\n", False, id="kind-privileged"),
        pytest.param(OTHER.text, OWN.text, False, id="node-inside-another-pod"),
        pytest.param("0::/init.scope\n", "0::/system.slice/podgpu.service\n", False, id="service-of-a-nested-node"),
    ],
)
def test_host_pid_in_a_node_that_is_a_container_is_fine(tmp_path, first, own, private):
    assert view(tmp_path, first=first, own=own, private=private).namespace_failure() is None


def test_procfs_of_an_outer_namespace_is_blind(tmp_path):
    """The node's /proc mounted into a pod without hostPID: the driver answers in the pids of the pod."""
    assert_blind(view(tmp_path, first="0::/init.scope\n", own=OWN.text, pids=(4711, 1)))


@pytest.mark.parametrize("missing", ["1/cgroup", "self/cgroup", "self/status"])
def test_k42_what_cannot_be_shown_is_blind(tmp_path, missing):
    source = view(tmp_path, first="0::/init.scope\n", own=f"0::/kubelet.slice{OWN.path}\n")
    (tmp_path / "proc" / missing).unlink()
    assert_blind(source)


def test_blindness_is_noticed_and_forgotten_again(tmp_path):
    procfs = Procfs(tmp_path)
    source = ProcfsSource(procfs.root)
    assert source.read([1]).failure is None
    procfs.put(first_process("0::/\n"))
    procfs.set_self("0::/\n", pid_namespace=CONTAINER_PID_NAMESPACE, cgroup_namespace=CONTAINER_CGROUP_NAMESPACE)
    assert_blind(source)
    procfs.set_self("0::/\n")
    assert source.read([1]).failure is None


def test_folder_that_is_no_procfs(tmp_path):
    failure = ProcfsSource(tmp_path / "nothing").read([1]).failure
    assert failure is not None
    assert failure.reason is Reason.MISSING
    assert "--path.procfs" in failure.detail


@pytest.mark.parametrize(
    ("own", "initial", "private"),
    [
        ("0::/\n", False, True),
        ("9:pids:/\n0::/\n", False, True),
        ("0::/\n", True, False),
        (OWN.text, False, False),  # the namespace of a node that is a container, shared with it
        (f"3:rdma:/\n2:pids:{OWN.path}\n", False, False),
    ],
)
def test_private_cgroup_namespace(tmp_path, own, initial, private):
    procfs = Procfs(tmp_path)
    procfs.set_self(own, **({} if initial else {"cgroup_namespace": CONTAINER_CGROUP_NAMESPACE}))
    assert ProcfsSource(procfs.root).private_cgroup_namespace() is private


def test_kernel_without_cgroup_namespaces(tmp_path):
    procfs = Procfs(tmp_path)
    procfs.set_self("0::/\n")
    (tmp_path / "self" / "ns" / "cgroup").unlink()
    assert ProcfsSource(procfs.root).private_cgroup_namespace() is False


def test_c41_root_path_is_the_hosts_or_our_own(tmp_path):
    procfs = Procfs(tmp_path)
    procfs.put(Process(500, 1000, "x", ("x",), "0::/\n"))
    source = ProcfsSource(procfs.root)
    procfs.set_self("0::/\n")
    assert source.read([500]).value.places[500] == Place()
    procfs.set_self("0::/\n", cgroup_namespace=CONTAINER_CGROUP_NAMESPACE)
    assert source.read([500]).value.places[500] == Place(reason=Reason.CGROUP_RELATIVE)


# The same in real namespaces.

PROBE = """
from pathlib import Path
from exporter.sources.procfs import ProcfsSource
source = ProcfsSource(Path("/proc"))
failure = source.namespace_failure()
print(failure.reason if failure else None, source.private_cgroup_namespace())
"""
ROOT = Path(__file__).parents[2]


def probe(*options):
    command = ["unshare", *options, sys.executable, "-c", PROBE] if options else [sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare program")
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.split())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--pid", "--fork", "--mount-proc"), id="procfs-of-the-container"),
        pytest.param(("--pid", "--fork"), id="procfs-of-the-node"),
        pytest.param(("--pid", "--fork", "--mount-proc", "--cgroup"), id="private-cgroup-namespace"),
    ],
)
def test_real_pid_namespace_is_blind(options):
    assert probe(*options)[0] == "blind_pid_namespace"


def test_real_cgroup_namespace_is_private():
    outside = probe()
    assert probe("--cgroup") == (outside[0], "True")
