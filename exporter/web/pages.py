"""The finished bytes of one snapshot, and the place where the sampler leaves them for the scrapes.

Everything that costs time, rendering and compressing, is done once per snapshot by whoever publishes. Guarantees that
a response is made of one page, whatever is published meanwhile: pages are frozen and swapped as a whole. Keeps one
page and no history.
"""

import gzip
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

# Level 1 shrinks exposition text nearly as far as level 9, at a quarter of the time.
_GZIP_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Page:
    """One snapshot in both formats, plain and compressed."""

    text: bytes
    text_gzip: bytes
    openmetrics: bytes
    openmetrics_gzip: bytes

    @classmethod
    def of(cls, *, text: bytes, openmetrics: bytes) -> "Page":
        """Compress both formats; the result depends on nothing but the two arguments."""
        return cls(
            text=text,
            text_gzip=_compress(text),
            openmetrics=openmetrics,
            openmetrics_gzip=_compress(openmetrics),
        )


@dataclass(frozen=True, slots=True)
class _Published:
    page: Page
    stale: Page
    until: float


class PageStore:
    """Holds the current page. One thread publishes, another reads; neither ever waits for the other."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._published: _Published | None = None

    def publish(self, page: Page, *, stale: Page | None = None, lifetime: float = math.inf) -> None:
        """Make `page` the one that the next request gets; responses under way keep theirs.

        After `lifetime` seconds without another page, requests get `stale` instead: old values must not pass for new.
        """
        self._published = _Published(page, stale if stale is not None else page, self._monotonic() + lifetime)

    def current(self) -> Page | None:
        """The page for a request of now, or None before the first."""
        published = self._published
        if published is None:
            return None
        return published.page if self._monotonic() <= published.until else published.stale


def _compress(data: bytes) -> bytes:
    # Without a time stamp equal pages stay equal bytes.
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)
