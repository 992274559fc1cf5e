"""The promises that hold for the page as bytes, from readings to both formats, whatever was read and however named."""

import math
import re
from collections import Counter
from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.accounting import account, opened
from exporter.metrics.render import Rendered, Renderer
from exporter.metrics.samples import BuildInfo, samples
from exporter.model import AllocationReading, ContainerName, DomainReading, ListKind, LivePods, PodNames
from tests import strategies as made
from tests.strategies import attributed, shuffled_gpus, with_rows_twice

READINGS = (made.gpus_of_every_mode, made.places, made.named, made.allocations)


def page(snapshot) -> Rendered:
    return Renderer().render(
        samples(snapshot, totals=account(opened(), snapshot), build=BuildInfo("0.1.0", "3.11.7")),
    )


@for_all(*READINGS, st.randoms(use_true_random=False))
def test_p6_b15_no_order_of_any_input_changes_a_byte(gpus, places, names, allocations, random):
    def shuffled(values):
        mixed = list(values)
        random.shuffle(mixed)
        return mixed

    def with_ids_shuffled(found):
        return [replace(one, devices=tuple(shuffled(one.devices))) for one in shuffled(found)]

    other = attributed(
        shuffled_gpus(gpus, shuffled),
        dict(shuffled(places.items())),
        PodNames(dict(shuffled(names.pods.items())), dict(shuffled(names.containers.items()))),
        AllocationReading(
            tuple(with_ids_shuffled(allocations.allocations)),
            None if allocations.allocatable is None else tuple(shuffled(allocations.allocatable)),
        ),
        live=LivePods(frozenset(shuffled(names.pods))),
    )
    assert page(other) == page(attributed(gpus, places, names, allocations))


@for_all(*READINGS)
def test_what_is_said_twice_changes_no_byte(gpus, places, names, allocations):
    doubled = AllocationReading(
        allocations.allocations * 2, None if allocations.allocatable is None else allocations.allocatable * 2
    )
    other = attributed([with_rows_twice(reading) for reading in gpus], places, names, doubled)
    assert page(other) == page(attributed(gpus, places, names, allocations))


def lines_of_others(text: bytes, gpu: int, gpu_instance: str) -> list[str]:
    """The sample lines of every memory domain but one."""
    others = []
    for line in text.decode().splitlines():
        domain = re.search(r'gpu="(\d+)",gpu_instance="(\d*)"', line)
        if domain is not None and domain.groups() != (str(gpu), gpu_instance):
            others.append(line)
    return others


@for_all(*READINGS, st.data())
def test_p5_an_error_on_one_domain_leaves_the_lines_of_every_other_as_they_were(gpus, places, names, allocations, data):
    domains = [(reading, domain) for reading in gpus for domain in reading.domains]
    if not domains:
        return
    ill, victim = data.draw(st.sampled_from(domains))
    failure = data.draw(made.failures)
    broken = data.draw(
        st.sampled_from(
            [
                DomainReading(victim.gpu_instance, failure, victim.lists),
                DomainReading(victim.gpu_instance, victim.memory, dict.fromkeys(ListKind, failure)),
                DomainReading(victim.gpu_instance, failure, dict.fromkeys(ListKind, failure)),
            ]
        )
    )
    faulty = [
        replace(ill, domains=tuple(broken if domain is victim else domain for domain in ill.domains))
        if reading is ill
        else reading
        for reading in gpus
    ]
    instance = "" if victim.gpu_instance is None else str(victim.gpu_instance)
    before = page(attributed(gpus, places, names, allocations))
    after = page(attributed(faulty, places, names, allocations))
    for healthy, hurt in ((before.text, after.text), (before.openmetrics, after.openmetrics)):
        assert lines_of_others(hurt, ill.device.index, instance) == lines_of_others(healthy, ill.device.index, instance)


# Quotes, backslashes, line ends and everything that a format could take for its own, and bytes that are no text.
hostile = st.text(st.sampled_from('"\\\n\r\t ,={}#\u2028\u00e9\udcff\x00a'), min_size=1, max_size=4) | st.text(
    min_size=1
)


@for_all(*READINGS, st.lists(hostile, min_size=12, max_size=12, unique=True))
def test_p6_b118_the_page_parses_whatever_things_are_called(gpus, places, names, allocations, texts):
    spelt = dict(zip(("ns", "a", "b", "c", "1", "2"), texts, strict=False))

    def renamed(name: ContainerName) -> ContainerName:
        return ContainerName(*(spelt[part] for part in name))

    gpus = [
        replace(
            reading,
            device=replace(reading.device, name=texts[6], pci_bus_id=texts[7], compute_mode=texts[8]),
            mig_devices=tuple(replace(mig, profile=texts[9]) for mig in reading.mig_devices),
        )
        for reading in gpus
    ]
    names = PodNames(
        {uid: (spelt[namespace], spelt[pod]) for uid, (namespace, pod) in names.pods.items()},
        {container: renamed(name) for container, name in names.containers.items()},
    )
    allocations = AllocationReading(
        tuple(replace(one, name=renamed(one.name), resource=texts[10]) for one in allocations.allocations),
        None
        if allocations.allocatable is None
        else tuple((f"{texts[10]}{texts[11]}", device) for _, device in allocations.allocatable),
    )
    snapshot = attributed(gpus, places, names, allocations)
    found = page(snapshot)
    shown = [state for state in snapshot.containers if state.allocated is not None]
    for parsed in (list(parse_text(found.text.decode())), list(parse_openmetrics(found.openmetrics.decode()))):
        series = Counter(
            (sample.name, tuple(sorted(sample.labels.items()))) for family in parsed for sample in family.samples
        )
        assert set(series.values()) == {1}
        named = {
            (sample.labels["namespace"], sample.labels["pod"], sample.labels["container"])
            for family in parsed
            if family.name == "podgpu_container_allocated"
            for sample in family.samples
        }
        assert named == {tuple(re.sub("[\ud800-\udfff]", "\ufffd", part) for part in state.name) for state in shown}


@for_all(*READINGS)
def test_p2_no_value_is_negative_nan_or_a_blank(gpus, places, names, allocations):
    text = page(attributed(gpus, places, names, allocations)).text.decode()
    assert "-0.0\n" not in text
    for family in parse_text(text):
        for sample in family.samples:
            assert math.isfinite(sample.value), sample
            assert 0 <= sample.value < 2**60, sample
