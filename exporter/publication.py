"""From a snapshot to the bytes that scrapes get: rendered and compressed once, by the sampler's thread."""

import logging
import platform
from collections.abc import Sequence

from exporter import version
from exporter.metrics.podlabels import PodLabels
from exporter.metrics.process import self_metrics
from exporter.metrics.render import Rendered, Renderer, joined
from exporter.metrics.samples import BuildInfo, samples
from exporter.model import Snapshot, Totals
from exporter.web.pages import Page, PageStore

log = logging.getLogger(__name__)


class Publisher:
    """Puts each snapshot's page into the store, and beside it the page for when the snapshot has grown too old."""

    def __init__(
        self, store: PageStore, *, lifetime: float, exporter_metrics: bool, pod_labels: Sequence[str] = ()
    ) -> None:
        """`lifetime` is how many seconds the values of a snapshot may be shown as the present."""
        self._store = store
        self._lifetime = lifetime
        self._exporter_metrics = exporter_metrics
        self._pod_labels = PodLabels(pod_labels) if pod_labels else None
        self._build = BuildInfo(version(), platform.python_version())
        self._renderer = Renderer()
        self._stale_renderer = Renderer()

    def publish(self, snapshot: Snapshot, totals: Totals) -> None:
        """Make the snapshot's page the current one."""
        found = samples(snapshot, totals=totals, build=self._build, pod_labels=self._pod_labels)
        if found.duplicates:
            log.error("%d samples had the labels of another and were dropped; please report this", found.duplicates)
        health = samples(snapshot, totals=totals, build=self._build, values=False)
        own = self_metrics() if self._exporter_metrics else Rendered(b"", b"")
        self._store.publish(
            _page(self._renderer.render(found), own),
            stale=_page(self._stale_renderer.render(health), own),
            lifetime=self._lifetime,
        )


def _page(*parts: Rendered) -> Page:
    whole = joined(*parts)
    return Page.of(text=whole.text, openmetrics=whole.openmetrics)
