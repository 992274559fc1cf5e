"""Writes samples as Prometheus text 0.0.4 and OpenMetrics 1.0.0.

prometheus_client's encoder spends tens of milliseconds on a page of a shared node, nearly all of it on label text
that was the same in the last cycle. This one remembers that text, and writes the sample lines once for both formats,
in which they are the same.

Guarantees: the bytes are those of prometheus_client's encoders for the same families. What is remembered is what the
last page used, so series that come and go leave nothing behind.

It will not check its input: label values are valid Unicode and a family has samples, as `exporter.metrics.samples`
makes them. So a family without samples is not on the page, not even with HELP and TYPE (prometheus_client would print
those). A Renderer belongs to one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from exporter.metrics.catalog import Family
from exporter.metrics.samples import Samples

_EOF = b"# EOF\n"
_float_text: Callable[[float], str] = floatToGoString  # which has no types of its own
_EXACT_INTEGERS = 2**53  # below it a float holds each integer, and its repr has no exponent


@dataclass(frozen=True, slots=True)
class Rendered:
    """One page in both formats, each complete; the OpenMetrics page ends with its `# EOF`."""

    text: bytes
    openmetrics: bytes


class Renderer:
    """Renders page after page, remembering the label text of the last one."""

    def __init__(self) -> None:
        self._series: dict[Family, dict[tuple[str, ...], str]] = {}

    def render(self, samples: Samples) -> Rendered:
        """The page of these samples."""
        text: list[bytes] = []
        openmetrics: list[bytes] = []
        used: dict[Family, dict[tuple[str, ...], str]] = {}
        for found in samples.families:
            family, rows = found.family, found.rows
            known = self._series.get(family, {})
            series = {labels: known.get(labels) or _series(family, labels) for labels, _ in rows}
            used[family] = series
            body = "".join([f"{series[labels]}{number(value)}\n" for labels, value in rows]).encode()
            text += (_text_header(family).encode(), body)
            openmetrics += (_openmetrics_header(family).encode(), body)
        self._series = used
        return Rendered(b"".join(text), b"".join((*openmetrics, _EOF)))


def joined(*pages: Rendered) -> Rendered:
    """One page of several whose families differ."""
    return Rendered(
        b"".join(page.text for page in pages),
        b"".join((*(page.openmetrics.removesuffix(_EOF) for page in pages), _EOF)),
    )


def number(value: float) -> str:
    """The value as prometheus_client writes it."""
    return _integer(value) if type(value) is int else _float_text(value)


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
