"""What users had no switch for elsewhere, wired as the exporter wires it."""

from exporter.clock import Clock
from exporter.errors import Reason
from exporter.model import ContainerRef, Place, PodNames
from exporter.service import sources
from exporter.settings import settings
from simulator.kubelet import serve, write_state
from tests.builders import GIB, gpu, lists, rows, snapshot_of


def test_k08_k12_a_kubelet_with_another_root_is_one_flag_away_and_its_absence_names_the_path(tmp_path):
    socket = tmp_path / "k0s" / "kubelet.sock"
    chosen = sources(settings([f"--kubelet.socket={socket}"], {}), Clock())
    failure = chosen.kubelet.read().failure
    assert failure.reason is Reason.SOCKET_MISSING
    assert str(socket) in failure.detail
    assert "root directory" in failure.detail
    socket.parent.mkdir()
    write_state(tmp_path / "state", {})
    with serve(socket, tmp_path / "state"):
        assert chosen.kubelet.read().failure is None


def test_b58_without_names_containers_go_by_what_the_kernel_calls_them():
    names = sources(settings(["--pods.source=none"], {}), Clock()).pods.read().value
    assert names == PodNames({}, {})
    place = Place(ContainerRef("4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef" * 4))
    snapshot = snapshot_of(gpu(lists(rows((11, GIB)))), places={11: place}, names=names)
    assert [tuple(state.name) for state in snapshot.containers] == [
        ("", "4a163a05-439d-484b-8e53-2968bc15824f", "0123456789ab")
    ]
