"""What may become the name of a file. Pure.

Guarantees: what passes is one segment of a path that names neither a folder above nor a hidden file, whoever wrote it.
"""

import re

_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", re.ASCII | re.IGNORECASE)
_CONTAINER = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


def is_pod_uid(text: str) -> bool:
    """Whether a text is a pod's uid: a UUID, or for pods from files 32 hexadecimal digits."""
    return _UID.fullmatch(text) is not None


def is_container(text: str) -> bool:
    """Whether a text is a container's name (a DNS label)."""
    return _CONTAINER.fullmatch(text) is not None
