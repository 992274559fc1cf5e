"""Which format and which encoding a client gets, from its Accept and Accept-Encoding headers.

Guarantees an answer for every header value, however broken: whoever asks for something that we do not have gets plain
text, because a scraper that can be answered should be. Quality values decide first, then how exactly the client named
the format, then the older format.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, unique

_QUALITY = re.compile(r"(?:0(?:\.\d*)?|1(?:\.0*)?)", re.ASCII)


@unique
class Format(Enum):
    """The exposition formats that a page holds."""

    TEXT = ("text", "plain", "0.0.4")
    OPENMETRICS = ("application", "openmetrics-text", "1.0.0")

    @property
    def content_type(self) -> str:
        """The value of the Content-Type header."""
        main, sub, version = self.value
        return f"{main}/{sub}; version={version}; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Item:
    """One element of an Accept-like header. `quality` is 0 where the client refuses it or wrote nonsense."""

    name: str
    version: str
    quality: float


def choose_format(accept: str) -> Format:
    """The format for an Accept header; an empty header means text."""
    ranges = list(_items(accept))
    text = _rank(ranges, Format.TEXT)
    openmetrics = _rank(ranges, Format.OPENMETRICS)
    return Format.OPENMETRICS if openmetrics[0] > 0 and openmetrics > text else Format.TEXT


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a client that sent this Accept-Encoding header is to get gzip."""
    qualities: dict[str, float] = {}
    for item in _items(accept_encoding):
        name = "gzip" if item.name == "x-gzip" else item.name
        qualities[name] = max(item.quality, qualities.get(name, 0.0))
    gzip = qualities.get("gzip", qualities.get("*", 0.0))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def _rank(ranges: list[_Item], offered: Format) -> tuple[float, int]:
    """Quality and exactness of the most exact range that covers `offered`."""
    main, sub, version = offered.value
    exactness = {"*/*": 1, f"{main}/*": 2, f"{main}/{sub}": 3}
    best, quality = 0, 0.0
    for item in ranges:
        exact = exactness.get(item.name, 0)
        if exact == 0 or item.version not in ("", version):
            continue
        if exact == 3 and item.version:
            exact = 4
        if exact > best or (exact == best and item.quality > quality):
            best, quality = exact, item.quality
    return quality, best


def _items(header: str) -> Iterator[_Item]:
    for element in header.split(","):
        name, *parameters = (part.strip().lower() for part in element.split(";"))
        if not name:
            continue
        version, quality = "", 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                quality = float(value.strip()) if _QUALITY.fullmatch(value.strip()) else 0.0
            elif key.strip() == "version":
                version = value.strip().strip('"')
        yield _Item(name, version, quality)
