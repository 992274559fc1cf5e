"""A metrics page as what a person looks at: GPUs, who is on them, and what is wrong. Pure.

Guarantees: what the page does not say is None, never 0; a container is there only if a gauge of the page names it, so
the counters that finished pods leave behind for a while show nobody; the order of the page changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from exporter.metrics import catalog
from exporter.metrics.samples import Samples
from exporter.model import MemoryClass

Series = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]  # by name: labels and value

_THREADS = "podgpu_container_mps_active_thread_ratio"


class PageError(Exception):
    """A page that is not one of podgpu's, in one line."""


class DomainId(NamedTuple):
    """The labels of a memory domain, as the page has them."""

    gpu: str
    gpu_uuid: str
    gpu_instance: str


class ContainerId(NamedTuple):
    """The labels of a container on a memory domain."""

    namespace: str
    pod: str
    container: str
    domain: DomainId

    @property
    def name(self) -> str:
        """Namespace, pod and container as one text. Parts that are not known are left out."""
        return "/".join(part for part in self[:3] if part)


@dataclass(frozen=True, slots=True)
class Container:
    """One container on one GPU. Memory in bytes, ratios from 0 to 1; None: the page does not say."""

    id: ContainerId
    used: float | None = None
    requested: float | None = None
    limit: float | None = None
    overrun: float | None = None
    threads: float | None = None  # the share that MPS lets it have
    sm: float | None = None
    share: float | None = None  # slots held of slots advertised
    allocated: bool | None = None

    @property
    def of_limit(self) -> float | None:
        """Use by limit; above 1 while it is over. None where either is not known or there is no room at all."""
        return self.used / self.limit if self.used is not None and self.limit else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One memory domain: a GPU, or a GPU instance under MIG."""

    id: DomainId
    name: str = ""
    up: bool = True
    capacity: float | None = None
    classes: Mapping[str, float] = field(default_factory=dict)
    sm: float | None = None
    containers: tuple[Container, ...] = ()

    @property
    def used(self) -> float | None:
        """Bytes in use, by whomever; None where the page does not say."""
        unused = (MemoryClass.FREE, MemoryClass.RESERVED)
        return sum(v for k, v in self.classes.items() if k not in unused) if self.classes else None


@dataclass(frozen=True, slots=True)
class View:
    """One page. `timestamp` is the Unix time of its readings."""

    timestamp: float
    gpus: tuple[Gpu, ...]
    sources_down: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()  # those that hold


def series_of_text(page: str) -> Series:
    """The series of a page in text format. Raises PageError."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name].append((sample.labels, sample.value))
    except ValueError as error:
        raise PageError(f"no metrics page: {error}") from None
    return found


def series_of_samples(samples: Samples) -> Series:
    """The series of a page that was not written yet."""
    return {
        one.family.name: [(dict(zip(one.family.labels, labels, strict=True)), value) for labels, value in one.rows]
        for one in samples.families
    }


def view(series: Series) -> View:
    """What the series show. Raises PageError where they are not podgpu's."""
    read = _Reader(series)
    timestamps = read.series(catalog.SNAPSHOT_TIMESTAMP.name)
    if not timestamps:
        raise PageError("no page of podgpu: it has no podgpu_snapshot_timestamp_seconds")
    return View(
        timestamps[0][1],
        tuple(sorted(read.gpus(), key=lambda gpu: tuple(map(_number_first, gpu.id)))),
        tuple(sorted(labels["source"] for labels, up in read.series(catalog.SOURCE_UP.name) if not up)),
        tuple(sorted(labels["condition"] for labels, holds in read.series(catalog.CONDITION.name) if holds)),
    )


class _Reader:
    """Collects what the families say of each GPU and each container."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def series(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        return self._series.get(name, ())

    def gpus(self) -> Iterator[Gpu]:
        names = {
            _domain(labels)._replace(gpu_instance=""): labels["name"] for labels, _ in self._of(catalog.DEVICE_INFO)
        }
        up = {_domain(labels): bool(value) for labels, value in self._of(catalog.DEVICE_UP)}
        capacity = {_domain(labels): value for labels, value in self._of(catalog.DEVICE_MEMORY_CAPACITY)}
        busy = {_domain(labels): value for labels, value in self._of(catalog.DEVICE_SM_UTILIZATION)}
        classes: dict[DomainId, dict[str, float]] = defaultdict(dict)
        for labels, value in self._of(catalog.DEVICE_MEMORY):
            classes[_domain(labels)][labels["class"]] = value
        containers: dict[DomainId, list[Container]] = defaultdict(list)
        for container in self._containers():
            containers[container.id.domain].append(container)
        for key in {*up, *capacity, *classes, *containers}:
            yield Gpu(
                key,
                name=names.get(key._replace(gpu_instance=""), ""),
                up=up.get(key, True),
                capacity=capacity.get(key),
                classes=dict(sorted(classes[key].items())),
                sm=busy.get(key),
                containers=tuple(sorted(containers[key], key=lambda found: found.id)),
            )

    def _containers(self) -> Iterator[Container]:
        used = self._by_container(catalog.CONTAINER_MEMORY_USED.name)
        requested = self._by_container(catalog.CONTAINER_MEMORY_REQUESTED.name)
        limit = self._by_container(catalog.CONTAINER_MEMORY_LIMIT.name)
        overrun = self._by_container(catalog.CONTAINER_MEMORY_OVERRUN.name)
        threads = self._by_container(_THREADS)
        busy = self._by_container(catalog.CONTAINER_SM_UTILIZATION.name)
        share = self._by_container(catalog.CONTAINER_SHARE.name)
        allocated = self._by_container(catalog.CONTAINER_ALLOCATED.name)
        unknown = self._by_container(catalog.CONTAINER_PROCESSES_MEMORY_UNKNOWN.name)
        for key in {*used, *requested, *limit, *overrun, *threads, *busy, *share, *allocated, *unknown}:
            yield Container(
                key,
                used=used.get(key),
                requested=requested.get(key),
                limit=limit.get(key),
                overrun=overrun.get(key),
                threads=threads.get(key),
                sm=busy.get(key),
                share=share.get(key),
                allocated=bool(allocated[key]) if key in allocated else None,
            )

    def _of(self, family: catalog.Family) -> Sequence[tuple[Mapping[str, str], float]]:
        return self.series(family.name)

    def _by_container(self, name: str) -> dict[ContainerId, float]:
        return {
            ContainerId(labels["namespace"], labels["pod"], labels["container"], _domain(labels)): value
            for labels, value in self.series(name)
        }


def _domain(labels: Mapping[str, str]) -> DomainId:
    return DomainId(labels["gpu"], labels["gpu_uuid"], labels["gpu_instance"])


def _number_first(text: str) -> tuple[int, str]:
    """Sorts numbers as numbers."""
    return (int(text), "") if text.isascii() and text.isdigit() else (-1, text)
