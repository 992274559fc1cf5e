"""The lines: what each says, and that it fits."""

from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.top.cells import width
from exporter.top.choice import Choice, chosen
from exporter.top.frame import once
from exporter.top.table import ASCII, Glyphs, Style, Table, meter, size
from exporter.top.view import Container, ContainerId, DomainId, Gpu, View

GIB = 1 << 30


def by_name(lines):
    return {line.text.split()[0]: line for line in lines if line.text.startswith("  ")}


def test_a_container_with_its_use_against_gpu_and_cap(node):
    found = by_name(Table(120).body(node, whole=True))
    over = found["team-a/over/main"]
    assert over.text.split()[1:] == [
        *("12.00G", "██········", "15%", "10.00G", "██████████", "120%", "2.00G", "25%", "40%", "25%"),
    ]
    assert over.style is Style.OVER
    assert found["team-a/near/main"].style is Style.NEAR
    assert found["team-a/near/main"].text.split()[7] == "0"  # not over, and known to be
    assert found["team-b/idle/main"].text.split()[1:] == ["0", "··········", "0%", "-", "-", "-", "-", "-", "part"]
    assert found["team-b/stranger/main"].text.split()[-2:] == ["0%", "none"]


def test_p2_what_is_not_known_is_a_dash_and_never_a_zero(node):
    found = by_name(Table(120).body(node, whole=True))
    assert found["team-c/unknown/main"].text.split()[1:] == ["-"] * 8
    lost = next(line for line in Table(120).body(node, whole=True) if line.text.startswith("GPU 1"))
    assert lost.text == "GPU 1  - of -  NOT READABLE  NVIDIA H200  GPU-b"


def test_gpus_have_their_use_and_the_memory_of_nobody(node):
    lines = Table(120).body(node, whole=True)
    assert [line.text for line in lines if line.style is Style.GPU] == [
        "GPU 0  31.00G of 80.00G  SM 50%  NVIDIA H200  GPU-a",
        "GPU 1  - of -  NOT READABLE  NVIDIA H200  GPU-b",
        "GPU 10 instance 3  0 of 10.00G  GPU-c",
    ]
    found = by_name(lines)
    assert found["(host)"].text.split()[1:] == ["1.00G", "█·········", "1%"]
    assert "(remainder)" not in found


def test_with_a_filter_only_gpus_with_a_match_are_there(node):
    lines = Table(120).body(chosen(node, Choice(text="idle")), whole=False)
    assert [line.text.split()[0] for line in lines] == ["GPU", "team-b/idle/main"]


def test_columns_without_room_go_as_a_whole_the_least_important_first():
    def titles(cells):
        return Table(cells).title().text.split()[1:]

    assert titles(120) == ["USED", "OF", "GPU", "CAP", "OF", "CAP", "OVER", "MPS", "SM", "GIVEN"]
    assert titles(95) == ["USED", "OF", "GPU", "CAP", "OVER", "MPS", "SM"]
    assert titles(80) == ["USED", "OF", "GPU", "CAP", "OVER", "MPS"]
    assert titles(45) == ["USED", "OVER"]
    assert titles(24) == []


def test_sizes():
    assert [size(n) for n in (None, 0, 5, 64 << 10, 400 << 20, GIB, 143.5 * GIB)] == [
        *("-", "0", "5", "64K", "400M", "1.00G", "143.50G"),
    ]


def test_bars_show_the_least_use_and_never_more_than_all():
    assert meter(0, ASCII) == "..........   0%"
    assert meter(0.001, ASCII) == "#.........   0%"
    assert meter(2.5, ASCII) == "########## 250%"
    assert meter(None, ASCII) == "-"


def test_everything_for_who_reads_no_screen(node):
    lines = once(node, Choice(), columns=100, now=1003.4, glyphs=ASCII, source="here")
    assert lines[0] == "podgpu top  3 GPUs  5 containers  3 s ago  by memory  here"
    assert lines[-2:] == ["sources that are down: kubelet", "conditions: over_attributed"]
    assert "".join(lines).isascii()


# --- laws ---------------------------------------------------------------------------------------------------------

texts = st.text(st.sampled_from("ab/\u4f60\u0301\x1b\n") | st.characters(codec="utf-8"), max_size=40)
amounts = st.none() | st.integers(0, 2**50)
ratios = st.none() | st.floats(0, 1000)
domains = st.builds(DomainId, texts, texts, texts)
containers = st.builds(
    Container,
    st.builds(ContainerId, texts, texts, texts, domains),
    *(amounts, amounts, amounts, amounts, ratios, ratios, ratios, st.none() | st.booleans()),
)
gpus = st.builds(
    Gpu,
    domains,
    texts,
    st.booleans(),
    amounts,
    st.dictionaries(st.sampled_from(["free", "host", "containers"]), st.integers(0, 2**50)),
    ratios,
    st.lists(containers, max_size=3).map(tuple),
)
views = st.builds(View, st.floats(0, 1e9), st.lists(gpus, max_size=2).map(tuple), st.lists(texts).map(tuple))


@for_all(views, st.integers(1, 150), texts, st.sampled_from([Glyphs(), ASCII]))
def test_every_line_fits_and_moves_no_cursor(view, cells, source, glyphs):
    for line in once(view, Choice(), columns=cells, now=0.0, glyphs=glyphs, source=source):
        assert width(line) <= cells
        assert line.isprintable()
