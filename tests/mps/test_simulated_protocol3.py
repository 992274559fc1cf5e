"""Protocol 3 of the simulated control daemon: what documentation and reports say of driver 615."""

import pytest

from simulator.mps import world
from tests.mps.conftest import Said

UUID = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
OTHER = "GPU-bbbbbbbb-1111-2222-3333-444444444444"
DRIVER = "615.71.09"


def around(*clients, servers=(4100, 4101)):
    gpus = (
        world.Gpu(0, UUID, "00000000:17:00.0", "NVIDIA RTX PRO 6000", 96 << 30, multiprocessors=188),
        world.Gpu(1, OTHER, "00000000:18:00.0", "NVIDIA RTX PRO 6000", 96 << 30, multiprocessors=188),
    )
    return world.World(DRIVER, gpus=gpus, clients=clients, server_pids=servers)


@pytest.fixture
def bare(simulated):
    """A daemon without servers."""
    control = simulated(around())
    assert control.call("-d", "-p", "3").code == 0
    return control


@pytest.fixture
def running(bare):
    """A daemon with one server on one GPU and a namespace."""
    for words in (f"server create shared --allowed-devices={UUID}", "namespace create j_a --server=shared"):
        assert bare.call(*words.split()) == Said(0)
    return bare


def do(control, words):
    said = control.call(*words.split())
    assert (said.code, said.error) == (0, ""), said
    return said.out


def refused(control, words):
    said = control.call(*words.split())
    assert said.code == 1
    assert said.out == ""
    assert said.error.count("\n") == 1
    return said.error


def connect(control, *clients, **more):
    """Let programs run: pid and the pipe directory below the daemon's."""
    world.write(
        control.root / "world.json",
        around(
            *(
                world.WouldBe(pid, 0, f"python3 job.py --name a,b {pid}", str(control.pipe / place), (0,), environ)
                for pid, place, environ in clients
            ),
            **more,
        ),
    )


def test_help_names_the_modules(bare):
    for words in ("-h", "-p 3 -h"):
        assert {"server", "namespace", "client"} <= set(do(bare, words).replace(",", " ").split())
    assert "namespace create <name> [--server=<value>]" in do(bare, "namespace help")
    assert "server get <name> <field>" in do(bare, "server get help")


def test_lists_of_servers(running):
    row = f"shared,0,4100,Ready,{running.pipe}/shared,{UUID},-\n"
    assert do(running, "server list --format=csv,noheader") == row
    assert do(running, "-p 3 server list --format=csv,noheader") == row
    assert do(running, "server list shared --format=csv").splitlines()[0].startswith("name,uid,pid,status")
    assert do(running, "server get shared pid") == "4100\n"
    assert do(running, "server get shared pipe_directory") == f"{running.pipe}/shared\n"
    assert (running.pipe / "shared" / "j_a" / "control").is_socket()
    assert (running.pipe / "shared" / "control").is_socket()


def test_a_new_namespace_has_no_limits_whatever_its_server_has(running):
    do(running, "server set shared --pinned-memory-limit=10G --active-thread-percentage=50")
    lines = do(running, "namespace list --server=shared").splitlines()
    assert lines[0] == "NAME             SERVER        SERVER STATUS  PINNED MEMORY LIMIT   ACTIVE THREAD PERCENTAGE"
    assert [line.split() for line in lines[1:]] == [
        ["default", "shared", "Ready", "10G", "50.00"],
        ["j_a", "shared", "Ready", "-", "-"],
    ]
    connect(running, (4000, "shared/j_a", {}), (4001, "shared", {}))
    do(running, "server list")
    found = world.held(running.root / "world.json", running.pid())
    assert (found[4000]["percentage"], found[4000]["limits"]) == (100.0, {"0": None})
    assert (found[4001]["percentage"], found[4001]["limits"]) == (50.0, {"0": 10 << 30})


@pytest.mark.parametrize(
    ("given", "shown"), [("20G", "20G"), ("4606M", "4606M"), ("1048576K", "1G"), ("1536K", "1536K")]
)
def test_limits_of_a_namespace(running, given, shown):
    do(running, f"namespace set j_a --server=shared --pinned-memory-limit={given}")
    assert do(running, "namespace get j_a shared pinned-memory-limit") == f"{shown}\n"


@pytest.mark.parametrize(
    "value",
    [
        *("--pinned-memory-limit=" + given for given in ("1.5G", "-1M", "1073741824", "2GB", "0M", "", "lots")),
        *("--active-thread-percentage=" + given for given in ("0", "101", "-5", "50%", "half", "")),
        *("--client-priority=2", "--no-such=1", ""),
    ],
)
def test_bad_values_change_nothing(running, value):
    do(running, "namespace set j_a --server=shared --pinned-memory-limit=2G --active-thread-percentage=30")
    refused(running, f"namespace set j_a --server=shared {value}")
    assert do(running, "namespace get j_a shared pinned-memory-limit") == "2G\n"
    assert do(running, "namespace get j_a shared active-thread-percentage") == "30.00\n"


def test_clients_by_pipe_directory(running):
    connect(
        running,
        (4000, "shared/j_a", {}),
        (4001, "shared/default", {}),
        (4002, "shared/nowhere", {}),
        (4003, "nowhere", {}),
        (1234567, "", {}),
    )
    rows = do(running, "client list --format=csv,noheader").splitlines()
    assert sorted(row.split(",", 4) for row in rows) == [
        ["1234567", "uid_0", "0", "default", "python3 job.py --name a,b 1234567"],
        ["4000", "shared", "0", "j_a", "python3 job.py --name a,b 4000"],
        ["4001", "shared", "0", "default", "python3 job.py --name a,b 4001"],
    ]
    assert do(running, "client get 4000 maws-ns") == "j_a\n"
    assert "123..." in do(running, "client list")


def test_a_percentage_is_not_set_while_a_client_is_there(running):
    connect(running, (4000, "shared/j_a", {}))
    do(running, "server list")
    refused(running, "namespace set j_a --server=shared --active-thread-percentage=40")
    do(running, "namespace set j_a --server=shared --pinned-memory-limit=1G")


def test_deleting_needs_force_while_a_client_is_there(running):
    connect(running, (4000, "shared/j_a", {}))
    do(running, "server list")
    refused(running, "namespace delete j_a --server=shared")
    refused(running, "server delete shared")
    do(running, "namespace delete j_a --server=shared --force")
    assert world.terminated(running.root / "world.json") == {4000}
    assert not (running.pipe / "shared" / "j_a").exists()
    do(running, "server delete shared")
    assert do(running, "server list --format=csv,noheader") == ""


def test_terminate(running):
    connect(running, (4000, "shared/j_a", {}))
    do(running, "server list")
    do(running, "client terminate 4000")
    assert do(running, "client list --format=csv,noheader") == ""
    assert world.terminated(running.root / "world.json") == {4000}
    refused(running, "client terminate 4000")


def test_an_entry_for_an_invisible_gpu_drops_every_limit(running):
    do(running, "namespace set j_a --server=shared --pinned-memory-limit=8G --active-thread-percentage=30")
    limit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    connect(
        running,
        (4000, "shared/j_a", {limit: "0=2G"}),
        (4001, "shared/j_a", {limit: "0=2G,1=4G"}),
        (4002, "shared/j_a", {limit: f"{UUID}=3G", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "20"}),
    )
    do(running, "server list")
    found = world.held(running.root / "world.json", running.pid())
    assert {pid: value["limits"]["0"] for pid, value in found.items()} == {4000: 2 << 30, 4001: None, 4002: 3 << 30}
    assert [found[pid]["percentage"] for pid in (4001, 4002)] == [30.0, 20.0]


def test_a_server_for_an_absent_gpu_is_created_and_disappears(running):
    do(running, "server create bad --allowed-devices=GPU-cccccccc-1111-2222-3333-444444444444")
    running.eventually(lambda: "bad" not in do(running, "server list --format=csv,noheader"))
    assert "no CUDA-capable device is detected" in (running.log / "bad" / "server.log").read_text()


@pytest.mark.parametrize(
    "words",
    [
        *("server create", "server create Shared", "server create shared", "server create a-b", "server delete nope"),
        *("server get shared nope", "server list nope", "server list --format=json", "server frob", "client get 1 pid"),
        *("namespace create j_a --server=shared", "namespace create j_b", "namespace create j_b --server=nope"),
        *("namespace set nope --server=shared --client-priority=1", "namespace delete default --server=shared"),
        *("namespace get j_a shared nope", "namespace get j_a", "get_server_list", "frob nicate"),
    ],
)
def test_what_is_refused(running, words):
    refused(running, words)


def test_devices(running):
    do(running, f"server create both --allowed-devices={OTHER},{UUID}")
    rows = do(running, "device list --server=both --format=csv,noheader").splitlines()
    assert [row.split(",")[:4] for row in rows] == [
        ["0", "both", "00000000:18:00.0", OTHER],
        ["1", "both", "00000000:17:00.0", UUID],
    ]


def test_features(running):
    assert "memacct" in do(running, "feature describe")
    do(running, "feature disable context-share")
    assert "disabled" in do(running, "feature describe context-share")
    do(running, "memacct set audit_log=true")
    assert do(running, "memacct describe") == "audit_log = true\n"


def test_quit_on_standard_input_or_by_flag(running):
    assert running.call(text="quit\n") == Said(0)
    running.eventually(lambda: not running.running())
    assert not (running.pipe / "shared").exists()
    assert running.call("-d", environ={"CUDA_MPS_PROTOCOL_VERSION": "3"}).code == 0
    assert do(running, "server list --format=csv,noheader") == ""
    assert running.call("-q") == Said(0)
    running.eventually(lambda: not running.running())


def test_the_environment_beats_the_protocol_flag(simulated):
    control = simulated(around())
    assert control.call("-d", "-p", "3", environ={"CUDA_MPS_PROTOCOL_VERSION": "2"}) == Said(0)
    assert control.say("get_default_active_thread_percentage") == "100.0\n"


def test_a_call_of_protocol_3_follows_a_daemon_of_protocol_2(simulated):
    control = simulated(around())
    control.start()
    for words in ("server list", "-p 3 server list"):
        said = control.call(*words.split())
        assert said.code == 0
        assert said.out.startswith("Unknown command")


def test_a_file_configures_the_daemon(simulated):
    control = simulated(around())
    path = control.root / "mps.toml"
    path.write_text(
        f"""schema_version = "1.0"
        [servers.shared]
        allowed_devices = "{UUID}"
        pinned_memory_limit = "256M"
        active_thread_percentage = "1"
        [servers.shared.namespaces.j_a]
        pinned_memory_limit = "4G"
        [features.memacct]
        enabled = true
        audit_log = true
        """
    )
    assert control.call("-d", "-p", "3", "-m", "-a", str(path)).code == 0
    rows = do(control, "namespace list --format=csv,noheader").splitlines()
    assert [row.split(",")[3:5] for row in rows] == [["256M", "1.00"], ["4G", "-"]]
    assert do(control, "memacct describe") == "audit_log = true\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('schema_version = "1.0"\n[servers.a]\nlimit = "1G"', "unknown key limit in servers.a"),
        ('schema_version = "2.0"', "schema_version should be 1.0"),
        ("= 1", "mps.toml"),
        ('schema_version = "1.0"\n[servers.a]\npinned_memory_limit = "1.5G"', 'Invalid value "1.5G"'),
    ],
)
def test_a_bad_file_keeps_the_daemon_from_starting(simulated, text, says):
    control = simulated(around())
    path = control.root / "mps.toml"
    path.write_text(text)
    said = control.call("-d", "-p", "3", "-a", str(path))
    assert said.code == 1
    assert says in said.error
    assert not control.running()
