"""What gpu-fractioning keeps on disk, and what of it is not believed."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import FractionalContainer, FractioningReading, NamespaceLease
from exporter.sources.fractioning import LEASES, FractioningSource, parse_leases, parse_record

MIB = 1024**2
ID, OTHER_ID = "0123456789abcdef" * 4, "fedcba9876543210" * 4
RECORD = {
    "schemaVersion": 1,
    "pod": "train-0",
    "namespace": "ml",
    "podUID": "4a163a05-439d-484b-8e53-2968bc15824f",
    "gpuDevices": [{"index": 1, "minorNumber": 1, "uuid": "GPU-cb1213a3-d6a4-be7f"}],
    "requestedMemoryMiB": 40960,
}
CONTAINER = FractionalContainer(
    "ml",
    pod="train-0",
    pod_uid="4a163a05-439d-484b-8e53-2968bc15824f",
    requested=40960 * MIB,
    gpu_uuids=("GPU-cb1213a3-d6a4-be7f",),
)
LEASE = {
    "containerId": ID,
    "namespace": "kai_0123456789abcdef_0a0a",
    "server": "shared",
    "pipeDirectory": "/run/nvidia-mps/shared/kai_0123456789abcdef_0a0a",
    "activeThreadPercent": 25,
    "gpuUuids": ["GPU-cb1213a3-d6a4-be7f"],
    "createdAt": "2026-11-29T17:36:04Z",
}
PRESENT = NamespaceLease(
    "shared",
    namespace="kai_0123456789abcdef_0a0a",
    pipe_directory="/run/nvidia-mps/shared/kai_0123456789abcdef_0a0a",
    ratio=0.25,
    gpu_uuids=("GPU-cb1213a3-d6a4-be7f",),
    released=False,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "map").mkdir()
    return tmp_path / "map"


@pytest.fixture
def pipe(tmp_path):
    (tmp_path / "pipe").mkdir()
    return tmp_path / "pipe"


def write(path, content):
    new = path.parent / ".new"
    new.write_text(content if isinstance(content, str) else json.dumps(content))
    new.rename(path)


def read(source, *pipes):
    reading = source.read([str(pipe) for pipe in pipes])
    assert reading.source == "fractioning"
    assert isinstance(reading.outcome, FractioningReading)
    return reading.outcome


def source(folder):
    return FractioningSource(str(folder), clock=Clock())


def test_a_node_without_it(tmp_path, pipe):
    assert read(source(tmp_path / "nothing"), pipe, tmp_path / "gone") == FractioningReading({}, {})


def test_records(folder):
    write(folder / f"{ID}.json", RECORD)
    write(folder / ".gpu-fractioning-123.tmp", "half")
    write(folder / ".gpu-fractioning-123.json", "half")
    write(folder / "README", "x")
    asked = source(folder)
    assert read(asked) == FractioningReading({ID: CONTAINER}, {})
    (folder / f"{ID}.json").unlink()
    assert read(asked) == FractioningReading({}, {})


def test_an_old_record_is_of_unknown_amount_and_one_without_uuids_of_unknown_gpus(folder):
    old = {key: value for key, value in RECORD.items() if key != "requestedMemoryMiB"}
    write(folder / f"{ID}.json", {**old, "RequestedMemoryMB": 42949, "requestedMemoryMB": 42949})
    write(folder / f"{OTHER_ID}.json", {**RECORD, "gpuDevices": [{"index": 1, "minorNumber": 0}]})
    found = read(source(folder)).containers
    assert found[ID].requested is None
    assert found[OTHER_ID].gpu_uuids is None


def test_a_record_is_read_again_only_when_it_changed(folder):
    path = folder / f"{ID}.json"
    write(path, RECORD)
    asked = source(folder)
    first = read(asked).containers[ID]
    assert read(asked).containers[ID] is first
    write(path, {**RECORD, "requestedMemoryMiB": 20480})
    assert read(asked).containers[ID].requested == 20480 * MIB


BAD = [
    pytest.param({"schemaVersion": 2}, id="schema"),
    pytest.param({"schemaVersion": "1"}, id="schema-text"),
    pytest.param({"schemaVersion": True}, id="schema-bool"),
    pytest.param({"requestedMemoryMiB": -1}, id="below-zero"),
    pytest.param({"requestedMemoryMiB": 0}, id="zero"),
    pytest.param({"requestedMemoryMiB": 1.5}, id="fraction"),
    pytest.param({"requestedMemoryMiB": "40960"}, id="text"),
    pytest.param({"requestedMemoryMiB": True}, id="bool"),
    pytest.param({"requestedMemoryMiB": 42949672960}, id="bytes"),
    pytest.param({"gpuDevices": "GPU-1"}, id="devices"),
    pytest.param({"gpuDevices": ["GPU-1"]}, id="device"),
    pytest.param({"gpuDevices": [{"uuid": "0"}]}, id="uuid"),
    pytest.param({"pod": None}, id="pod"),
    pytest.param({"namespace": 5}, id="namespace"),
]


@pytest.mark.parametrize("change", BAD)
def test_a_record_of_another_form_is_an_error_and_costs_nothing_else(folder, change):
    write(folder / f"{ID}.json", {**RECORD, **change})
    write(folder / f"{OTHER_ID}.json", RECORD)
    found = read(source(folder))
    assert found.containers == {OTHER_ID: CONTAINER}
    (problem,) = found.errors
    assert problem.reason is Reason.MALFORMED
    assert ID in problem.detail


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "\0", "[" * 60000, '{"schemaVersion": NaN}'])
def test_what_is_no_record(folder, text):
    write(folder / f"{ID}.json", text)
    (problem,) = read(source(folder)).errors
    assert problem.reason is Reason.MALFORMED


@pytest.mark.parametrize("name", ["short.json", "..json", f"{ID.upper()}.json", f"{ID}x.json"])
def test_a_name_that_is_no_container(folder, name):
    write(folder / name, RECORD)
    found = read(source(folder))
    assert found.containers == {}
    assert [problem.reason for problem in found.errors] == [Reason.MALFORMED]


def test_what_is_not_a_small_file_of_ours_is_not_read(folder):
    (folder / f"{ID}.json").symlink_to(folder / "elsewhere")
    write(folder / "elsewhere", RECORD)
    os.mkfifo(folder / f"{OTHER_ID}.json")
    write(folder / f"{'a' * 64}.json", " " * (64 << 10) + json.dumps(RECORD))
    found = read(source(folder))
    assert found.containers == {}
    assert sorted(problem.reason for problem in found.errors) == [
        Reason.TOO_LARGE,
        Reason.UNREADABLE,
        Reason.UNREADABLE,
    ]


def test_thousands_of_files_are_not_all_read(folder):
    for number in range(4100):
        (folder / f"{number:064}.json").touch()
    found = read(source(folder))
    assert Reason.TOO_LARGE in {problem.reason for problem in found.errors}
    assert len(found.errors) == 4097


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_believed(folder, pipe):
    write(folder / f"{ID}.json", RECORD)
    write(pipe / LEASES, {"leases": [LEASE]})
    os.chown(folder / f"{ID}.json", 65534, 65534)
    os.chown(pipe / LEASES, 65534, 65534)
    found = read(source(folder), pipe)
    assert (found.containers, found.leases) == ({}, {})
    assert [problem.reason for problem in found.errors] == [Reason.NO_PERMISSION] * 2


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "map").touch()
    assert isinstance(source(tmp_path / "map").read([]).outcome, Failure)


# Leases.


def test_leases(folder, pipe, tmp_path):
    write(pipe / LEASES, {"leases": [LEASE, {**LEASE, "containerId": OTHER_ID, "releasedAt": "2026-11-29T18:00:00Z"}]})
    asked = source(folder)
    found = read(asked, pipe, tmp_path / "gone")
    assert found.leases[ID] == PRESENT
    assert found.leases[OTHER_ID].released
    assert found.errors == ()
    (pipe / LEASES).unlink()
    assert read(asked, pipe).leases == {}


@pytest.mark.parametrize("released", [None, "", "0001-01-01T00:00:00Z"])
def test_a_time_that_is_not_set_is_not_a_release(released):
    found = parse_leases(json.dumps({"leases": [{**LEASE, "releasedAt": released}]}).encode())
    assert found == {ID: PRESENT}


@pytest.mark.parametrize(("percent", "ratio"), [(100, 1.0), (1, 0.01), (0, None), (None, None)])
def test_shares(percent, ratio):
    found = parse_leases(json.dumps({"leases": [{**LEASE, "activeThreadPercent": percent}]}).encode())
    assert found[ID].ratio == ratio


def test_a_released_lease_does_not_hide_the_present_one():
    released = {**LEASE, "namespace": "kai_old", "releasedAt": "2026-11-29T18:00:00Z"}
    for leases in ([LEASE, released], [released, LEASE]):
        assert parse_leases(json.dumps({"leases": leases}).encode()) == {ID: PRESENT}


@pytest.mark.parametrize(
    "leases",
    [
        pytest.param([LEASE, {**LEASE, "namespace": "kai_other"}], id="two-present"),
        pytest.param([{**LEASE, "containerId": "x"}], id="container"),
        pytest.param([{**LEASE, "namespace": "../x"}], id="namespace"),
        pytest.param([{**LEASE, "server": ""}], id="server"),
        pytest.param([{**LEASE, "activeThreadPercent": 101}], id="percent"),
        pytest.param([{**LEASE, "activeThreadPercent": "25"}], id="percent-text"),
        pytest.param([{**LEASE, "activeThreadPercent": False}], id="percent-bool"),
        pytest.param([{**LEASE, "releasedAt": 5}], id="released"),
        pytest.param([{**LEASE, "gpuUuids": [5]}], id="uuid"),
        pytest.param([5], id="lease"),
        pytest.param({}, id="leases"),
    ],
)
def test_leases_of_another_form_are_an_error(folder, pipe, leases):
    write(pipe / LEASES, {"leases": leases})
    found = read(source(folder), pipe)
    assert found.leases == {}
    assert [problem.reason for problem in found.errors] == [Reason.MALFORMED]


def test_leases_of_another_schema_are_an_error():
    with pytest.raises(ValueError, match="schema"):
        parse_leases(json.dumps({"schemaVersion": 2, "leases": []}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(ID),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*RECORD, *LEASE, "leases"]), inner),
    max_leaves=12,
)


@given(content=JSON | st.fixed_dictionaries({"leases": st.lists(st.dictionaries(st.sampled_from(list(LEASE)), JSON))}))
def test_whatever_the_file_holds_is_values_or_one_kind_of_error(content):
    text = json.dumps(content).encode()
    for parse in (parse_record, parse_leases):
        try:
            parse(text)
        except ValueError:
            continue
