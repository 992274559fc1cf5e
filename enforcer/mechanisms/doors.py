"""Doors: the one path by which a container reaches the pipe directory of its own namespace, and of no other.

A door is a relative link `.doors/<pod uid>/<container>` in the daemon's pipe directory. A pod mounts that folder with
the sub-path `.doors/$(POD_UID)/<container>`; the kubelet follows the link when the container starts, and sees to it
that it does not leave the volume. The link is made only when the namespace has its limits, and replaced as a whole.

Guarantees: nothing is made in, or removed from, a folder that is not ours alone, whatever a tenant put there; what is
no link is left, but for the empty folder that the kubelet makes when a container came before its door. It does not take
back what a running container has mounted already.
"""

import contextlib
import os
import re
from collections.abc import Iterator

from enforcer.mechanisms.folders import ForeignError, changing, opened
from enforcer.mechanisms.names import is_container, is_pod_uid
from enforcer.outcomes import Done
from exporter.errors import Failure, Reason

DOORS = ".doors"
_NAMESPACE = re.compile(r"(/[^\0]*)/([a-z0-9_]{1,64})/([a-z0-9_]{1,64})")


def open_door(uid: str, container: str, pipe_directory: str) -> Done | Failure:
    """Let a container's door lead to a namespace's pipe directory, and look where it leads."""
    place = _place(uid, container, pipe_directory)
    if isinstance(place, Failure):
        return place
    daemon, target = place
    path = f"{daemon}/{DOORS}/{uid}/{container}"
    try:
        namespace = os.stat(pipe_directory)
        with opened(daemon) as base, _made(DOORS, base) as doors, _made(uid, doors) as folder:
            _link(folder, container, target)
        leads = os.readlink(path) == target and os.path.samestat(os.stat(path), namespace)
    except ForeignError as error:
        return Failure(error.problem.reason, f"{path}: {error.problem.detail}")
    except FileNotFoundError as error:
        return Failure(Reason.MISSING, f"{error.filename}: {error.strerror}")
    except OSError as error:
        return changing(path, error)
    return Done(f"{path} leads to {pipe_directory}") if leads else Failure(Reason.FOREIGN, f"{path} leads elsewhere")


def close_door(uid: str, container: str, pipe_directory: str) -> Done | Failure:
    """Remove a container's door, wherever it leads, and the pod's folder with its last one."""
    place = _place(uid, container, pipe_directory)
    if isinstance(place, Failure):
        return place
    path = f"{place[0]}/{DOORS}/{uid}/{container}"
    try:
        with opened(place[0]) as base, opened(DOORS, within=base) as doors:
            with opened(uid, within=doors) as folder, contextlib.suppress(FileNotFoundError):
                if _is_link(folder, container):
                    os.unlink(container, dir_fd=folder)
            with contextlib.suppress(OSError):  # doors of other containers are in it
                os.rmdir(uid, dir_fd=doors)
    except FileNotFoundError:
        pass  # no door is what is wanted
    except ForeignError as error:
        return Failure(error.problem.reason, f"{path}: {error.problem.detail}")
    except OSError as error:
        return changing(path, error)
    return Failure(Reason.UNWRITABLE, f"{path} is still there") if os.path.islink(path) else Done(f"no {path}")


def leads_to(uid: str, container: str, pipe_directory: str) -> str:
    """Where the door that was opened to a pipe directory leads now; empty where nothing useful is there."""
    place = _place(uid, container, pipe_directory)
    if isinstance(place, Failure):
        return ""
    path = f"{place[0]}/{DOORS}/{uid}/{container}"
    try:
        target = os.readlink(path)
    except OSError:
        return ""
    return pipe_directory if target == place[1] else os.path.normpath(f"{os.path.dirname(path)}/{target}")


def _place(uid: str, container: str, pipe_directory: str) -> tuple[str, str] | Failure:
    """The daemon's pipe directory, and what the link holds."""
    match = _NAMESPACE.fullmatch(pipe_directory)
    if not is_pod_uid(uid) or not is_container(container):
        return Failure(Reason.MALFORMED, f"not a pod's uid and a container's name: {uid!r}, {container!r}")
    if match is None or "/../" in f"{pipe_directory}/":
        return Failure(Reason.MALFORMED, f"not the pipe directory of a namespace: {pipe_directory!r}")
    return match[1], f"../../{match[2]}/{match[3]}"


@contextlib.contextmanager
def _made(name: str, within: int) -> Iterator[int]:
    """A folder in another one, made if it is missing. Raises OSError, ForeignError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=within)
    with opened(name, within=within) as folder:
        os.fchmod(folder, 0o755)  # the umask, or the kubelet, may have made it less
        yield folder


def _link(folder: int, name: str, target: str) -> None:
    """Put a link into the place of another, or of an empty folder. Raises OSError."""
    fresh = ".new"  # no container's name begins with a dot
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.rmdir(name, dir_fd=folder)
    os.symlink(target, fresh, dir_fd=folder)
    os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)


def _is_link(folder: int, name: str) -> bool:
    """Whether there is a link of that name. Raises FileNotFoundError."""
    try:
        os.readlink(name, dir_fd=folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        return False
    return True
