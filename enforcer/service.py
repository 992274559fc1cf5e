"""The running enforcer: builds the parts, runs a cycle whenever something has changed or the interval is over, stops.

It needs nothing of the exporter beside it. When it stops, what it set stays set: caps hold while it is started anew. To
take back what is ours, run it once with `--mode=off`.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from enforcer import metrics
from enforcer.boot import boot_id
from enforcer.cycle import Cycle, Tally
from enforcer.daemons import DaemonCare
from enforcer.mechanisms.api_writer import ApiWriter
from enforcer.mechanisms.apply import Mechanisms, Places
from enforcer.mechanisms.events import EventSender
from enforcer.mechanisms.eviction import evict
from enforcer.model import CapState
from enforcer.observation import NodeObserver
from enforcer.reconcile import Mode, Reconciler
from enforcer.settings import PROG, Settings
from exporter import version
from exporter.clock import Clock
from exporter.errors import Failure
from exporter.logs import configure
from exporter.metrics.process import self_metrics
from exporter.metrics.render import Renderer, joined
from exporter.sampler import Sampler
from exporter.service import sources
from exporter.sources.apiserver import is_mounted
from exporter.sources.library_use import LibraryUse
from exporter.sources.memory_limits import MemoryLimits
from exporter.web.application import Application
from exporter.web.config_file import WebConfigError
from exporter.web.listening import ListenError
from exporter.web.pages import Page, PageStore
from exporter.web.server import WebServer

log = logging.getLogger(__name__)

_GRACE = 2.0  # seconds
_LOOK_EVERY = 0.1  # seconds; how soon a pod that was changed is looked at
_STALE_AFTER = 5  # intervals, and not less than a minute, since one cycle may wait for several deadlines
_API_DEADLINE = 10.0  # seconds


def run(settings: Settings) -> int:
    """Enforce until SIGTERM or SIGINT. Returns the exit code: 0, or 2 for an address, file or right that is missing."""
    node = settings.node
    configure(level=node.log_level, form=node.log_format)
    boot = boot_id()
    if isinstance(boot, Failure):
        return _complain(str(boot))
    if settings.mode == Mode.ENFORCE and os.geteuid() != 0:
        return _complain("--mode=enforce needs root: the driver, MPS control daemons and receipts are root's")
    clock = Clock()
    store = PageStore(clock.monotonic)
    enforcer = Enforcer(settings, boot=boot, clock=clock, store=store)
    server = WebServer(
        Application(store, healthy=enforcer.stuck, version=version(), telemetry_path=node.telemetry_path),
        listen_addresses=node.listen_addresses,
        config_file=Path(node.web_config_file) if node.web_config_file else None,
        max_connections=node.max_connections,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    log.info("podgpu enforcer %s starts in mode %s, with MPS daemons %s", version(), settings.mode, settings.mps)
    try:
        server.start()
    except (ListenError, WebConfigError) as error:
        return _complain(str(error))
    cycles = threading.Thread(target=enforcer.run, args=(stop,), name="cycles", daemon=True)
    cycles.start()
    stop.wait()
    log.info("stopping; what is set stays set")
    cycles.join(_GRACE)
    enforcer.stop()
    server.stop(_GRACE)
    logging.shutdown()
    os._exit(0)  # as in the exporter: a thread inside a driver call must not hold up the end


class Enforcer:
    """All parts of the enforcer, and the thread that runs its cycles."""

    def __init__(self, settings: Settings, *, boot: str, clock: Clock, store: PageStore) -> None:
        node = settings.node
        self._settings = settings
        self._clock = clock
        self._store = store
        self._last_end = clock.monotonic()
        self._tally = Tally()
        self._renderer = Renderer()
        library = LibraryUse()
        procfs, sysfs = Path(node.procfs), Path(node.sysfs)
        # MPS settings are read fresh: what was set a moment ago must show.
        found = sources(node, clock, mps_settings_age=0, library=library)
        self._pods = found.pods
        self._sampler = Sampler(
            found,
            interval=node.interval,
            deadline=node.deadline,
            clock=clock,
            publish=lambda _snapshot, _totals: None,
            annotation_prefix=node.annotation_prefix,
        )
        limits = MemoryLimits(sysfs, procfs, deadline=node.deadline, clock=clock, use=library)
        observer = NodeObserver(self._sampler, limits, sysfs=sysfs, procfs=procfs, clock=clock)
        places = Places(settings.state, settings.receipts, sysfs, procfs, node.mps_control, boot)
        self._mechanisms = Mechanisms(places, driver_deadline=node.deadline, clock=clock, use=library)
        mode = Mode(settings.mode)
        api = _api(settings)
        self._events = EventSender(api, node=node.node_name, clock=clock) if api is not None else None
        reconciler = Reconciler(observer, self._mechanisms, mode=mode, clock=clock, counted=self._tally.acted)
        self._cycle = Cycle(
            reconciler,
            self._mechanisms,
            mode=mode,
            caps=lambda looked: self._sampler.caps(looked.readings),
            evict=(lambda action: evict(api, action)) if api is not None else None,
            teller=self._events,
            window=settings.window,
            tally=self._tally,
            clock=clock,
        )
        managed = settings.mps == "managed" and mode is Mode.ENFORCE
        self._daemons = DaemonCare(settings, boot=boot, clock=clock, use=library) if managed else None

    def run(self, stop: threading.Event) -> None:
        """Cycle after cycle until `stop` is set: at each interval, and soon after a pod of the node has changed."""
        if self._events is not None:
            self._events.start()
        while not stop.is_set():
            begun, pods = self._clock.monotonic(), self._pods.read().value
            try:
                if self._daemons is not None:
                    self._daemons.keep(self._sampler)
                self._publish(self._cycle.run(), self._clock.monotonic() - begun)
            except Exception:
                log.exception("a cycle failed; nothing was undone")
            self._last_end = self._clock.monotonic()
            while not stop.is_set() and self._clock.monotonic() - begun < self._settings.node.interval:
                if self._pods.read().value is not pods:
                    break
                stop.wait(_LOOK_EVERY)

    def stuck(self) -> str | None:
        """One line when no cycle has ended for too long; None when all is well."""
        age = self._clock.monotonic() - self._last_end
        limit = max(60.0, _STALE_AFTER * self._settings.node.interval)
        return f"no cycle has ended for {age:.0f} s" if age > limit else None

    def stop(self) -> None:
        """Let the threads end, and the daemons that nobody uses."""
        if self._daemons is not None:
            self._daemons.stop()
        if self._events is not None:
            self._events.stop(_GRACE)
        self._mechanisms.stop()

    def _publish(self, caps: Mapping[CapState, int] | None, seconds: float) -> None:
        events = dict(self._events.counts) if self._events is not None else {}
        figures = metrics.Figures(
            self._settings.mode,
            self._settings.mps,
            version(),
            caps,
            self._tally.actions,
            self._tally.overruns,
            {**events, "held_back": self._tally.held_back},
            self._clock.unix(),
            seconds,
        )
        page = self._renderer.render(metrics.samples(figures))
        if self._settings.node.exporter_metrics:
            page = joined(page, self_metrics())
        self._store.publish(Page.of(text=page.text, openmetrics=page.openmetrics))


def _api(settings: Settings) -> ApiWriter | None:
    folder = Path(settings.node.service_account)
    if settings.mode != Mode.ENFORCE or not is_mounted(folder):
        return None
    return ApiWriter(folder, environment=os.environ, deadline=_API_DEADLINE)


def _complain(line: str) -> int:
    print(f"{PROG}: {line}", file=sys.stderr)
    return 2
