"""The enforcer's flags: those of the exporter where they say the same of a node, and its own.

Both commands have one scheme of environment variables. They run in containers of their own, so a variable that both
know, such as PODGPU_INTERVAL, is set for each.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from enforcer.overruns import Window
from enforcer.receipt import RECEIPTS
from exporter import flags
from exporter import settings as exporter
from exporter.caps.quantities import Fault, quantity
from exporter.flags import Flag, SettingsError, one_of, path, switch

PROG = "podgpu enforcer"
STATE = "/run/podgpu/enforcer"
PIPES = "/run/podgpu/mps"
PORT = 9837

# Bytes; below it come a server's and a namespace's name, and 107 is all that a socket's path can be.
_LONGEST_PIPES = 40
_MOST_SAMPLES = 60
# Of the interval: looks are a little early or late, and those that a changed pod causes come at any time.
_SPACING = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """What the enforcer was asked to do. `node` is how it reads the node, and how it serves its metrics.

    `mode` is off, audit or enforce; `mps` found or managed.
    """

    node: exporter.Settings
    mode: str
    mps: str
    managed_directory: str
    exclusive: bool
    state: str
    receipts: str
    window: Window


def _window(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= _MOST_SAMPLES:
        raise ValueError(f"takes how many samples of how many, such as 3/5, of {_MOST_SAMPLES} at most")
    return int(match[1]), int(match[2])


def _ratio(text: str) -> float:
    if not re.fullmatch(r"0|0?\.\d{1,6}", text, re.ASCII):
        raise ValueError("takes a part of the cap from 0 to below 1, such as 0.02")
    return float(text)


def _bytes(text: str) -> int:
    found = quantity(text, unit_required=True)
    if isinstance(found, Fault):
        raise ValueError("takes an amount of memory with a unit, 1Mi at least, such as 64Mi")  # noqa: TRY004
    return found


def _pipes(text: str) -> str:
    if not text.startswith("/") or len(text.encode("utf-8", "surrogateescape")) > _LONGEST_PIPES:
        raise ValueError(f"takes an absolute path of at most {_LONGEST_PIPES} bytes, so that sockets below it can be")
    return text


OWN_FLAGS: tuple[Flag, ...] = (
    Flag(
        "mode",
        "audit",
        "off, which asks for no caps and undoes what is ours; audit, which says and counts what it would do and "
        "changes nothing; or enforce",
        "MODE",
        one_of("off", "audit", "enforce"),
    ),
    Flag(
        "interval",
        "2s",
        "time from one look at the node to the next; an overrun is judged by as many samples",
        "DURATION",
        flags.duration,
    ),
    Flag(
        "mps",
        "found",
        "whose MPS control daemons are used: found, which are never started, ended or configured anew, or managed, "
        "which the enforcer starts and keeps",
        "WHOSE",
        one_of("found", "managed"),
    ),
    Flag(
        "mps.managed-directory",
        PIPES,
        "pipe directory of the daemons that the enforcer starts, the same here and on the node",
        "DIR",
        _pipes,
    ),
    Flag(
        "mps.exclusive",
        "",
        "with managed daemons, set GPUs to compute mode EXCLUSIVE_PROCESS, so that nobody can use them past MPS, and "
        "back when the enforcer gives them up",
        parse=switch,
        switch=True,
    ),
    Flag("path.state", STATE, "where the enforcer records what it has set, to undo it", "DIR", path),
    Flag("path.receipts", RECEIPTS, "where it tells pods' gates that their caps are in force", "DIR", path),
    Flag(
        "overrun.window",
        "3/5",
        "how many of how many of the last samples above a cap make an overrun, such as 3/5; it ends when a whole "
        "window of samples is at or under the cap",
        "K/N",
        _window,
    ),
    Flag("overrun.tolerance", "0.02", "part of a cap by which it may be exceeded", "RATIO", _ratio),
    Flag("overrun.tolerance-bytes", "64Mi", "amount by which any cap may be exceeded", "QUANTITY", _bytes),
    Flag(
        "pods.source",
        "auto",
        "where this node's pods and their annotations come from: kubelet (its Pods API), api (a watch of the API "
        "server), or auto: the first of these that there is",
        "SOURCE",
        one_of("auto", "kubelet", "api"),
    ),
)
_OWN = {flag.name for flag in OWN_FLAGS}
FLAGS: tuple[Flag, ...] = (
    *OWN_FLAGS,
    exporter.DEADLINE_FLAG,
    *exporter.web_flags(PORT),
    *(flag for flag in exporter.NODE_FLAGS if flag.name not in _OWN),
    *exporter.LOG_FLAGS,
)


def settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings that flags and environment give.

    Raises SettingsError, in one line, for an unknown flag or a value that can't be used.
    """
    description = "Holds each job of this node to the caps that its annotations ask for. By default it only says how."
    parsed = flags.parser(PROG, description, FLAGS).parse_args(list(arguments))
    values = flags.values_of(parsed, FLAGS, environment)
    if values["mps_exclusive"] and values["mps"] != "managed":
        raise SettingsError("--mps.exclusive: needs --mps=managed, or nothing could use the GPU")
    above, samples = values["overrun_window"]
    node = exporter.settings_from(_of_the_exporter() | values)
    tolerance, least = values["overrun_tolerance"], values["overrun_tolerance_bytes"]
    return Settings(
        node=node,
        mode=values["mode"],
        mps=values["mps"],
        managed_directory=values["mps_managed_directory"],
        exclusive=values["mps_exclusive"],
        state=values["path_state"],
        receipts=values["path_receipts"],
        window=Window(above, samples, tolerance, least, spacing=_SPACING * node.interval),
    )


def _of_the_exporter() -> dict[str, object]:
    """What the exporter's flags that this command does not have are by default."""
    chosen = flags.parser(PROG, "", exporter.FLAGS).parse_args([])
    return flags.values_of(chosen, exporter.FLAGS, {})
