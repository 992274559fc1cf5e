"""The running exporter: builds the parts, starts them, and stops them on a signal."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path

from exporter import version
from exporter.clock import Clock
from exporter.logs import configure
from exporter.model import PodNames
from exporter.publication import Publisher
from exporter.sampler import STALE_AFTER_INTERVALS, Sampler, Slices, Source, Sources
from exporter.settings import Settings
from exporter.sources.apiserver import ApiServer, is_mounted
from exporter.sources.kubelet import KubeletSource
from exporter.sources.livepods import LivePodsSource
from exporter.sources.nvml import NvmlSource
from exporter.sources.pods import LogLinkNames, NoNames
from exporter.sources.procfs import ProcfsSource
from exporter.sources.resourceslices import ResourceSlices
from exporter.web.application import Application
from exporter.web.config_file import WebConfigError
from exporter.web.listening import ListenError
from exporter.web.pages import PageStore
from exporter.web.server import WebServer

log = logging.getLogger(__name__)

_GRACE = 2.0  # seconds that a stop waits for the cycle, and then for responses under way
_API_DEADLINE = 10.0  # seconds; longer than a cycle waits: an answer that comes late serves the next cycles


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 0, or 2 for an address or web config file of no use."""
    configure(level=settings.log_level, form=settings.log_format)
    clock = Clock()
    store = PageStore(clock.monotonic)
    sampler = Sampler(
        sources(settings, clock),
        interval=settings.interval,
        deadline=settings.deadline,
        clock=clock,
        publish=Publisher(
            store,
            lifetime=STALE_AFTER_INTERVALS * settings.interval,
            exporter_metrics=settings.exporter_metrics,
        ).publish,
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


def sources(settings: Settings, clock: Clock) -> Sources:
    """The sources that the settings name."""
    pods: Source[PodNames] = LogLinkNames(Path(settings.logs)) if settings.pods_source == "logs" else NoNames()
    return Sources(
        driver=NvmlSource(deadline=settings.deadline, interval=settings.interval, clock=clock),
        processes=ProcfsSource(Path(settings.procfs)),
        pods=pods,
        kubelet=KubeletSource(
            settings.kubelet_socket,
            deadline=settings.deadline,
            extra_resources=settings.kubelet_resources,
            reservation_namespaces=settings.kubelet_reservation_namespaces,
        ),
        live=LivePodsSource(Path(settings.sysfs), clock=clock),
        slices=_slices(settings, clock),
    )


def _slices(settings: Settings, clock: Clock) -> Slices | None:
    """The source of claims' devices, where a service account allows for one."""
    folder = Path(settings.service_account)
    if settings.dra_source == "none" or not is_mounted(folder):
        return None
    api = ApiServer(folder, environment=os.environ, deadline=_API_DEADLINE)
    return ResourceSlices(api, node=settings.node_name, clock=clock)
