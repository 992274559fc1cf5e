"""Writes samples as Prometheus text 0.0.4 and OpenMetrics 1.0.0.

prometheus_client's encoder spends tens of milliseconds on a page of a shared node, nearly all of it on label text
that was the same in the last cycle. This one remembers that text, does not write a family again whose samples are those
of the last cycle, and writes the sample lines once for both formats, in which they are the same.

Guarantees: the bytes are those of prometheus_client's encoders for the same families. What is remembered is what the
last page used, so series that come and go leave nothing behind.

It will not check its input: label values are valid Unicode, no value is -0.0 (which equals 0.0, and is other text), and
a family has samples, as `exporter.metrics.samples` makes them. So a family without samples is not on the page, not even
with HELP and TYPE (prometheus_client would print those). A Renderer belongs to one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from exporter.metrics.catalog import Family
from exporter.metrics.samples import Row, Samples

_EOF = b"# EOF\n"
_float_text: Callable[[float], str] = floatToGoString  # which has no types of its own
_EXACT_INTEGERS = 2**53  # below it a float holds each integer, and its repr has no exponent
_EXPONENTS = tuple(f"e+{digits - 1:02d}" for digits in range(1, 18))


@dataclass(frozen=True, slots=True)
class Rendered:
    """One page in both formats, each complete; the OpenMetrics page ends with its `# EOF`."""

    text: bytes
    openmetrics: bytes


@dataclass(frozen=True, slots=True)
class _Written:
    """A family as the last page had it."""

    rows: tuple[Row, ...]
    series: dict[tuple[str, ...], str]  # label values -> the start of the sample line
    body: bytes


_NOTHING_WRITTEN = _Written((), {}, b"")


class Renderer:
    """Renders page after page, remembering the label text of the last one."""

    def __init__(self) -> None:
        self._last: dict[Family, _Written] = {}

    def render(self, samples: Samples) -> Rendered:
        """The page of these samples."""
        text: list[bytes] = []
        openmetrics: list[bytes] = []
        written: dict[Family, _Written] = {}
        for found in samples.families:
            family = found.family
            last = self._last.get(family, _NOTHING_WRITTEN)
            written[family] = now = last if last.rows == found.rows else _write(family, found.rows, last.series)
            text += (_text_header(family).encode(), now.body)
            openmetrics += (_openmetrics_header(family).encode(), now.body)
        self._last = written
        return Rendered(b"".join(text), b"".join((*openmetrics, _EOF)))


def _write(family: Family, rows: tuple[Row, ...], known: dict[tuple[str, ...], str]) -> _Written:
    series = {labels: known.get(labels) or _series(family, labels) for labels, _ in rows}
    body = "".join([f"{series[labels]}{number(value)}\n" for labels, value in rows])
    return _Written(rows, series, body.encode())


def joined(*pages: Rendered) -> Rendered:
    """One page of several whose families differ."""
    return Rendered(
        b"".join(page.text for page in pages),
        b"".join((*(page.openmetrics.removesuffix(_EOF) for page in pages), _EOF)),
    )


def number(value: float) -> str:
    """The value as prometheus_client writes it."""
    if type(value) is int:
        return _integer(value)
    if type(value) is float and 1e6 <= value < 1e16:  # what integrals are: written here, at half the cost
        whole, _, rest = repr(value).partition(".")
        return f"{whole[0]}.{whole[1:]}{rest}".rstrip("0.") + _EXPONENTS[len(whole) - 1]
    return _float_text(value)


@lru_cache(maxsize=4096)  # most values are the integers of the last cycle; floats stay out, because 0.0 equals -0.0
def _integer(value: int) -> str:
    """The same text as for the float of it, reached sooner."""
    if not 0 <= value < _EXACT_INTEGERS:
        return _float_text(value)
    digits = str(value)
    if len(digits) <= 6:
        return f"{digits}.0"
    mantissa = f"{digits[0]}.{digits[1:]}".rstrip("0.")
    return f"{mantissa}e+{len(digits) - 1:02d}"


def _series(family: Family, labels: tuple[str, ...]) -> str:
    """The start of a sample line, up to the value. Labels are sorted by name."""
    if not labels:
        return f"{family.name} "
    pairs = sorted(zip(family.labels, labels, strict=True))
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{family.name}{{{inside}}} "


def _text_header(family: Family) -> str:
    documentation = family.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {family.name} {documentation}\n# TYPE {family.name} {family.type}\n"


def _openmetrics_header(family: Family) -> str:
    """OpenMetrics names a counter without its `_total`, escapes quotes in the help text, and declares the unit."""
    name = family.name.removesuffix("_total") if family.type == "counter" else family.name
    unit = f"# UNIT {name} {family.unit}\n" if family.unit else ""
    return f"# HELP {name} {_escaped(family.help)}\n# TYPE {name} {family.type}\n{unit}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
