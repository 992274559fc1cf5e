"""A look at this node by a command that serves nobody: the exporter's sources and sampler, without its publishing."""

import time

from exporter.clock import Clock
from exporter.readings import Readings
from exporter.sampler import Sampler, Sources
from exporter.service import sources
from exporter.settings import Settings
from exporter.sources.mps_two import SETTINGS_AGE

_PATIENCE = 3.0  # seconds for sources of pods that are followed in the background to be heard


def observer(settings: Settings, *, mps_settings_age: float = SETTINGS_AGE, found: Sources | None = None) -> Sampler:
    """A sampler of this node, to be asked for readings and snapshots; `found` are its sources, if not new ones."""
    clock = Clock()
    return Sampler(
        found or sources(settings, clock, mps_settings_age=mps_settings_age),
        interval=settings.interval,
        deadline=settings.deadline,
        clock=clock,
        publish=lambda _snapshot, _totals: None,
        annotation_prefix=settings.annotation_prefix,
    )


def first_readings(sampler: Sampler) -> Readings:
    """Readings, once the pods are known or it has taken too long."""
    until = time.monotonic() + _PATIENCE
    while True:
        readings = sampler.readings()
        names = readings.names.value
        if (names is not None and names.stale is None) or time.monotonic() > until:
            return readings
        time.sleep(0.1)
