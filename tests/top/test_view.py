"""From a page to a view: what is there, what is not, and what no order may change."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.accounting import account, opened
from exporter.metrics.render import Renderer
from exporter.metrics.samples import BuildInfo, samples
from exporter.model import AllocationReading
from exporter.top.view import (
    Container,
    ContainerId,
    DomainId,
    PageError,
    series_of_samples,
    series_of_text,
    view,
)
from tests import strategies as made
from tests.strategies import attributed

GIB = 1 << 30
BUILD = BuildInfo("0", "3")
D = 'gpu="{0}",gpu_uuid="GPU-{0}",gpu_instance="{1}"'
C = 'namespace="n",pod="{}",container="c",' + D.format(0, "")

PAGE = f"""\
podgpu_snapshot_timestamp_seconds 1000.5
podgpu_device_info{{{D.format(0, "")},name="NVIDIA H200"}} 1
podgpu_device_info{{{D.format(10, "")},name="NVIDIA H100"}} 1
podgpu_device_up{{{D.format(10, 3)}}} 1
podgpu_device_up{{{D.format(2, "")}}} 0
podgpu_device_up{{{D.format(0, "")}}} 1
podgpu_device_memory_capacity_bytes{{{D.format(0, "")}}} {80 * GIB}
podgpu_device_memory_bytes{{{D.format(0, "")},class="free"}} {70 * GIB}
podgpu_device_memory_bytes{{{D.format(0, "")},class="reserved"}} {GIB}
podgpu_device_memory_bytes{{{D.format(0, "")},class="containers"}} {9 * GIB}
podgpu_device_sm_utilization_ratio{{{D.format(0, "")}}} 0.5
podgpu_container_memory_used_bytes{{{C.format("a")}}} {9 * GIB}
podgpu_container_memory_requested_bytes{{{C.format("a")}}} {6 * GIB}
podgpu_container_memory_limit_bytes{{{C.format("a")}}} {8 * GIB}
podgpu_container_memory_overrun_bytes{{{C.format("a")}}} {GIB}
podgpu_container_sm_utilization_ratio{{{C.format("a")}}} 0.25
podgpu_container_share_ratio{{{C.format("a")}}} 0.125
podgpu_container_allocated{{{C.format("a")}}} 1
podgpu_container_mps_active_thread_ratio{{{C.format("a")},source="server"}} 0.75
podgpu_container_allocated{{{C.format("b")}}} 0
podgpu_container_memory_used_byte_seconds_total{{{C.format("gone")}}} 5
podgpu_source_up{{source="kubelet"}} 0
podgpu_source_up{{source="nvml"}} 1
podgpu_condition{{condition="over_attributed"}} 1
podgpu_condition{{condition="rows_rejected"}} 0
"""
FIRST = DomainId("0", "GPU-0", "")


def test_everything_that_the_page_says_is_in_the_view():
    seen = view(series_of_text(PAGE))
    assert [(gpu.id.gpu, gpu.id.gpu_instance, gpu.name, gpu.up) for gpu in seen.gpus] == [
        ("0", "", "NVIDIA H200", True),
        ("2", "", "", False),
        ("10", "3", "NVIDIA H100", True),
    ]
    gpu = seen.gpus[0]
    assert (gpu.capacity, gpu.used, gpu.sm) == (80 * GIB, 9 * GIB, 0.5)
    first, second = gpu.containers
    assert first == Container(
        ContainerId("n", "a", "c", FIRST),
        used=9 * GIB,
        requested=6 * GIB,
        limit=8 * GIB,
        overrun=GIB,
        threads=0.75,
        sm=0.25,
        share=0.125,
        allocated=True,
    )
    assert first.of_limit == 9 / 8
    assert second == Container(ContainerId("n", "b", "c", FIRST), allocated=False)
    assert (seen.timestamp, seen.sources_down, seen.conditions) == (1000.5, ("kubelet",), ("over_attributed",))


def test_what_the_page_does_not_say_is_unknown():
    lost = view(series_of_text(PAGE)).gpus[1]
    assert (lost.used, lost.capacity, lost.sm, lost.containers) == (None, None, None, ())


def test_p4_counters_of_finished_pods_show_nobody():
    assert "gone" not in {c.id.pod for gpu in view(series_of_text(PAGE)).gpus for c in gpu.containers}


def test_names_leave_out_what_is_not_known():
    assert ContainerId("", "uid", "0123456789ab", FIRST).name == "uid/0123456789ab"


@for_all(st.randoms(use_true_random=False))
def test_p6_the_order_of_the_lines_changes_nothing(shuffled):
    lines = PAGE.splitlines(keepends=True)
    shuffled.shuffle(lines)
    assert view(series_of_text("".join(lines))) == view(series_of_text(PAGE))


@pytest.mark.parametrize("page", ["<html>not found</html>", "up 1\n", "", 'a{b="c} 1\n', "\x00"])
def test_a_page_of_something_else_is_refused_in_one_line(page):
    with pytest.raises(PageError) as error:
        view(series_of_text(page))
    assert "\n" not in str(error.value)


@for_all(made.gpus_of_every_mode, made.places, made.named)
def test_a_page_and_the_samples_that_it_is_made_of_give_the_same_view(gpus, places, names):
    snapshot = attributed(gpus, places, names, AllocationReading(()))
    found = samples(snapshot, totals=account(opened(), snapshot), build=BUILD)
    seen = view(series_of_samples(found))
    assert view(series_of_text(Renderer().render(found).text.decode())) == seen
    assert {
        (c.id.namespace, c.id.pod, c.id.container, c.id.domain.gpu_uuid) for gpu in seen.gpus for c in gpu.containers
    } <= {(*state.name, state.domain.gpu_uuid) for state in snapshot.containers}
    known = {(*s.name, s.domain.gpu_uuid, s.domain.gpu_instance): s.used for s in snapshot.containers}
    for gpu in seen.gpus:
        for c in gpu.containers:
            assert c.used == known[(*c.id[:3], gpu.id.gpu_uuid, gpu.id.gpu_instance)]
