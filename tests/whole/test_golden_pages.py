"""The whole page of each scenario, byte for byte, and the promises that it must keep."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from simulator.scenario_file import names
from tests.whole.conftest import samples

pytestmark = pytest.mark.whole

GOLDEN = Path(__file__).parent / "golden"
# What differs from run to run. Everything else must not.
_VOLATILE = re.compile(
    r"^(podgpu_(?:source_duration_seconds|source_last_success_timestamp_seconds|snapshot_timestamp_seconds"
    r"|sampler_cycles_total|\w+_byte_seconds_total|container_memory_overrun_seconds_total"
    r"|container_mps_thread_ratio_seconds_total)(?:\{.*\})?|podgpu_build_info\{).*$",
    re.MULTILINE,
)


@pytest.fixture(params=names())
def scene(request, make):
    whole = make(request.param)
    # The first cycle is what is shown, so each source has the time that it has by default.
    flags = ["--interval=5s", "--web.disable-exporter-metrics"]
    if "api" in whole.node.scenario.pods_sources:  # is asked at a random time, so its pods are on some first pages
        flags.append("--pods.source=logs")
    whole.start_exporter(*flags)
    return whole


def test_the_page_is_the_golden_one_and_keeps_the_promises(scene, request):
    page = scene.page()
    path = GOLDEN / f"{scene.node.scenario.name}.prom"
    stable = _VOLATILE.sub(r"\1 VOLATILE", page).replace(str(scene.paths.root), "ROOT")
    if request.config.getoption("--write-golden"):
        path.write_text(stable)
    assert stable == path.read_text(), f"{path} differs; if it should, run `make golden` and review the difference"
    _check_openmetrics(scene)
    _check_each_byte_once(page)
    _check_nothing_repeats(page)
    _check_every_pod_has_its_bytes(page, scene.node.scenario)


def _check_openmetrics(scene):
    request = Request(f"http://{scene.address}/metrics", headers={"Accept": "application/openmetrics-text"})
    with urlopen(request) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        assert list(strict_openmetrics(response.read().decode()))


def _check_each_byte_once(page):
    classes = defaultdict(float)
    for labels, value in samples(page, "podgpu_device_memory_bytes"):
        classes[labels["gpu_uuid"], labels["gpu_instance"]] += value
    capacities = {
        (labels["gpu_uuid"], labels["gpu_instance"]): value
        for labels, value in samples(page, "podgpu_device_memory_capacity_bytes")
    }
    assert capacities
    assert classes == capacities


def _check_nothing_repeats(page):
    series = Counter(
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    )
    assert max(series.values()) == 1


def _check_every_pod_has_its_bytes(page, loaded):
    """The scenario says what each container holds; the page must say the same, on the right GPU."""
    expected = defaultdict(int)
    unknown = set()
    for pod in loaded.pods:
        for container in pod.containers:
            for process in container.processes:
                server = process.command[0].endswith("nvidia-cuda-mps-server")
                instance = "" if process.gpu_instance is None else str(process.gpu_instance)
                key = (pod.namespace, pod.name, container.name, str(process.gpu), instance)
                if pod.start == 0 and process.start == 0 and not server and not pod.gated:
                    if process.memory is None:
                        unknown.add(key)
                    else:
                        expected[key] += process.memory.at(0)
    shown = {
        (labels["namespace"], labels["pod"], labels["container"], labels["gpu"], labels["gpu_instance"]): value
        for labels, value in samples(page, "podgpu_container_memory_used_bytes")
    }
    known = {key: value for key, value in expected.items() if key not in unknown}
    assert {key: value for key, value in shown.items() if value} == known
