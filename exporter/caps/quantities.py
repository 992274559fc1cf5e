"""Numbers as annotations and policies write them: Kubernetes quantities, MiB, ratios, counts.

Guarantees that arithmetic is exact, that text of any length and alphabet costs next to nothing (lengths, digits and
exponents are bounded before any number is made), and that what is refused comes with words that say what to write.
Digits are ASCII digits.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from exporter.caps.requests import MIB, ErrorReason

_LONGEST = 32  # characters of a number
_MOST_BYTES = (1 << 63) - 1  # as in Kubernetes
_BINARY = {f"{letter}i": 1 << (10 * power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?(?:[eE](?P<exponent>[+-]?\d{1,2})|(?P<unit>[KMGTPE]i|[numkMGTPE]|))",
    re.ASCII,
)
_RATIO = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?", re.ASCII)
_ALMOST = re.compile(
    r"\s*(?P<number>\d{1,15}(?:\.\d{1,9})?)\s*(?P<letter>[kmgtpe])i?(?:b|bytes?)?\s*", re.ASCII | re.IGNORECASE
)
_COUNT = re.compile(r"\d{1,15}", re.ASCII)


class Fault(NamedTuple):
    """Why a value can't be used. `problem` goes on from the key: "... is '8GB', which ...; write 8Gi"."""

    reason: ErrorReason
    problem: str


def quantity(text: str, *, unit_required: bool = False) -> int | Fault:
    """Bytes of a Kubernetes quantity such as 8Gi, 512Mi, 1.5G or 1e9, rounded up to whole bytes; at least 1 MiB."""
    found = _number(_QUANTITY, text)
    if found is None:
        return Fault(ErrorReason.MALFORMED, f"is {shown(text)}, which is no Kubernetes quantity; write {_better(text)}")
    unit, exponent = found["unit"] or "", int(found["exponent"] or 0)
    multiplier = Fraction(_BINARY[unit]) if unit in _BINARY else _DECIMAL[unit] * Fraction(10) ** exponent
    exact = _value(found) * multiplier
    size = -(-exact.numerator // exact.denominator)
    bare = not unit and found["exponent"] is None
    if bare and (unit_required or 0 < size < MIB):
        return Fault(ErrorReason.UNIT_MISSING, f"is {shown(text)}, which has no unit; write {text}Mi or {text}Gi")
    if not unit and unit_required:
        return Fault(ErrorReason.UNIT_MISSING, f"is {shown(text)}, which has no unit; write it with one, such as 8Gi")
    if size < MIB:
        hint = "; the unit m means thousandths" if unit == "m" else ""
        return Fault(ErrorReason.OUT_OF_RANGE, f"is {shown(text)}, less than the least cap of 1Mi{hint}; write more")
    if size > _MOST_BYTES:
        return Fault(ErrorReason.OUT_OF_RANGE, f"is {shown(text)}, more memory than can be; write less")
    return size


def mebibytes(text: str) -> int | Fault:
    """Bytes of a whole number of MiB, written without a unit."""
    if len(text) <= _LONGEST and _COUNT.fullmatch(text):
        size = int(text) * MIB
        if 0 < size <= _MOST_BYTES:
            return size
        return Fault(ErrorReason.OUT_OF_RANGE, f"is {shown(text)}; write a whole number of MiB above 0, such as 4096")
    size_with_unit = quantity(text.strip() if len(text) <= _LONGEST else text)
    if isinstance(size_with_unit, int) and size_with_unit % MIB == 0:
        return Fault(
            ErrorReason.UNIT_NOT_ALLOWED,
            f"is {shown(text)}, but takes MiB without a unit; write {size_with_unit // MIB}",
        )
    if re.fullmatch(r"-\d{1,15}", text, re.ASCII):
        return Fault(ErrorReason.OUT_OF_RANGE, f"is {shown(text)}; write a whole number of MiB above 0, such as 4096")
    return Fault(ErrorReason.MALFORMED, f"is {shown(text)}; write a whole number of MiB without a unit, such as 4096")


def ratio(text: str, *, most_digits: int = 20, one: bool = False) -> Fraction | Fault:
    """A decimal above 0 and below 1 (`one`: or 1) with at most `most_digits` digits after the point."""
    found = _number(_RATIO, text)
    if found is None:
        if len(text) <= _LONGEST and text.endswith("%"):
            return Fault(ErrorReason.UNIT_NOT_ALLOWED, f"is {shown(text)}; write a decimal such as 0.5 for 50 %")
        return Fault(ErrorReason.MALFORMED, f"is {shown(text)}, which is no decimal number; write one such as 0.5")
    value = _value(found)
    if value <= 0 or value > 1 or (value == 1 and not one):
        bound = "at most 1" if one else "below 1"
        return Fault(ErrorReason.OUT_OF_RANGE, f"is {shown(text)}; write a decimal above 0 and {bound}, such as 0.5")
    if len(found["part"] or "") > most_digits:
        return Fault(ErrorReason.MALFORMED, f"is {shown(text)}; write at most {most_digits} digits after the point")
    return value


def count(text: str, *, most: int) -> int | Fault:
    """A whole number from 1 to `most`."""
    if len(text) <= _LONGEST and _COUNT.fullmatch(text):
        if 1 <= int(text) <= most:
            return int(text)
        return Fault(ErrorReason.OUT_OF_RANGE, f"is {shown(text)}; write a whole number from 1 to {most}")
    if len(text) <= _LONGEST and text.endswith("%"):
        return Fault(ErrorReason.UNIT_NOT_ALLOWED, f"is {shown(text)}; write the number alone, such as 50")
    return Fault(ErrorReason.MALFORMED, f"is {shown(text)}; write a whole number from 1 to {most}")


def quantity_text(size: int) -> str:
    """The shortest exact Kubernetes quantity with a binary unit; plain bytes where none divides."""
    for unit, multiplier in reversed(_BINARY.items()):
        if size % multiplier == 0 and size >= multiplier:
            return f"{size // multiplier}{unit}"
    return str(size)


def ratio_text(value: Fraction) -> str:
    """A ratio that a decimal can write, as that decimal, exact and without trailing zeros."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    if digits == 0:
        return str(value.numerator)
    scaled = str(int(value * 10**digits)).rjust(digits + 1, "0")
    return f"{scaled[:-digits]}.{scaled[-digits:]}"


def shown(text: str, *, most: int = 40) -> str:
    """Somebody else's text, quoted, short and in printable ASCII, for a sentence or a log line."""
    return ascii(text if len(text) <= most else text[: most - 3] + "...")


def _number(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = pattern.fullmatch(text) if len(text) <= _LONGEST else None
    return found if found is not None and (found["whole"] or found["part"]) else None


def _value(found: re.Match[str]) -> Fraction:
    part = found["part"] or ""
    value = Fraction(int((found["whole"] or "") + part), 10 ** len(part))
    return -value if found["sign"] == "-" else value


def _better(text: str) -> str:
    """What the author may have meant by an almost right quantity; else an example."""
    almost = _ALMOST.fullmatch(text) if len(text) <= _LONGEST else None
    return f"{almost['number']}{almost['letter'].upper()}i" if almost else "one such as 8Gi"
