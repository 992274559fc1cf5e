"""The command `podgpu`: picks the program and reports a wrong flag in one line."""

import difflib
import os
import sys
from collections.abc import Callable, Sequence

from exporter import version
from exporter.settings import SettingsError, settings

_USAGE = """\
usage: podgpu COMMAND [FLAG...]

GPU memory of every container on a shared-GPU Kubernetes node.

commands:
  exporter   read this node and serve its metrics to Prometheus
  top        show live who holds what on each GPU, from an exporter's page or from this node
  doctor     tell whether this node can be measured and capped, and what to change if not
  explain    tell how the numbers of a pod on this node came to be
  enforcer   hold each job of this node to its caps, or say how it would
  gate       wait, as a pod's init container, until the pod's caps were read back
  demo       the same on a simulated node, without a GPU

podgpu COMMAND --help tells the flags of a command, podgpu --version the version.
"""


def _exporter(arguments: Sequence[str]) -> int:
    chosen = settings(arguments, os.environ)
    # Imported here, so that --help and a wrong flag need neither gRPC nor the driver's binding.
    from exporter.service import run

    return run(chosen)


def _demo(arguments: Sequence[str]) -> int:
    # A process of its own: nothing that runs in production imports the simulator.
    os.execv(sys.executable, [sys.executable, "-m", "simulator", *arguments])  # noqa: S606


def _explain(arguments: Sequence[str]) -> int:
    from exporter.explain import run

    return run(arguments, os.environ)


def _gate(arguments: Sequence[str]) -> int:
    from enforcer.gate import run

    return run(arguments, os.environ)


def _doctor(arguments: Sequence[str]) -> int:
    from exporter.doctor import run

    return run(arguments, os.environ)


def _top(arguments: Sequence[str]) -> int:
    from exporter.top.command import run

    return run(arguments, os.environ)


def _enforcer(arguments: Sequence[str]) -> int:
    from enforcer.settings import settings as enforcer_settings

    chosen = enforcer_settings(arguments, os.environ)
    from enforcer.service import run

    return run(chosen)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "exporter": _exporter,
    "top": _top,
    "doctor": _doctor,
    "explain": _explain,
    "enforcer": _enforcer,
    "gate": _gate,
    "demo": _demo,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 could not go on, 2 a flag or file of the user's can't be used."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    if command in ("--version", "-V"):
        print(f"podgpu {version()}")
        return 0
    if command in ("--help", "-h", "help"):
        print(_USAGE, end="")
        return 0
    if command not in _COMMANDS:
        return _complain(_unknown(command))
    try:
        return _COMMANDS[command](given[1:])
    except SettingsError as error:
        return _complain(f"podgpu {command}: {error}")


def _unknown(command: str) -> str:
    if not command:
        return "podgpu: which command? one of " + ", ".join(_COMMANDS) + " (see podgpu --help)"
    close = difflib.get_close_matches(command, _COMMANDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"podgpu: there is no command {command!r}{hint} (see podgpu --help)"


def _complain(line: str) -> int:
    print(line, file=sys.stderr)
    return 2
