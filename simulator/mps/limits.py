"""How the control daemon reads and shows its numbers: as lenient, and as dangerous, as the real one.

What protocol 2 takes was read back from the real daemons of 535 and 550; the conformance tests hold both to it.
Protocol 3 is documented to be strict.
"""

import re
from collections.abc import Mapping, Sequence

LAST_DEVICE = 31  # ordinals above are ignored

_UINT64 = (1 << 64) - 1
_INTEGER = re.compile(r"\s*([+-]?\d+)")
_HEXADECIMAL = re.compile(r"\s*([+-]?0x[0-9a-f]+(?:\.[0-9a-f]*)?(?:p[+-]?\d+)?)", re.IGNORECASE)
_DECIMAL = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+)([GMK])")
_SHIFTS = {"G": 30, "M": 20, "K": 10}


def integer(text: str) -> tuple[int, str]:
    """A number at the start of a text, as C's strtol reads it, and what follows. No number is 0, and eats nothing."""
    match = _INTEGER.match(text)
    return (int(match[1]), text[match.end() :]) if match else (0, text)


def ordinal(text: str) -> int:
    """A device ordinal, or whatever a C int makes of the text; above LAST_DEVICE it names no device."""
    return integer(text)[0] & 0xFFFFFFFF


def pinned(text: str) -> tuple[int, int]:
    """The device and the bytes that `<dev> <value>` means to protocol 2. 0 bytes remove the limit.

    Whatever is no number is 0, and whatever is no G is M: bytes, K and fractions become something else, silently.
    """
    device, rest = integer(text)
    value, rest = integer(rest)
    value = _UINT64 if abs(value) > _UINT64 else value & _UINT64
    shift = 30 if rest[:1] in ("g", "G") else 20
    return device & 0xFFFFFFFF, (value << shift) & _UINT64


def shown(limit: int) -> str:
    """A pinned limit as protocol 2 shows it: whole GiB from one GiB on, whatever that cuts off."""
    return f"{limit >> 30}G" if limit >= 1 << 30 else f"{limit >> 20}M"


def percentage(text: str) -> float | None:
    """A percentage as C's strtod reads it; None is out of (0, 100], or no number."""
    match = _HEXADECIMAL.match(text)
    if match:
        value = float.fromhex(match[1])
    else:
        match = _DECIMAL.match(text)
        value = float(match[1]) if match else 0.0
    return value if 0.0 < value <= 100.0 else None


def amount(text: str) -> int | None:
    """Bytes of an amount of protocol 3, such as 4G, 512M or 1024K; None is not one."""
    match = _AMOUNT.fullmatch(text)
    return (int(match[1]) << _SHIFTS[match[2]]) or None if match else None


def amount_shown(limit: int | None) -> str:
    """A pinned limit as protocol 3 shows it. That it is exact where it is no whole GiB is a guess."""
    if limit is None:
        return "-"
    unit = next(unit for unit, shift in _SHIFTS.items() if limit % (1 << shift) == 0)
    return f"{limit >> _SHIFTS[unit]}{unit}"


def environment_limits(text: str) -> Mapping[str, int]:
    """What a client's CUDA_MPS_PINNED_DEVICE_MEM_LIMIT asks for, by ordinal or UUID as written: 0=1G,1=512MB."""
    found = {}
    for entry in text.split(","):
        device, equals, value = entry.strip().partition("=")
        limit = pinned(f"0 {value}")[1]
        if equals and limit:
            found[device] = limit
    return found


def latched_limit(
    limit: int | None, environment: Mapping[str, str], place: int, uuids: Sequence[str], *, drops_all: bool
) -> int | None:
    """The limit of a client on the GPU that it sees at a `place`, fixed when it connects. It can only lower `limit`.

    `uuids` are the GPUs that it sees. With `drops_all` (protocol 3) one entry that names any other GPU drops every
    limit, the daemon's too.
    """
    asked = environment_limits(environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
    visible = {str(number) for number in range(len(uuids))} | set(uuids)
    if drops_all and set(asked) - visible:
        return None
    own = asked.get(str(place), asked.get(uuids[place]))
    given = [value for value in (limit, own) if value is not None]
    return min(given, default=None)


def latched_percentage(value: float, environment: Mapping[str, str]) -> float:
    """The share of a client, fixed when it connects: its environment can only lower it."""
    own = percentage(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ""))
    return value if own is None else min(value, own)
