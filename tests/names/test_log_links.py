"""Names of pods and containers from the kubelet's log links, and what is not a name."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.clock import Clock
from exporter.errors import Reason
from exporter.model import ContainerName, PodNames
from exporter.sources import cgroups
from exporter.sources.pods import LogLinkNames
from simulator.cgroupfs import ContainerCgroup
from simulator.podlogs import PodLogs

UID = "4a163a05-439d-484b-8e53-2968bc15824f"
OTHER_UID = "eab5a334-93fe-48a8-b139-9e8079c1f163"
STATIC_UID = "b53dfa9e2dc9b890f7fadb2770857b03"
ID = "0123456789abcdef" * 4
OTHER_ID = "fedcba9876543210" * 4
NAME = ContainerName("ml", pod="train-0", container="main")


def names(source):
    outcome = source.read().outcome
    assert isinstance(outcome, PodNames)
    return outcome


@pytest.fixture
def logs(tmp_path):
    return PodLogs(tmp_path / "log")


@pytest.fixture
def source(logs):
    return LogLinkNames(logs.root)


def link(logs, stem, target):
    """A link as nobody but a person with root would make it."""
    path = logs.root / "containers" / f"{stem}.log"
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


def start(logs, *, uid=UID, container_id=ID, name=NAME, restart=0):
    return logs.put(
        name.namespace, pod=name.pod, uid=uid, container=name.container, container_id=container_id, restart=restart
    )


def test_reading_says_its_source_and_its_time(logs):
    instants = iter([10.0, 10.5])
    reading = LogLinkNames(logs.root, clock=Clock(monotonic=lambda: next(instants))).read()
    assert (reading.source, reading.seconds) == ("pods", 0.5)


def test_node_without_containers_has_no_names(source):
    assert names(source) == PodNames(pods={}, containers={})


def test_link_names_pod_and_container(logs, source):
    start(logs)
    start(logs, container_id=OTHER_ID, name=ContainerName("ml", pod="train-0", container="side-car"))
    assert names(source) == PodNames(
        pods={UID: ("ml", "train-0")},
        containers={ID: NAME, OTHER_ID: ContainerName("ml", pod="train-0", container="side-car")},
    )


def test_names_are_found_by_what_the_kernel_says(logs, source):
    start(logs)
    ref = cgroups.parse(ContainerCgroup(UID, ID).text).container
    found = names(source)
    assert (found.pods[ref.pod_uid], found.containers[ref.container_id]) == (("ml", "train-0"), NAME)


def test_k43_static_pod_is_named_by_the_uid_of_its_cgroup(logs, source):
    start(logs, uid=STATIC_UID)
    ref = cgroups.parse(ContainerCgroup(STATIC_UID, ID).text).container
    assert names(source).pods[ref.pod_uid] == ("ml", "train-0")


def test_k33_container_id_that_is_a_uuid(logs, source):
    start(logs, container_id="15aa6e53-b09a-40c7-8558-c6c31e36c88a")
    assert names(source).containers == {"15aa6e53-b09a-40c7-8558-c6c31e36c88a": NAME}


def test_restarted_container_has_two_ids(logs, source):
    start(logs)
    start(logs, container_id=OTHER_ID, restart=1)
    assert names(source).containers == {ID: NAME, OTHER_ID: NAME}


def test_names_go_when_their_links_go(logs, source):
    start(logs)
    start(logs, container_id=OTHER_ID, restart=1)
    names(source)
    logs.remove(ID)
    assert names(source).containers == {OTHER_ID: NAME}
    logs.remove_pod("ml", pod="train-0", uid=UID)
    assert names(source) == PodNames(pods={}, containers={})


def test_pod_that_was_made_again_under_its_name(logs, source):
    start(logs)
    names(source)
    logs.remove_pod("ml", pod="train-0", uid=UID)
    start(logs, uid=OTHER_UID, container_id=OTHER_ID)
    assert names(source) == PodNames(pods={OTHER_UID: ("ml", "train-0")}, containers={OTHER_ID: NAME})


def test_log_behind_a_link_need_not_exist(logs, source):
    start(logs).readlink().unlink()
    assert names(source).containers == {ID: NAME}


def test_known_link_is_not_read_again(logs, source):
    path = start(logs)
    names(source)
    path.unlink()
    path.touch()  # no link any more, and so not readable as one
    assert names(source).containers == {ID: NAME}
    path.unlink()
    assert names(source).containers == {}
    path.touch()
    assert names(source).containers == {}


# The kubelet cuts the name of a link at 255 bytes, the container id first.


@pytest.mark.parametrize(
    ("pod", "namespace", "container"),
    [
        ("p" * 200, "ml", "main"),  # cut in the id
        ("p" * 200, "ml", "c" * 50),  # cut in the container's name
        ("p" * 200, "ml", "c" * 47),  # cut exactly between the two
        ("p" * 154, "n" * 63, "main"),  # the longest pair that still has a folder of logs
        ("p.q-" * 48 + "r", "ml", "c" * 63),
    ],
)
def test_cut_link_names_its_pod_only(logs, source, pod, namespace, container):
    path = start(logs, name=ContainerName(namespace, pod=pod, container=container))
    assert len(path.name) == 255
    assert names(source) == PodNames(pods={UID: (namespace, pod)}, containers={})


def test_longest_name_that_is_not_cut(logs, source):
    name = ContainerName("ml", pod="p" * (255 - len("_ml_main-.log") - 64), container="main")
    assert len(start(logs, name=name).name) == 255
    assert names(source).containers == {ID: name}


def test_cut_link_of_a_pod_that_was_made_again(logs, source):
    name = ContainerName("ml", pod="p" * 200, container="c" * 60)
    start(logs, name=name)
    assert set(names(source).pods) == {UID}
    start(logs, uid=OTHER_UID, container_id=OTHER_ID, name=name)  # the same link, by its cut name
    assert set(names(source).pods) == {OTHER_UID}


# What is not the kubelet's.

STEM = f"train-0_ml_main-{ID}"
TARGET = f"/var/log/pods/ml_train-0_{UID}/main/0.log"


@pytest.mark.parametrize(
    ("stem", "target"),
    [
        pytest.param(STEM, f"/var/log/pods/ml_other-0_{UID}/main/0.log", id="another-pod"),
        pytest.param(STEM, f"/var/log/pods/prod_train-0_{UID}/main/0.log", id="another-namespace"),
        pytest.param(STEM, f"/var/log/pods/ml_train-0_{UID}/side/0.log", id="another-container"),
        pytest.param(STEM, f"/var/lib/docker/containers/{ID}/{ID}-json.log", id="dockers-own-log"),
        pytest.param(STEM, f"/var/log/pods/ml_train-0_{UID}/main/current", id="not-numbered"),
        pytest.param(STEM, f"/var/log/pods/ml_train-0_{UID}/main/0.log/", id="slash-behind"),
        pytest.param(STEM, f"/var/log/pods/ml_train-0_{UID}/../main/0.log", id="dots"),
        pytest.param(STEM, "/var/log/pods/ml_train-0_me/main/0.log", id="no-uid"),
        pytest.param(STEM, f"/var/log/pods/ml_train-0_extra_{UID}/main/0.log", id="underscore"),
        pytest.param(STEM, "/etc/passwd", id="foreign"),
        pytest.param(STEM, ".", id="folder"),
        pytest.param(STEM, f"{STEM}.log", id="itself"),
        pytest.param(f"train-0_ml_main-{ID[:-1]}", TARGET, id="short-id"),
        pytest.param(f"train-0_ml_main-{ID}0", TARGET, id="long-id"),
        pytest.param(f"train-0_ml_main-{ID[:-1]}g", TARGET, id="id-not-hex"),
        pytest.param(f"train-0_ml_main-x-{ID}", TARGET, id="container-longer-than-its-target"),
        pytest.param("train-0_ml_main-", TARGET, id="no-id"),
        pytest.param("train-0_ml_main", TARGET, id="no-dash"),
        pytest.param("train-0", TARGET, id="pod-only"),
        pytest.param("x" * 251, TARGET, id="as-long-as-a-cut-one"),
        pytest.param(f'train-0"_ml_main-{ID}', f'/var/log/pods/ml_train-0"_{UID}/main/0.log', id="quote"),
        pytest.param(f"train\n_ml_main-{ID}", f"/var/log/pods/ml_train\n_{UID}/main/0.log", id="line-end"),
        pytest.param(f"Train_ml_main-{ID}", f"/var/log/pods/ml_Train_{UID}/main/0.log", id="upper-case"),
    ],
)
def test_link_that_is_not_the_kubelets_names_nothing(logs, source, stem, target):
    start(logs, uid=OTHER_UID, container_id=OTHER_ID)
    link(logs, stem, target)
    for _ in range(2):
        assert names(source) == PodNames(pods={OTHER_UID: ("ml", "train-0")}, containers={OTHER_ID: NAME})


def test_other_things_in_the_folder_are_passed_over(logs, source):
    folder = logs.root / "containers"
    start(logs)
    (folder / f"train-1_ml_main-{OTHER_ID}.log").touch()
    (folder / f"train-2_ml_main-{OTHER_ID}.log").mkdir()
    os.symlink(TARGET, os.fsencode(folder) + b"/\xff\xfe.log")
    os.symlink(b"/var/log/pods/\xff/main/0.log", os.fsencode(folder) + b"/x.log")
    (folder / f"{STEM}.tmp").symlink_to(TARGET)
    (folder / STEM).symlink_to(TARGET)
    assert names(source).containers == {ID: NAME}


def test_two_links_that_contradict_each_other_name_nothing(logs, source):
    start(logs)
    link(logs, f"evil_ml_main-{ID}", f"/var/log/pods/ml_evil_{OTHER_UID}/main/0.log")
    link(logs, f"evil_ml_side-{OTHER_ID}", f"/var/log/pods/ml_evil_{UID}/side/0.log")
    found = names(source)
    assert ID not in found.containers
    assert UID not in found.pods
    assert found.containers[OTHER_ID].pod == "evil"


# What cannot be read.


def test_folder_that_is_missing(tmp_path):
    failure = LogLinkNames(tmp_path / "nothing").read().failure
    assert failure is not None
    assert failure.reason is Reason.MISSING
    assert "mount" in failure.detail
    assert "\n" not in failure.detail


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "containers").touch()
    assert LogLinkNames(tmp_path).read().failure.reason is Reason.UNREADABLE


PROBE = """
import os, sys
from pathlib import Path
from exporter.sources.pods import LogLinkNames
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(LogLinkNames(Path(sys.argv[1])).read().failure)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_folder_that_may_not_be_listed(logs, tmp_path_factory):
    (logs.root / "containers").chmod(0o700)
    # Only the last folder shall be closed, and pytest closes those above it.
    for parent in [logs.root, *logs.root.parents]:
        if parent.is_relative_to(tmp_path_factory.getbasetemp().parent):
            parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(logs.root)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("no_permission: ")


def test_folder_that_comes_and_goes(logs, source):
    start(logs)
    folder = logs.root / "containers"
    names(source)
    folder.rename(logs.root / "away")
    assert source.read().failure.reason is Reason.MISSING
    (logs.root / "away").rename(folder)
    assert names(source).containers == {ID: NAME}


# Laws.

STEMS = st.text("abc_-.0", min_size=1, max_size=40) | st.sampled_from([STEM, f"train-0_ml_main-{OTHER_ID}", "x" * 251])
TARGETS = st.text("abc_-./0", min_size=1, max_size=60) | st.sampled_from(
    [TARGET, TARGET.replace("ml", "prod"), TARGET.replace(UID, OTHER_UID), TARGET.replace("main", "side")]
)


@given(links=st.dictionaries(STEMS, TARGETS, max_size=6))
def test_only_agreeing_links_give_names(tmp_path_factory, links):
    logs = PodLogs(tmp_path_factory.mktemp("log"))
    for stem, target in links.items():
        link(logs, stem, target)
    found = names(LogLinkNames(logs.root))
    for container_id, name in found.containers.items():
        stem = f"{name.pod}_{name.namespace}_{name.container}-{container_id}"
        assert f"/pods/{name.namespace}_{name.pod}_" in links[stem]
        assert f"/{name.container}/" in links[stem]
    for uid, (namespace, pod) in found.pods.items():
        assert any(f"{namespace}_{pod}_{uid}" in target for target in links.values())
