"""Keys and frames: the whole of what the user can do, without a terminal."""

from dataclasses import replace

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.top.cells import width
from exporter.top.choice import Choice, Sort
from exporter.top.frame import Key, State, framed, keys, pressed
from exporter.top.table import Glyphs
from exporter.top.view import View

EMPTY = View(0.0, ())


def frame(seen=EMPTY, state=None, size=(80, 24)):
    return framed(seen, state or State(), size=size, now=1001.0, glyphs=Glyphs(), source="there")


def after(received, *, state=None, seen=EMPTY, size=(80, 24)):
    state = state or State()
    for key in keys(received):
        state = pressed(state, key, frame=frame(seen, state, size))
    return state


@pytest.mark.parametrize(
    ("key", "sort"),
    [(b"m", "memory"), (b"c", "cap"), (b"o", "overrun"), (b"t", "threads"), (b"s", "sm"), (b"n", "name")],
)
def test_letters_sort(key, sort):
    assert after(key).choice == Choice(Sort(sort))


def test_other_keys_of_the_help():
    assert after(b"r").choice.reverse
    assert not after(b"rr").choice.reverse
    assert after(b"q").ended
    assert after(b"\x1b[15~xyz!").choice == Choice()


def test_a_filter_is_typed_kept_and_dropped():
    typing = after(b"/qn")
    assert (typing.typing, typing.choice.text, typing.ended) == (True, "qn", False)
    assert after(b"\x7f\x7fllm\r", state=typing) == State(Choice(text="llm"))
    assert after("/\u00e9\x1b[A\r".encode()).choice.text == "\u00e9"
    assert after(b"\x1b", state=typing) == State()
    assert after(b"/llm\r\x1b") == State()


def test_the_screen_is_full_and_says_what_is_seen(node):
    shown = frame(node, size=(100, 20)).lines
    assert len(shown) == 20
    assert shown[0].text == "podgpu top  3 GPUs  5 containers  1 s ago  by memory  there"
    assert shown[1].text.startswith("  NAMESPACE/POD/CONTAINER")
    assert shown[2].text == "sources that are down: kubelet"
    assert shown[-1].text.startswith("q quit")


def test_scrolling_ends_where_the_lines_do(node):
    size = (100, 8)  # five lines of fourteen are seen
    last = frame(node, size=size).last_offset
    assert last > 5

    def offset(received, start=0):
        return after(received, state=State(offset=start), seen=node, size=size).offset

    assert offset(b"\x1b[B\x1b[B\x1bOA") == 1
    assert offset(b"\x1b[A") == 0
    assert offset(b"\x1b[6~") == 5
    assert offset(b"\x1b[F") == offset(b"\x1b[6~" * 9) == last
    assert offset(b"\x1b[5~", start=last) == last - 5
    assert offset(b"\x1b[H", start=last) == 0
    assert offset(b"n", start=last) == 0
    bottom = frame(node, State(offset=last), size)
    assert bottom.lines[-2].text.startswith("  (free)")
    assert bottom.lines[-1].text.startswith(f"{last} more lines")
    # Where the lines have become fewer, the last ones are seen.
    assert frame(node, State(offset=999), size) == bottom


def test_what_went_wrong_takes_the_place_of_numbers(node):
    shown = [line.text for line in frame("http://x: refused", size=(60, 6)).lines]
    assert shown[2] == "http://x: refused"
    assert "containers" not in shown[0]
    assert len(frame(None).lines) == 24


states = st.builds(
    State,
    st.builds(Choice, st.sampled_from(Sort), st.booleans(), st.text(max_size=5)),
    st.booleans(),
    st.integers(0, 99),
)


@for_all(states, st.tuples(st.integers(1, 130), st.integers(1, 40)), st.booleans())
def test_a_frame_has_as_many_lines_as_the_screen_and_each_fits(node_of_this_test, state, size, is_wrong):
    shown = framed(
        "wrong" * 40 if is_wrong else node_of_this_test, state, size=size, now=0.0, glyphs=Glyphs(), source="x"
    )
    assert len(shown.lines) == size[1]
    assert all(width(line.text) <= size[0] for line in shown.lines)


@pytest.fixture(scope="module")
def node_of_this_test():
    return replace(EMPTY, sources_down=tuple(f"source-{n}" for n in range(40)))


@for_all(st.binary(max_size=20))
def test_no_bytes_are_too_strange_for_a_key(received):
    state = after(received)
    assert state.offset == 0
    assert state.choice.text.isprintable()
    for key in keys(received):
        assert isinstance(key, Key) or len(key) == 1
