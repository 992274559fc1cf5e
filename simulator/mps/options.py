"""The calls with options: starting a daemon, asking for help. Which options there are depends on the driver.

Up to 550 an argument list that is not exactly `-d`, `-f`, `-h` or `--help` is ignored as a whole.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from simulator.mps import frontend, grammar, world

_BANNER = "CUDA MPS Control for Linux/Unix (simulated).\n\n"
_USAGE = f"""{_BANNER}usage: nvidia-cuda-mps-control [options] [<module> <verb> ...]

  -h, --help             print this
  -d                     start the control daemon in the background
  -f                     start it in the foreground
  -m, --multiuser        one server for all users
  -a, --apply <file>     configure it from a TOML file (protocol 3)
  -p, --protocol <2|3>   protocol of the daemon (default 2)
  -q, --quit             end the daemon
  -v                     print the version

modules (protocol 3): {", ".join(grammar.MODULES)}
`<module> help` explains one. Protocol 2 reads commands from standard input.
"""


@dataclass(slots=True)
class Start:
    """How a daemon is to start."""

    background: bool
    protocol: int = 2
    multiuser: bool = False
    apply: str = ""


def main(arguments: list[str]) -> int:
    """Run a call, and return its exit code."""
    name = os.environ.get(world.ENVIRONMENT)
    if name is None:
        print(f"nvidia-cuda-mps-control (simulated): {world.ENVIRONMENT} names no file", file=sys.stderr)
        return 2
    found = world.read(Path(name))
    if found.generation < 615:
        if arguments in (["-h"], ["--help"]):
            print(_BANNER, end="")
            return 0
        if arguments in (["-d"], ["-f"]):
            return _start(Start(background=arguments == ["-d"]))
        return frontend.converse(arguments)
    return _newest(arguments, found)


def _newest(arguments: list[str], found: world.World) -> int:
    start, wants = Start(background=False), ""
    words = iter(arguments)
    for word in words:
        if word in ("-h", "--help"):
            print(_USAGE, end="")
            return 0
        if word == "-v":
            print(f"nvidia-cuda-mps-control {found.driver}")
            return 0
        if word in ("-q", "--quit"):
            return frontend.converse(["quit"])
        if word in ("-d", "-f"):
            wants, start.background = word, word == "-d"
        elif word in ("-m", "--multiuser", "--multiuser-server"):
            start.multiuser = True
        elif word in ("-a", "--apply"):
            start.apply = next(words, "")
        elif word in ("-p", "--protocol"):
            given = next(words, "")
            if given not in ("2", "3"):
                return _refuse(f'Invalid protocol "{given}"')
            start.protocol = int(given)
        else:
            return _refuse(f'Unknown option "{word}"')
    if not wants:
        return frontend.converse([])
    if os.environ.get("CUDA_MPS_PROTOCOL_VERSION") in ("2", "3"):
        start.protocol = int(os.environ["CUDA_MPS_PROTOCOL_VERSION"])
    return _start(start)


def _refuse(text: str) -> int:
    print(text, file=sys.stderr)
    return 1


def _start(start: Start) -> int:
    from simulator.mps import daemon

    return daemon.main(start)
