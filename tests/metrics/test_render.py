import math
import tracemalloc
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.utils import floatToGoString

from exporter.metrics import catalog
from exporter.metrics.catalog import Family
from exporter.metrics.render import Rendered, Renderer, joined, number
from exporter.metrics.samples import FamilySamples, Samples, samples


def reference(found):
    """The same samples through prometheus_client's encoders."""
    families = []
    for one in found.families:
        family = one.family
        kind = GaugeMetricFamily if family.type == "gauge" else CounterMetricFamily
        name = family.name.removesuffix("_total") if family.type == "counter" else family.name
        metric = kind(name, family.help, labels=family.labels, unit=family.unit)
        for labels, value in one.rows:
            metric.add_metric(labels, value)
        families.append(metric)
    collector = SimpleNamespace(collect=lambda: families)
    return Rendered(generate_latest(collector), openmetrics.generate_latest(collector))


# --- random pages -------------------------------------------------------------------------------------------------

identifiers = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
# Valid Unicode; quotes, backslashes, line ends and everything that a format could mistake for its own are frequent.
texts = st.text(st.sampled_from('"\\\n\r,={}# \t\u2028\u00e9\U0001f600nN') | st.characters(codec="utf-8"), max_size=8)
values = (
    st.integers(-(2**70), 2**70)
    | st.integers(0, 2**40)
    | st.floats()
    | st.booleans()
    | st.sampled_from([0, -0.0, math.inf, -math.inf, math.nan, 999_999, 1_000_000, 10**15, 2**53, 1e16, 1e-7])
)
counts = st.integers(0, 2**60) | st.floats(0, allow_nan=False)


def is_printed(value):
    """Samples have no -0.0, which equals 0.0 and is other text."""
    return value != 0 or math.copysign(1, value) > 0


@st.composite
def families(draw, text=texts):
    kind = draw(st.sampled_from(["gauge", "counter"]))
    unit = draw(st.sampled_from(["", "bytes", "seconds", "ratio"]))
    name = draw(identifiers) + (f"_{unit}" if unit else "") + ("_total" if kind == "counter" else "")
    labels = tuple(draw(st.lists(identifiers, max_size=4, unique=True)))
    family = Family(name, kind, unit, labels, draw(text), draw(text))
    rows = draw(
        st.dictionaries(
            st.tuples(*[text] * len(labels)),
            values.filter(is_printed) if kind == "gauge" else counts,
            min_size=1,
            max_size=4,
        )
    )
    return FamilySamples(family, tuple(rows.items()))


pages = st.lists(families(), max_size=4).map(lambda found: Samples(tuple(found), 0))


@given(pages, st.data())
def test_b118_the_bytes_are_those_of_prometheus_client_with_and_without_memory(page, data):
    renderer = Renderer()
    wanted = reference(page)
    assert renderer.render(page) == wanted
    assert renderer.render(page) == wanted
    # Some series go, their values change, and they come back.
    fewer = Samples(
        tuple(
            FamilySamples(one.family, tuple((labels, data.draw(counts)) for labels, _ in one.rows[::2]))
            for one in page.families[::2]
        ),
        0,
    )
    assert renderer.render(fewer) == reference(fewer)
    assert renderer.render(page) == wanted


@given(values)
@example(-0.0)
@example(True)
@example(10**6 - 1)
@example(10**6)
@example(10**6 + 1)
@example(2**53 - 1)
@example(2**53 + 1)
@example(-(10**6))
@example(1e6)
@example(999_999.9999999999)
@example(1e16)
@example(9_999_999_999_999_998.0)
@example(1_234_567.5)
def test_numbers_are_written_as_prometheus_client_writes_them(value):
    assert number(value) == floatToGoString(value)


def test_zero_and_negative_zero_keep_their_own_text_in_either_order():
    assert [number(value) for value in (0, -0.0, 0.0, 0, -0.0)] == ["0.0", "-0.0", "0.0", "0.0", "-0.0"]


@given(st.lists(families(), max_size=4, unique_by=lambda one: one.family.name.removesuffix("_total")))
def test_both_pages_parse_to_the_samples_that_went_in(found):
    page = Renderer().render(Samples(tuple(found), 0))
    wanted = [
        (one.family.name, dict(zip(one.family.labels, labels, strict=True)), floatToGoString(value))
        for one in found
        for labels, value in one.rows
    ]
    for parsed in (parse_text(page.text.decode()), parse_openmetrics(page.openmetrics.decode())):
        assert [
            (sample.name, sample.labels, floatToGoString(sample.value))
            for family in parsed
            for sample in family.samples
        ] == wanted


# --- pages of a snapshot ------------------------------------------------------------------------------------------


def test_a_snapshots_page_is_that_of_prometheus_client_and_parses_strictly(snapshot, totals, build):
    found = samples(snapshot, totals=totals, build=build)
    page = Renderer().render(found)
    assert page == reference(found)
    parsed = {family.name: family for family in parse_openmetrics(page.openmetrics.decode())}
    assert len(parsed) == len(catalog.FAMILIES)
    for family in catalog.FAMILIES:
        one = parsed[family.name.removesuffix("_total")]
        assert (one.type, one.unit, one.documentation) == (family.type, family.unit, family.help)
    assert {family.name for family in parse_text(page.text.decode())} == set(parsed)


def test_b13_b119_no_family_mixes_series_with_and_without_a_pod(snapshot, totals, build):
    page = Renderer().render(samples(snapshot, totals=totals, build=build))
    levels = {
        family.name: {"pod" in sample.labels for sample in family.samples} for family in parse_text(page.text.decode())
    }
    assert all(len(level) == 1 for level in levels.values())
    assert {name for name, level in levels.items() if True in level} == {
        family.name.removesuffix("_total") for family in catalog.FAMILIES if "pod" in family.labels
    }


def test_a_family_without_samples_is_not_on_the_page_at_all(snapshot, totals, build):
    page = Renderer().render(samples(snapshot, totals=totals, build=build, values=False))
    for family in (catalog.DEVICE_MEMORY, catalog.CONTAINER_MEMORY_USED, catalog.CONDITION):
        assert family.name.encode() not in page.text
        assert family.name.encode() not in page.openmetrics
    assert page.openmetrics.endswith(b"\n# EOF\n")


def test_an_empty_page_is_complete_in_both_formats():
    assert Renderer().render(Samples((), 0)) == Rendered(b"", b"# EOF\n")


def test_joined_pages_end_once(snapshot, totals, build):
    page = Renderer().render(samples(snapshot, totals=totals, build=build))
    other = Rendered(b"# TYPE x gauge\nx 1\n", b"# TYPE x gauge\nx 1\n# EOF\n")
    both = joined(page, other)
    assert both.text == page.text + other.text
    assert both.openmetrics.count(b"# EOF\n") == 1
    assert "x" in {family.name for family in parse_openmetrics(both.openmetrics.decode())}
    assert joined() == Rendered(b"", b"# EOF\n")


def test_series_that_went_are_forgotten():
    family = catalog.SOURCE_UP
    renderer = Renderer()

    def render(cycle):
        rows = tuple(((f"{cycle:06d}-{series:04d}" + "x" * 500,), 1) for series in range(100))
        renderer.render(Samples((FamilySamples(family, rows),), 0))

    tracemalloc.start()
    try:
        render(0)
        after_one, _ = tracemalloc.get_traced_memory()
        for cycle in range(1, 51):
            render(cycle)
        after_many, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_many < 2 * after_one
