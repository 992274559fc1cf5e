"""What a receipt says: all caps of this pod were read back. A file that the pod's gate waits for. Pure.

Guarantees: whatever a file holds, reading it is a receipt or says why it is none.
"""

import json
from dataclasses import asdict, dataclass

from exporter.errors import Failure, Reason

RECEIPTS = "/run/podgpu/receipts"
MOST = 64 << 10  # bytes of a receipt

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """`applied` is in seconds since boot, `written` since the epoch. `containers` are those that have caps."""

    namespace: str
    pod: str
    uid: str
    containers: tuple[str, ...]
    boot: str
    applied: float
    written: float


def file_name(uid: str) -> str:
    """The name of a pod's receipt."""
    return f"{uid}.json"


def to_bytes(receipt: Receipt) -> bytes:
    """The content of a file."""
    return json.dumps({"version": _VERSION, **asdict(receipt)}, indent=1).encode() + b"\n"


def parse(content: bytes) -> Receipt | Failure:
    """A file's receipt."""
    try:
        said = json.loads(content)
        receipt = Receipt(
            namespace=_text(said["namespace"]),
            pod=_text(said["pod"]),
            uid=_text(said["uid"]),
            containers=_texts(said["containers"]),
            boot=_text(said["boot"]),
            applied=float(said["applied"]),
            written=float(said["written"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Failure(Reason.MALFORMED, f"no receipt: {type(error).__name__}: {error}")
    return receipt if said["version"] == _VERSION else Failure(Reason.MALFORMED, "a receipt of another version")


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"takes a list, not {value!r}")
    return tuple(_text(each) for each in value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"takes a text, not {value!r}")
    return value
