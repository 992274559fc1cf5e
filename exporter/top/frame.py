"""What the screen shows, and what a key does to it. Pure: from one value to the next."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique

from exporter.top.choice import Choice, Sort, chosen
from exporter.top.table import Glyphs, Line, Style, Table
from exporter.top.view import View

_FIXED = 3  # lines that do not scroll: heading, titles, keys
_HELP = "q quit  m memory  c cap  o overrun  t MPS threads  s SM  n name  r reverse  / filter  up down page scroll"
_SORTS = {"m": Sort.MEMORY, "c": Sort.CAP, "o": Sort.OVERRUN, "t": Sort.THREADS, "s": Sort.SM, "n": Sort.NAME}
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)


@unique
class Key(StrEnum):
    """Keys that are not characters."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"
    OTHER = "other"


_KEYS = {
    **{f"\x1b{lead}A": Key.UP for lead in "[O"},
    **{f"\x1b{lead}B": Key.DOWN for lead in "[O"},
    **{f"\x1b{lead}H": Key.HOME for lead in "[O"},
    **{f"\x1b{lead}F": Key.END for lead in "[O"},
    "\x1b[5~": Key.PAGE_UP,
    "\x1b[6~": Key.PAGE_DOWN,
    "\x1b[1~": Key.HOME,
    "\x1b[4~": Key.END,
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x1b": Key.ESCAPE,
    "\x7f": Key.BACKSPACE,
    "\x08": Key.BACKSPACE,
}


@dataclass(frozen=True, slots=True)
class State:
    """What the user has asked for so far. `typing`: characters go to the filter."""

    choice: Choice = field(default_factory=Choice)
    typing: bool = False
    offset: int = 0  # lines scrolled down
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """The lines of a whole screen, from top to bottom, and how far its body may be scrolled."""

    lines: tuple[Line, ...]
    last_offset: int
    page: int  # lines of the body that are seen


def keys(received: bytes) -> list[str]:
    """The keys that were pressed: a character as itself, others as a Key."""
    found = []
    for sequence in _SEQUENCE.findall(received.decode(errors="replace")):
        key = _KEYS.get(sequence, sequence)
        found.append(key if isinstance(key, Key) or key.isprintable() else Key.OTHER)
    return found


def pressed(state: State, key: str, *, frame: Frame) -> State:
    """The state after a key, pressed while the frame was seen."""
    if state.typing:
        return _typed(state, key)
    if key == "q":
        return replace(state, ended=True)
    if key == "r":
        return replace(state, choice=replace(state.choice, reverse=not state.choice.reverse))
    if key == "/":
        return replace(state, typing=True)
    if key == Key.ESCAPE:
        return _filtered(state, "")
    if key in _SORTS:
        return replace(state, choice=replace(state.choice, sort=_SORTS[key]), offset=0)
    moves: dict[str, int] = {
        Key.UP: state.offset - 1,
        Key.DOWN: state.offset + 1,
        Key.PAGE_UP: state.offset - frame.page,
        Key.PAGE_DOWN: state.offset + frame.page,
        Key.HOME: 0,
        Key.END: frame.last_offset,
    }
    return replace(state, offset=max(0, min(moves.get(key, state.offset), frame.last_offset)))


def _typed(state: State, key: str) -> State:
    """A key while the filter is typed."""
    if key == Key.ENTER:
        return replace(state, typing=False)
    if key == Key.ESCAPE:
        return _filtered(replace(state, typing=False), "")
    if key == Key.BACKSPACE:
        return _filtered(state, state.choice.text[:-1])
    return state if isinstance(key, Key) else _filtered(state, state.choice.text + key)


def _filtered(state: State, text: str) -> State:
    return replace(state, choice=replace(state.choice, text=text), offset=0)


def framed(
    seen: View | str | None, state: State, *, size: tuple[int, int], now: float, glyphs: Glyphs, source: str
) -> Frame:
    """The screen of so many columns and lines. `seen` is a view, or what went wrong, or None before there is either.

    `now` is the Unix time, `source` where the view came from.
    """
    columns, height = size
    table = Table(max(1, columns), glyphs)
    body: list[Line] = []
    if isinstance(seen, View):
        body = [*table.problems(seen), *table.body(chosen(seen, state.choice), whole=state.choice.is_everything)]
    elif seen is not None:
        body = [table.wrong(seen)]
    page = max(0, height - _FIXED)
    last_offset = max(0, len(body) - page)
    offset = min(state.offset, last_offset)
    shown = body[offset : offset + page]
    lines = [
        table.fit(heading(seen, state.choice, now=now, source=source), Style.TITLE),
        table.title(),
        *shown,
        *[Line("")] * (page - len(shown)),
        table.fit(_prompt(state, hidden=len(body) - len(shown))),
    ]
    return Frame(tuple(lines[:height]), last_offset, page)


def once(seen: View, choice: Choice, *, columns: int, now: float, glyphs: Glyphs, source: str) -> Sequence[str]:
    """Everything, for who reads no screen."""
    table = Table(columns, glyphs)
    body = table.body(chosen(seen, choice), whole=choice.is_everything)
    head = (table.fit(heading(seen, choice, now=now, source=source)), table.title())
    return [line.text for line in (*head, *body, *table.problems(seen))]


def heading(seen: View | str | None, choice: Choice, *, now: float, source: str) -> str:
    """One line about what is seen."""
    parts = ["podgpu top"]
    if isinstance(seen, View):
        count = sum(len(gpu.containers) for gpu in chosen(seen, choice).gpus)
        parts += [_number(len(seen.gpus), "GPU"), _number(count, "container")]
        parts.append(f"{max(0.0, now - seen.timestamp):.0f} s ago")
    parts.append(f"by {choice.sort}{' reversed' if choice.reverse else ''}")
    parts += [f"namespace {choice.namespace}"] if choice.namespace else []
    parts += [f"filter {choice.text!r}"] if choice.text else []
    parts.append(source)
    return "  ".join(parts)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _prompt(state: State, *, hidden: int) -> str:
    if state.typing:
        return f"/{state.choice.text}_  (Enter: keep, Esc: all)"
    return f"{f'{hidden} more lines  ' if hidden else ''}{_HELP}"
