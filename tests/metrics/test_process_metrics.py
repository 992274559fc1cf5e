import os

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.metrics.process import self_metrics
from exporter.metrics.render import Rendered, Renderer, joined
from exporter.metrics.samples import samples


def values(families):
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_our_own_process_is_measured():
    page = self_metrics()
    found = values(parse_text(page.text.decode()))
    assert found["process_resident_memory_bytes"] > 2**20
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"] <= found["process_max_fds"]
    assert found["process_start_time_seconds"] > 1_500_000_000
    assert "process_virtual_memory_bytes" in found


def test_both_formats_tell_one_collection_of_a_given_proc(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    own = tmp_path / "self"
    (own / "fd").mkdir(parents=True)
    for descriptor in ("0", "1", "2"):
        (own / "fd" / descriptor).touch()
    fields = ["0"] * 30
    fields[11], fields[12], fields[19], fields[20], fields[21] = "150", "50", "1000", "4096", "3"
    (own / "stat").write_text(f"7 (pod gpu) {' '.join(fields)}\n")
    (own / "limits").write_text("Max open files            1024                 4096                 files\n")
    ticks = os.sysconf("SC_CLK_TCK")
    page = self_metrics(str(tmp_path))
    wanted = {
        "process_virtual_memory_bytes": 4096,
        "process_resident_memory_bytes": 3 * os.sysconf("SC_PAGESIZE"),
        "process_start_time_seconds": 1_700_000_000 + 1000 / ticks,
        "process_cpu_seconds_total": 200 / ticks,
        "process_open_fds": 3,
        "process_max_fds": 1024,
    }
    assert values(parse_text(page.text.decode())) == wanted
    assert values(parse_openmetrics(page.openmetrics.decode())) == wanted


def test_without_proc_there_is_nothing_to_say(tmp_path):
    assert self_metrics(str(tmp_path / "absent")) == Rendered(b"", b"# EOF\n")


def test_the_whole_page_parses_strictly_and_ends_once(snapshot, totals, build):
    page = joined(Renderer().render(samples(snapshot, totals=totals, build=build)), self_metrics())
    names = [family.name for family in parse_openmetrics(page.openmetrics.decode())]
    assert names[0] == "podgpu_device_info"
    assert "process_resident_memory_bytes" in names
    assert page.openmetrics.count(b"# EOF") == 1
    assert values(parse_text(page.text.decode())) == values(parse_openmetrics(page.openmetrics.decode()))
