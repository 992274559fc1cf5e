"""Paths that made other programs lose a pod, read as the product reads them: from a procfs, many processes at once."""

import logging

import pytest

from exporter.model import ContainerRef, Place, ProcessReading
from exporter.sources.procfs import ProcfsSource
from simulator.procfs import Process, Procfs
from tests.identity.test_cgroup_text import BY_NUMBER, ID, OTHER_ID, UID, container

UNDER_SYSTEMD_V1 = (
    "5:memory:/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod481c0ae9_7d40_46dd_b6ca_ba27cb64f87e.slice/cri-containerd-{ID}.scope\n"
)
# Several reports meet the same path; the numbers of paths are those of the table in test_cgroup_text.
REPORTS = [
    pytest.param(*BY_NUMBER["C19"], id="K23"),
    pytest.param(UNDER_SYSTEMD_V1, container("481c0ae9-7d40-46dd-b6ca-ba27cb64f87e", ID), id="K26"),
    pytest.param(*BY_NUMBER["C62"], id="K27"),
    pytest.param(*BY_NUMBER["C02"], id="K28"),
    pytest.param(*BY_NUMBER["C24"], id="K29"),
    pytest.param(*BY_NUMBER["C16"], id="K30"),
    pytest.param(*BY_NUMBER["C09"], id="K32"),
    pytest.param(*BY_NUMBER["C60"], id="K33 in a pod"),
    pytest.param(*BY_NUMBER["C64"], id="K33 ECS"),
    pytest.param(*BY_NUMBER["C21"], id="K36"),
    pytest.param(*BY_NUMBER["C18"], id="K39"),
    pytest.param(*BY_NUMBER["C12"], id="K47"),
    pytest.param(*BY_NUMBER["C50"], id="K49"),
    pytest.param(*BY_NUMBER["C55"], id="K50 below the pod"),
    pytest.param(*BY_NUMBER["C56"], id="K50 beside the container"),
]


@pytest.fixture
def procfs(tmp_path):
    return Procfs(tmp_path)


def places(procfs, *pids):
    outcome = ProcfsSource(procfs.root).read(pids).outcome
    assert isinstance(outcome, ProcessReading)
    return outcome.places


@pytest.mark.parametrize(("text", "place"), REPORTS)
def test_a_reported_path_has_its_place_and_nobody_complains(procfs, caplog, text, place):
    caplog.set_level(logging.DEBUG)
    pids = range(500, 520)
    for pid in pids:
        procfs.put(Process(pid, pid, "python3", ("python3",), text))
    assert places(procfs, *pids) == dict.fromkeys(pids, place)
    assert caplog.records == []


def test_k40_k48_mountinfo_is_not_evidence(procfs):
    """The workload shapes its own mounts, and on some nodes they name the pause container."""
    procfs.put(Process(500, 1000, "python3", ("python3",), f"0::/kubepods/pod{UID}/{ID}\n"))
    (procfs.root / "500" / "mountinfo").write_text(
        f"1 0 8:1 /var/lib/kubelet/pods/{UID}/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"
        f"2 0 8:1 /var/lib/docker/containers/{OTHER_ID}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"
    )
    assert places(procfs, 500)[500] == Place(container=ContainerRef(UID, container_id=ID))
