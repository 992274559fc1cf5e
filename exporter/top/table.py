"""A view as lines of text for a terminal of any width. Pure.

Guarantees: no line is wider than asked; what is not known is `-`, never 0; columns that have no room are left out as a
whole, the least important first, and a name that is too long is cut where one sees it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum, unique

from exporter.model import MemoryClass
from exporter.top.cells import cut, left, plain, right, width
from exporter.top.view import Container, Gpu, View

_BAR = 10  # cells
_GAP = 2
_NAME = 24  # cells that a name gets before a column is left out
_OTHERS = tuple(c for c in MemoryClass if c is not MemoryClass.CONTAINERS)
_NEAR_LIMIT = 0.9
_UNKNOWN = "-"


@unique
class Style(StrEnum):
    """How a line stands out, where the terminal has colours."""

    PLAIN = "plain"
    TITLE = "title"
    GPU = "gpu"
    FAINT = "faint"
    NEAR = "near"  # near its limit
    OVER = "over"  # over its limit
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Line:
    """One line, without an end."""

    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters beyond ASCII, or what stands for them."""

    full: str = "\u2588"
    empty: str = "\u00b7"
    ellipsis: str = "\u2026"


ASCII = Glyphs("#", ".", "~")


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cells: int
    text: Callable[[Container, Gpu, Glyphs], str]


_PERCENT = 5
_SIZE = 7
_COLUMNS = (
    _Column("USED", _SIZE, lambda c, _g, _s: size(c.used)),
    _Column("OF GPU", _BAR + _PERCENT, lambda c, g, s: meter(_ratio(c.used, g.capacity), s)),
    _Column("CAP", _SIZE, lambda c, _g, _s: size(c.limit)),
    _Column("OF CAP", _BAR + _PERCENT, lambda c, _g, s: meter(c.of_limit, s)),
    _Column("OVER", _SIZE, lambda c, _g, _s: size(c.overrun)),
    _Column("MPS", _PERCENT, lambda c, _g, _s: percent(c.threads)),
    _Column("SM", _PERCENT, lambda c, _g, _s: percent(c.sm)),
    _Column("GIVEN", _PERCENT, lambda c, _g, _s: given(c)),
)
_LEAST_IMPORTANT_FIRST = ("GIVEN", "OF CAP", "SM", "OF GPU", "MPS", "CAP", "OVER", "USED")


class Table:
    """The lines of views, for one width."""

    def __init__(self, cells: int, glyphs: Glyphs = Glyphs()) -> None:
        self._cells = cells
        self._glyphs = glyphs
        columns = list(_COLUMNS)
        for title in _LEAST_IMPORTANT_FIRST:
            self._name = cells - sum(column.cells + _GAP for column in columns)
            if self._name >= min(_NAME, cells):
                break
            columns = [column for column in columns if column.title != title]
        else:
            self._name = cells
        self._columns = tuple(columns)

    def title(self) -> Line:
        """The names of the columns."""
        titles = [right(column.title, column.cells) for column in self._columns]
        return self._line("  NAMESPACE/POD/CONTAINER", titles, Style.TITLE)

    def body(self, view: View, *, whole: bool) -> list[Line]:
        """The GPUs and who is on them. Not `whole`: only GPUs with a container, and only their containers."""
        lines = []
        for gpu in view.gpus:
            if whole or gpu.containers:
                lines.append(self._gpu(gpu))
                lines += [self._container(container, gpu) for container in gpu.containers]
            if whole:
                lines += self._others(gpu)
        return lines

    def problems(self, view: View) -> list[Line]:
        """What may be missing, and why."""
        lines = []
        if view.sources_down:
            lines.append(self.wrong(f"sources that are down: {', '.join(view.sources_down)}"))
        if view.conditions:
            lines.append(self.wrong(f"conditions: {', '.join(view.conditions)}"))
        return lines

    def wrong(self, text: str) -> Line:
        """A line that says what is wrong."""
        return self.fit(text, Style.WRONG)

    def fit(self, text: str, style: Style = Style.PLAIN) -> Line:
        """A line of free text."""
        return Line(cut(plain(text), self._cells, self._glyphs.ellipsis), style)

    def _gpu(self, gpu: Gpu) -> Line:
        instance = f" instance {gpu.id.gpu_instance}" if gpu.id.gpu_instance else ""
        parts = [f"GPU {gpu.id.gpu}{instance}", f"{size(gpu.used)} of {size(gpu.capacity)}"]
        parts += [] if gpu.up else ["NOT READABLE"]
        parts += [] if gpu.sm is None else [f"SM {percent(gpu.sm)}"]
        parts += [gpu.name] if gpu.name else []
        return self.fit("  ".join([*parts, gpu.id.gpu_uuid]), Style.GPU)

    def _container(self, container: Container, gpu: Gpu) -> Line:
        texts = [right(column.text(container, gpu, self._glyphs), column.cells) for column in self._columns]
        style = Style.PLAIN
        if container.overrun:
            style = Style.OVER
        elif (share := container.of_limit) is not None and share >= _NEAR_LIMIT:
            style = Style.NEAR
        return self._line(f"  {plain(container.id.name)}", texts, style)

    def _others(self, gpu: Gpu) -> Iterator[Line]:
        """The memory that is in no container, by class, where there is any."""
        for memory_class in _OTHERS:
            if amount := gpu.classes.get(memory_class):
                bar = meter(_ratio(amount, gpu.capacity), self._glyphs)
                known = {"USED": size(amount), "OF GPU": bar}
                texts = [right(known.get(column.title, ""), column.cells) for column in self._columns]
                yield self._line(f"  ({memory_class})", texts, Style.FAINT)

    def _line(self, name: str, texts: list[str], style: Style) -> Line:
        gap = " " * _GAP
        text = gap.join([left(name, self._name, self._glyphs.ellipsis), *texts])
        # A number wider than its column is shown whole where there is room, and else its line is cut where one sees it.
        return Line(
            text.rstrip() if width(text) <= self._cells else cut(text, self._cells, self._glyphs.ellipsis), style
        )


def size(amount: float | None) -> str:
    """Bytes for people: 23.40G, 512M, 64K, 0."""
    if amount is None:
        return _UNKNOWN
    for unit, bytes_of_unit, digits in (("G", 1 << 30, 2), ("M", 1 << 20, 0), ("K", 1 << 10, 0)):
        if amount >= bytes_of_unit:
            return f"{amount / bytes_of_unit:.{digits}f}{unit}"
    return f"{amount:.0f}"


def percent(ratio: float | None) -> str:
    """A ratio from 0 to 1 as a percentage."""
    return _UNKNOWN if ratio is None else f"{ratio:.0%}"


def meter(ratio: float | None, glyphs: Glyphs) -> str:
    """A bar and the percentage. Above 1 the bar is full."""
    if ratio is None:
        return _UNKNOWN
    filled = min(_BAR, max(round(ratio * _BAR), 1 if ratio > 0 else 0))
    return glyphs.full * filled + glyphs.empty * (_BAR - filled) + right(percent(ratio), _PERCENT)


def given(container: Container) -> str:
    """The share of slots that the kubelet gave the container; `part` where a scheduler gave it one; `none`."""
    if container.share is not None:
        return percent(container.share)
    return _UNKNOWN if container.allocated is None else "part" if container.allocated else "none"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
