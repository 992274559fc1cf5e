"""Text in the cells of a terminal: how wide it is, cut and padded to a width. Pure.

Guarantees that what comes out is as wide as it was asked to be, and has no character that a terminal would obey.
"""

import unicodedata

_INVISIBLE = ("Mn", "Me", "Cf")  # marks upon the character before, and joiners


def plain(text: str) -> str:
    """The text with each control character, and whatever else cannot be printed, as U+FFFD."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def width(text: str) -> int:
    """Cells that the text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def cut(text: str, cells: int, ellipsis: str = "\u2026") -> str:
    """The text in at most so many cells; where something is missing, an ellipsis ends it."""
    if width(text) <= cells:
        return text
    room = cells - width(ellipsis)
    if room < 0:
        return ""
    kept = []
    for character in text:
        room -= _cells(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ellipsis


def left(text: str, cells: int, ellipsis: str = "\u2026") -> str:
    """The text at the left of exactly so many cells."""
    found = cut(text, cells, ellipsis)
    return found + " " * (cells - width(found))


def right(text: str, cells: int) -> str:
    """The text at the right of so many cells, or of more where it needs them: a number that is cut is another."""
    return " " * (cells - width(text)) + text


def _cells(character: str) -> int:
    if unicodedata.category(character) in _INVISIBLE:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
