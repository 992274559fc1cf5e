"""The running exporter: builds the parts, starts them, and stops them on a signal."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

from exporter import version
from exporter.clock import Clock
from exporter.limit_questions import LimitSources
from exporter.logs import configure
from exporter.model import PodNames
from exporter.publication import Publisher
from exporter.sampler import STALE_AFTER_INTERVALS, Sampler, Slices, Source, Sources
from exporter.settings import Settings
from exporter.sources.apipods import ApiServerPods
from exporter.sources.apiserver import ApiServer, is_mounted
from exporter.sources.environs import EnvironSource
from exporter.sources.fractioning import FractioningSource
from exporter.sources.kubelet import KubeletSource
from exporter.sources.library_use import LibraryUse
from exporter.sources.livepods import LivePodsSource
from exporter.sources.memory_limits import MemoryLimits
from exporter.sources.mps import MpsSource
from exporter.sources.mps_two import SETTINGS_AGE
from exporter.sources.nvml import NvmlSource
from exporter.sources.podchoice import PodChoice
from exporter.sources.podfeed import PodFeed
from exporter.sources.pods import LogLinkNames, NoNames
from exporter.sources.podsapi import KubeletPods
from exporter.sources.policy import PolicyFile
from exporter.sources.procfs import ProcfsSource
from exporter.sources.resourceslices import ResourceSlices
from exporter.web.application import Application
from exporter.web.config_file import WebConfigError
from exporter.web.listening import ListenError
from exporter.web.pages import PageStore
from exporter.web.server import WebServer

log = logging.getLogger(__name__)

_GRACE = 2.0  # seconds that a stop waits for the cycle, and then for responses under way
_PART = 0.8  # of a cycle's deadline, for a source that itself waits for several: it must tell of those that answered
_API_DEADLINE = 10.0  # seconds; longer than a cycle waits: an answer that comes late serves the next cycles


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 2 for an address or file of no use."""
    configure(level=settings.log_level, form=settings.log_format)
    clock = Clock()
    store = PageStore(clock.monotonic)
    found = sources(settings, clock)
    if found.policy is not None and (problem := found.policy.read().failure) is not None:
        print(f"podgpu exporter: {problem.detail}", file=sys.stderr)
        return 2
    sampler = Sampler(
        found,
        interval=settings.interval,
        deadline=settings.deadline,
        clock=clock,
        publish=Publisher(
            store,
            lifetime=STALE_AFTER_INTERVALS * settings.interval,
            exporter_metrics=settings.exporter_metrics,
            pod_labels=settings.pod_labels,
        ).publish,
        annotation_prefix=settings.annotation_prefix,
        retain=settings.retain,
    )
    server = WebServer(
        Application(store, healthy=sampler.stuck, version=version(), telemetry_path=settings.telemetry_path),
        listen_addresses=settings.listen_addresses,
        config_file=Path(settings.web_config_file) if settings.web_config_file else None,
        max_connections=settings.max_connections,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log.info("podgpu %s starts", version())
    try:
        server.start()
    except (ListenError, WebConfigError) as error:
        print(f"podgpu exporter: {error}", file=sys.stderr)
        return 2
    cycles = threading.Thread(target=sampler.run, args=(stop,), name="sampler", daemon=True)
    cycles.start()
    stop.wait()
    log.info("stopping")
    cycles.join(_GRACE)
    server.stop(_GRACE)
    logging.shutdown()
    # Threads inside a driver call that never returns must not hold up the exit, nor must the library's own exit hooks.
    os._exit(0)


def sources(
    settings: Settings, clock: Clock, *, mps_settings_age: float = SETTINGS_AGE, library: LibraryUse | None = None
) -> Sources:
    """The sources that the settings name. Shares and limits of MPS may be so many seconds old.

    `library` is for those who call the driver's library besides.
    """
    procfs, sysfs, library = Path(settings.procfs), Path(settings.sysfs), library or LibraryUse()
    return Sources(
        driver=NvmlSource(deadline=settings.deadline, interval=settings.interval, clock=clock, use=library),
        processes=ProcfsSource(procfs),
        pods=_pods(settings, clock),
        kubelet=KubeletSource(
            settings.kubelet_socket,
            deadline=settings.deadline,
            extra_resources=settings.kubelet_resources,
            reservation_namespaces=settings.kubelet_reservation_namespaces,
        ),
        live=LivePodsSource(sysfs, clock=clock),
        slices=_slices(settings, clock),
        policy=PolicyFile(Path(settings.policy_file), clock=clock) if settings.policy_file else None,
        limits=LimitSources(
            mps=_mps(settings, clock, mps_settings_age),
            environments=EnvironSource(procfs, clock=clock) if settings.mps_source != "none" else None,
            memory=MemoryLimits(sysfs, procfs, deadline=_PART * settings.deadline, clock=clock, use=library),
            fractioning=FractioningSource(settings.fractioning_map, clock=clock),
        ),
    )


def _mps(settings: Settings, clock: Clock, settings_age: float) -> MpsSource | None:
    """The source of MPS control daemons."""
    if settings.mps_source == "none":
        return None
    return MpsSource(
        settings.mps_directories,
        binary=settings.mps_control,
        procfs=Path(settings.procfs),
        deadline=_PART * settings.deadline,
        clock=clock,
        settings_age=settings_age,
    )


def _pods(settings: Settings, clock: Clock) -> Source[PodNames]:
    """The source of pods, and with `auto` those that stand in for it."""
    wanted = settings.pods_source
    links = LogLinkNames(Path(settings.logs))
    if wanted == "none":
        return NoNames()
    if wanted == "logs":
        return links
    folder = Path(settings.service_account)
    reachable = bool(settings.node_name) and is_mounted(folder)

    def kubelet() -> PodFeed:
        return KubeletPods(settings.kubelet_pods_socket, clock=clock)

    def api() -> PodFeed:
        server = ApiServer(folder, environment=os.environ, deadline=_API_DEADLINE)
        return ApiServerPods(server, node=settings.node_name, clock=clock)

    return PodChoice(
        kubelet=kubelet if wanted in ("auto", "kubelet") else None,
        api=api if wanted == "api" or (wanted == "auto" and reachable) else None,
        links=links if wanted == "auto" else None,
        pods_socket=settings.kubelet_pods_socket,
        clock=clock,
    )


def _slices(settings: Settings, clock: Clock) -> Slices | None:
    """The source of claims' devices, where a service account allows for one."""
    folder = Path(settings.service_account)
    if settings.dra_source == "none" or not is_mounted(folder):
        return None
    api = ApiServer(folder, environment=os.environ, deadline=_API_DEADLINE)
    return ResourceSlices(api, node=settings.node_name, clock=clock)
