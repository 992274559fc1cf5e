"""Which boot of the machine this is: limits, daemons and pods' control groups do not outlive it."""

import re
from pathlib import Path

from exporter.errors import Failure, Reason

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # the machine's, in every container alike
_FORM = re.compile(r"[0-9a-f-]{36}", re.ASCII)


def boot_id(path: Path = BOOT_ID) -> str | Failure:
    """The random id of this boot."""
    try:
        text = path.read_text("ascii", "replace").strip()
    except OSError as error:
        return Failure(Reason.UNREADABLE, f"{path}: {error.strerror}")
    return text if _FORM.fullmatch(text) else Failure(Reason.MALFORMED, f"{path} has no boot id: {text[:80]!r}")
