"""The exporter's own footprint: the `process_*` families that every Prometheus client library has.

They are made and encoded by prometheus_client, so their names and meanings are the ones that dashboards know. It will
not measure anything else about the exporter, and without a readable /proc it prints nothing.
"""

from collections.abc import Callable, Iterable

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from exporter.metrics.render import Rendered

_openmetrics: Callable[[Collector], bytes] = openmetrics.generate_latest  # which has no types of its own


class _Collected(Collector):
    """One collection for both encoders, so that both formats say the same."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def self_metrics(proc: str = "/proc") -> Rendered:
    """CPU seconds, memory in bytes, file descriptors and start time of this process. Source: /proc/self."""
    collected = _Collected(ProcessCollector(proc=proc, registry=None).collect())
    return Rendered(generate_latest(collected), _openmetrics(collected))
