"""What the texts of daemons mean, and that nothing else means anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Failure, Reason
from exporter.model import PinnedLimit, ServerStatus
from exporter.sources import mps_text

MIB, GIB = 1024**2, 1024**3

# Every form that a daemon can be fed, with what drivers 535 and 550 then show, and what podgpu makes of that.
SHOWN = [
    pytest.param("512M", PinnedLimit(512 * MIB, below=513 * MIB), id="512MB"),
    pytest.param("10G", PinnedLimit(10 * GIB, below=11 * GIB), id="10g"),
    pytest.param("1G", PinnedLimit(GIB, below=2 * GIB), id="1024K"),
    pytest.param("1M", PinnedLimit(MIB, below=2 * MIB), id="1.5G"),
    pytest.param("", None, id="0M-or-0G-or-0=2G-or-a-uuid"),
    pytest.param("4G", PinnedLimit(4 * GIB, below=5 * GIB), id="4606M"),
    pytest.param("1023M", PinnedLimit(1023 * MIB, below=1024 * MIB), id="1023M"),
]


@pytest.mark.parametrize(("text", "limit"), SHOWN)
def test_limits_of_protocol_2(text, limit):
    assert mps_text.pinned(f"{text}\n") == mps_text.pinned(text) == limit


@pytest.mark.parametrize("text", ["1048576G", "17179869183G", "16385G"])
def test_an_amount_that_limits_nothing_is_no_limit_and_not_none_either(text):
    limit = mps_text.pinned(text)
    assert isinstance(limit, Failure)
    assert limit.reason is Reason.MALFORMED
    assert "limits nothing" in limit.detail


@pytest.mark.parametrize(
    "text", ["0M", "0G", "4", "4GB", "1.5G", "-1M", "4 G", "4G\n5G", "G", "4g", "²G", "9" * 40 + "G"]
)
def test_a_limit_of_another_form_is_unknown(text):
    limit = mps_text.pinned(text)
    assert isinstance(limit, Failure)
    assert limit.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("20G", PinnedLimit(20 * GIB, below=21 * GIB)),
        ("512M", PinnedLimit(512 * MIB, below=513 * MIB)),
        ("1024K", PinnedLimit(MIB, below=2 * MIB)),
        ("4606M", PinnedLimit(4606 * MIB, below=4607 * MIB)),
        ("-", None),
    ],
)
def test_limits_of_protocol_3(text, limit):
    assert mps_text.pinned(text) == limit


@given(mebibytes=st.integers(min_value=1, max_value=16 * 1024 * 1024))
def test_what_was_set_lies_within_what_is_shown(mebibytes):
    shown = f"{mebibytes}M" if mebibytes < 1024 else f"{mebibytes // 1024}G"
    limit = mps_text.pinned(shown)
    assert limit.shown <= mebibytes * MIB < limit.below


@pytest.mark.parametrize(
    ("text", "ratio"), [("100.0\n", 1.0), ("33.3", 0.333), ("30.00", 0.3), ("12.6", 0.126), ("7", 0.07)]
)
def test_shares(text, ratio):
    assert mps_text.ratio(text) == ratio


@pytest.mark.parametrize("text", ["", "-", "0", "0.0", "100.1", "400", "nan", "1e1", "33,3", "100.0\n100.0", "-5", "٣"])
def test_a_share_of_another_form_is_unknown(text):
    assert mps_text.ratio(text).reason is Reason.MALFORMED


def test_pids():
    assert mps_text.pids("") == ()
    assert mps_text.pids("48201\n48311\n") == (48201, 48311)
    assert mps_text.pids("7\n7\n") == (7,)
    for text in ("PID\n7", "0", "-1", "7.0", "316...", "1" * 11):
        assert mps_text.pids(text).reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("INITIALIZING\n", ServerStatus.INITIALIZING),
        ("ACTIVE", ServerStatus.ACTIVE),
        ("FAULT", ServerStatus.FAULT),
        ("Ready", ServerStatus.ACTIVE),
        ("RECOVERING", ServerStatus.UNKNOWN),
        ("", ServerStatus.UNKNOWN),
    ],
)
def test_states(text, status):
    assert mps_text.status(text) is status


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Cannot find MPS control daemon process", Reason.DAEMON_NOT_RUNNING),
        ("Cannot send command to MPS control daemon process", Reason.COMMAND_LOST),
        (
            "Insufficient privileges for UID 65534. Control deamon settings can only be modified by the user",
            Reason.NO_PERMISSION,
        ),
        ("Not enough privilege to execute quit command", Reason.NO_PERMISSION),
        ('Unknown command "get_server_status"', Reason.UNKNOWN_COMMAND),
        ("Server 1234 not found", Reason.NOT_FOUND),
        ("Server 1 not found\nServer 1 not found!\n1", Reason.NOT_FOUND),
        ("Server not found", Reason.NOT_FOUND),
        ("\n Server not found", Reason.NOT_FOUND),
        ("Server 1234 is <busy>", Reason.BUSY),
    ],
)
def test_refusals(text, reason):
    found = mps_text.refusal(f"{text}\n")
    assert found.reason is reason
    assert "\n" not in found.detail


@pytest.mark.parametrize("text", ["", "100.0", "4G", "pid,server\n7,Server 1 not found", "x\nServer 1 not found"])
def test_what_is_no_refusal(text):
    assert mps_text.refusal(text) is None


# Protocol 3.

SERVERS = """name,uid,pid,status,pipe-directory,allowed-devices,context-ids
training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-
both,0,48202,Initializing,/run/nvidia-mps/both,GPU-abcd-1234,GPU-efgh-5678,-
idle,0,-,Fault,/run/nvidia-mps/idle,-,-
"""


def test_server_rows_with_commas_in_the_middle():
    rows = mps_text.servers(SERVERS)
    assert [(row.name, row.uid, row.pid, row.status, row.devices) for row in rows] == [
        ("training", 1000, 48201, ServerStatus.ACTIVE, "GPU-abcd-1234"),
        ("both", 0, 48202, ServerStatus.INITIALIZING, "GPU-abcd-1234,GPU-efgh-5678"),
        ("idle", 0, None, ServerStatus.FAULT, "-"),
    ]
    assert mps_text.is_server_list(SERVERS)


def test_columns_are_found_by_name_below_a_notice():
    text = "Some notice.\nSTATUS,NAME,PID\nReady,a,7\n"
    rows = mps_text.servers(text)
    assert [(row.name, row.pid, row.status, row.uid, row.devices) for row in rows] == [
        ("a", 7, ServerStatus.ACTIVE, None, "")
    ]


def test_a_list_without_rows_is_empty():
    assert mps_text.servers(SERVERS.partition("\n")[0]) == ()
    assert mps_text.clients("pid,server,device,namespace,cmd\n") == ()
    assert mps_text.namespaces("name,server,pinned-memory-limit\n") == ()


def test_namespace_rows():
    text = """NAME,SERVER,SERVER STATUS,PINNED MEMORY LIMIT,ACTIVE THREAD PERCENTAGE,CLIENT PRIORITY,PIPE DIRECTORY
small,shared,Ready,20G,30.00,0,/run/nvidia-mps/shared/small
default,shared,Ready,-,,0,-
wrong,shared,Ready,1048576G,0,0,/run/x
"""
    small, default, wrong = mps_text.namespaces(text)
    assert (small.name, small.server, small.ratio, small.pinned.shown) == ("small", "shared", 0.3, 20 * GIB)
    assert small.pipe_directory == "/run/nvidia-mps/shared/small"
    assert (default.ratio, default.pinned, default.pipe_directory) == (None, None, "")
    assert wrong.pinned.reason is wrong.ratio.reason is Reason.MALFORMED


def test_a_missing_column_is_not_an_unset_value():
    (row,) = mps_text.namespaces("name,server\na,b\n")
    assert row.pinned.reason is row.ratio.reason is Reason.MALFORMED


def test_client_rows_with_commas_in_the_command():
    text = """pid,server,device,namespace,cmd
51023,training,0,default,python train.py --gpus=0,1
51024,training,GPU-abcd-1234,high,nbody
51024,training,1,high,nbody
51025,training,-,high,
"""
    rows = mps_text.clients(text)
    assert [(row.pid, row.server, row.device, row.namespace) for row in rows] == [
        (51023, "training", "0", "default"),
        (51024, "training", "GPU-abcd-1234", "high"),
        (51024, "training", "1", "high"),
        (51025, "training", "", "high"),
    ]


def test_a_command_line_that_claims_a_neighbours_namespace_makes_the_list_worthless():
    text = "pid,server,device,namespace,cmd\n7,a,0,small,python -c 'x\n8,a,0,small,'\n8,a,0,default,nbody\n"
    assert mps_text.clients(text).reason is Reason.MALFORMED


@pytest.mark.parametrize("read", [mps_text.servers, mps_text.namespaces, mps_text.clients])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "100.0",
        "no,such,header\n1,2,3",
        "name,name,pid,status,server,namespace\na,a,1,Ready,b,c",
        "a\nb\nname,pid,status,server,namespace\n",
    ],
)
def test_lists_of_another_form_are_unknown(read, text):
    assert read(text).reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (mps_text.servers, "name,pid,status\nUpper,7,Ready"),
        (mps_text.servers, "name,pid,status\na,x,Ready"),
        (mps_text.servers, "name,pid,status\na,7"),
        (mps_text.namespaces, "name,server\na b,c"),
        (mps_text.clients, "pid,server,namespace,cmd\n0,a,b,c"),
        (mps_text.clients, "pid,server,namespace,cmd\n316...,a,b,c"),
    ],
)
def test_one_bad_row_makes_a_list_unknown(read, text):
    assert read(text).reason is Reason.MALFORMED


@given(text=st.text() | st.text("name,pidstu\n79.GM-<>") | st.just(SERVERS))
def test_no_text_breaks_a_reader(text):
    for read in (
        mps_text.pids,
        mps_text.status,
        mps_text.ratio,
        mps_text.pinned,
        mps_text.is_server_list,
        mps_text.servers,
        mps_text.namespaces,
        mps_text.clients,
        mps_text.refusal,
    ):
        outcome = read(text)
        if isinstance(outcome, Failure):
            assert "\n" not in outcome.detail
            assert outcome.detail.isprintable()
