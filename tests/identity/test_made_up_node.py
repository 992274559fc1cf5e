"""The made-up procfs and cgroup tree behave as the kernel's do where the product looks."""

import threading
from dataclasses import replace

from exporter.model import ContainerRef, Place
from exporter.sources.procfs import ProcfsSource
from simulator.cgroupfs import Cgroupfs, ContainerCgroup
from simulator.procfs import Process, Procfs

CGROUP = ContainerCgroup("4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef" * 4)
JOB = Process(500, 1000, "python3", ("python3",), CGROUP.text)


def test_process_that_changes_is_never_seen_torn_or_gone(tmp_path):
    procfs = Procfs(tmp_path)
    procfs.put(JOB)
    source = ProcfsSource(tmp_path)
    stop = threading.Event()

    def change():
        while not stop.is_set():
            procfs.put(replace(JOB, comm="a"))
            procfs.put(replace(JOB, comm="a much longer name", cgroup_text="0::/system.slice/ssh.service\n"))

    writer = threading.Thread(target=change)
    writer.start()
    try:
        found = {source.read([500]).value.places[500] for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert found <= {Place(), Place(container=ContainerRef(CGROUP.pod_uid, container_id=CGROUP.container_id))}


def test_only_processes_are_left_in_the_folder(tmp_path):
    procfs = Procfs(tmp_path)
    procfs.put(JOB)
    procfs.put(replace(JOB, start_time=2000))
    procfs.make_zombie(500)
    procfs.remove(500)
    procfs.remove(500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "self"]


def test_cgroup_has_its_files_until_it_is_removed(tmp_path):
    tree = Cgroupfs(tmp_path)
    folder = tree.put(CGROUP.path, pids=[7, 5], files={"memory.max": "4096\n"})
    assert folder == tmp_path / "fs" / "cgroup" / CGROUP.path.lstrip("/")
    assert (folder / "cgroup.procs").read_text() == "5\n7\n"
    assert (folder / "cgroup.events").read_text().startswith("populated 1\n")
    assert (folder / "memory.max").read_text() == "4096\n"
    assert (folder.parent / "memory.max").read_text() == "max\n"
    tree.put(CGROUP.path)
    assert (folder / "cgroup.procs").read_text() == ""
    assert (folder / "memory.max").read_text() == "4096\n"  # changing the members changes no limit
    tree.remove(CGROUP.path)
    tree.remove(CGROUP.path)
    assert not folder.exists()
    assert folder.parent.exists()
