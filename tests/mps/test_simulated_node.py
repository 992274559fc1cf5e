"""MPS control daemons in a whole simulated node: they start configured, see its programs, and end with it."""

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from simulator.mps import world
from simulator.mps_daemons import Daemons
from simulator.node import Node
from simulator.paths import Paths
from simulator.processes import exporter_flags
from simulator.scenario import ScenarioError
from simulator.scenario_file import load


@contextmanager
def node_of(name):
    scenario = load(name)
    with TemporaryDirectory(prefix="n-", dir="/tmp") as folder:
        paths = Paths(Path(folder))
        daemons = Daemons(paths, scenario)
        daemons.start()
        try:
            node = Node(paths, scenario)
            node.advance(0)
            yield node, daemons, scenario.mps[0] if scenario.mps else None
        finally:
            daemons.end()


def pids_of(node, command):
    """The pids of the programs that a pod runs, told apart by how their command begins."""
    begins = command.replace(" ", "\0").encode()
    return {
        int(path.parent.name)
        for path in node.paths.procfs.glob("[0-9]*/cmdline")
        if path.read_bytes().startswith(begins)
    }


def test_protocol_2():
    with node_of("mps-v2") as (node, daemons, daemon):
        server = daemons.call(daemon, line="get_server_list").strip()
        clients = {int(pid) for pid in daemons.call(daemon, line=f"get_client_list {server}").split()}
        assert clients == pids_of(node, "vllm serve") | pids_of(node, "python3 train.py")
        assert len(pids_of(node, "python3 train.py --rank")) == 2
        assert daemons.call(daemon, line=f"get_active_thread_percentage {server}") == "25.0\n"
        assert daemons.call(daemon, line=f"get_device_pinned_mem_limit {server} 1") == "20G\n"
        held = world.held(node.paths.mps_world, 1_000_000 + daemons.pid(daemon))
        (modest,) = pids_of(node, "python3 train.py") - pids_of(node, "python3 train.py --rank")
        assert (held[modest]["percentage"], held[modest]["limits"]) == (10.0, {"0": 8 << 30})


def test_protocol_3():
    with node_of("mps-v3") as (node, daemons, daemon):
        rows = daemons.call(daemon, "client", "list", "--format=csv,noheader").splitlines()
        found = {int(row.split(",")[0]): row.split(",")[3] for row in rows}
        (well,), (astray,), (blind,) = (pids_of(node, name) for name in ("vllm serve well", "python3", "torchrun"))
        uids = {pod.name: pod.uid.replace("-", "_") for pod in node.scenario.pods}
        assert found == {
            well: f"j_{uids['well']}",
            astray: "default",
            blind: f"j_{uids['blind']}",
        }  # and the lost one nowhere
        held = world.held(node.paths.mps_world, 1_000_000 + daemons.pid(daemon))
        assert held[well]["limits"] == {"0": 20 << 30}
        assert held[blind]["limits"] == {"0": None}


def test_a_terminated_client_ends_with_the_next_change():
    with node_of("mps-v3") as (node, daemons, daemon):
        (well,) = pids_of(node, "vllm serve well")
        assert (node.paths.procfs / str(well)).exists()
        daemons.call(daemon, "client", "terminate", str(well))
        node.advance(1)
        assert not (node.paths.procfs / str(well)).exists()
        assert str(well) not in node.paths.driver_state.read_text().split()


def test_a_daemon_that_ended_can_be_started_again():
    with node_of("mps-v2") as (_, daemons, daemon):
        first = daemons.pid(daemon)
        daemons.call(daemon, line="quit -t 0")
        daemons.start_one(daemon)
        assert daemons.pid(daemon) not in (0, first)
        assert daemons.call(daemon, line="get_default_active_thread_percentage") == "25.0\n"


def test_a_fault_of_the_node():
    with node_of("mps-v2") as (node, daemons, daemon):
        server = daemons.call(daemon, line="get_server_list").strip()
        node.mps_fault(world.Fault(server_state="FAULT"))
        assert daemons.call(daemon, line=f"get_server_status {server}") == "FAULT\n"
        node.mps_fault()
        assert daemons.call(daemon, line=f"get_server_status {server}") == "ACTIVE\n"


def test_a_daemon_that_does_not_answer_ends_with_the_node(monkeypatch):
    monkeypatch.setattr("simulator.mps_daemons._CALL", 0.5)
    with node_of("mps-v2") as (node, daemons, daemon):
        node.mps_fault(world.Fault(hang=True))
    assert daemons.pid(daemon) == 0


def test_programs_have_their_environment():
    with node_of("mps-v3") as (node, _, _daemon):
        (blind,) = pids_of(node, "torchrun")
        words = (node.paths.procfs / str(blind) / "environ").read_text().split("\0")
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=16384M,1=16384M" in words


def test_only_a_node_with_daemons_has_flags_for_them():
    with node_of("mps-v2") as (node, _, _daemon):
        flags = exporter_flags(node.paths, address=":0")
        assert f"--mps.pipe-directory={node.paths.run}/nvidia/mps/nvidia.com/gpu/pipe" in flags
    with node_of("mps") as (node, _, _daemon):
        assert not [flag for flag in exporter_flags(node.paths, address=":0") if flag.startswith("--mps.")]
        assert not node.paths.mps_world.exists()


@pytest.mark.parametrize(
    ("mps", "says"),
    [
        ("{protocol: 2}", "pipe is missing"),
        ("{pipe: a, protocol: 4}", "protocol is 2 or 3"),
        ("{pipe: a, servers: [{name: s}]}", "only protocol 3 has named servers"),
        ("{pipe: a, protocol: 3, percentage: 20}", "in each namespace"),
        ("{pipe: a, devices: [1]}", "a GPU that is not there"),
        ("{pipe: a, percentage: half}", "percentage is a percentage"),
        ("{pipe: a, limits: [1GiB]}", "limits should be a mapping"),
        ("{pipe: a, limits: {0: 1G}}", "limits is an amount"),
        ("{pipe: a, pipes: b}", "pipes"),
    ],
)
def test_a_mistake_in_a_scenario(tmp_path, mps, says):
    path = tmp_path / "mine.yaml"
    path.write_text(f"description: x\ngpus: [{{}}]\nmps: [{mps}]")
    with pytest.raises(ScenarioError, match=says):
        load(str(path))
