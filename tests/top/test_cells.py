"""How wide text is on a terminal."""

import pytest
from hypothesis import example
from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.top.cells import cut, left, plain, right, width

# Wide, combining, invisible and dangerous characters are frequent.
texts = st.text(st.sampled_from("ab\u4f60\uff21e\u0301\u200d\U0001f600\x1b\n\x9b\u202e") | st.characters(codec="utf-8"))


@pytest.mark.parametrize(
    ("text", "cells"), [("abc", 3), ("\u4f60\u597d", 4), ("e\u0301", 1), ("\U0001f600", 2), ("", 0)]
)
def test_width(text, cells):
    assert width(text) == cells


def test_what_is_cut_ends_with_an_ellipsis():
    assert cut("research/llm", 12) == "research/llm"
    assert cut("research/llm", 9) == "research\u2026"
    assert cut("\u4f60\u597d\u4f60", 4) == "\u4f60\u2026"  # a wide character has no half
    assert cut("abc", 2, "~") == "a~"
    assert cut("abc", 0) == ""


def test_a_number_is_never_cut():
    assert right("123.45G", 4) == "123.45G"
    assert right("1", 4) == "   1"


@for_all(texts, st.integers(0, 20))
@example("\u4f60\u4f60", 3)
def test_cells_are_as_many_as_asked_for(text, cells):
    assert width(cut(text, cells)) <= cells
    assert width(left(text, cells)) == cells
    if width(text) <= cells:
        assert cut(text, cells) == text


@for_all(texts)
def test_nothing_that_a_terminal_obeys_is_left(text):
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)
