"""What a flag is: from one table of them derive parsing, environment variables, --help and the documentation.

A flag wins over its environment variable, the variable over the default. All commands have one scheme for variables, so
that what is said once holds for each of them. A value that makes no sense is an error in one line that names the flag
and says what it takes.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

ENV_PREFIX = "PODGPU_"


class SettingsError(Exception):
    """A flag or environment variable that can't be used, in one line."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `parse` turns its text into a value or raises ValueError with what it takes."""

    name: str
    default: str
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = str
    repeatable: bool = False
    switch: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it. A repeatable one takes a comma-separated list."""
        return ENV_PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def attribute(self) -> str:
        """The name under which argparse keeps it."""
        return re.sub(r"[.-]", "_", self.name)


def duration(text: str) -> float:
    """Seconds from text such as 5s, 500ms, 2m or 2.5."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text)
    if match is None or float(match[1]) == 0:
        raise ValueError("takes a duration such as 5s, 500ms or 1m")
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}[match[2]]


def count(text: str) -> int:
    """A whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("takes a whole number above 0")
    return int(text)


def path(text: str) -> str:
    """An absolute path."""
    if not text.startswith("/"):
        raise ValueError("takes an absolute path")
    return text


def socket(text: str) -> str:
    """An absolute path that a socket can have."""
    if not text.startswith("/") or len(os.fsencode(text)) > 107:
        raise ValueError("takes an absolute path of at most 107 bytes, as the kernel has it for sockets")
    return text


def one_of(*words: str) -> Callable[[str], str]:
    """What takes one of these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"takes one of {', '.join(words)}")
        return text

    return parse


def switch(text: str) -> bool:
    """On or off."""
    if text.lower() in ("1", "true", "yes"):
        return True
    if text.lower() in ("", "0", "false", "no"):
        return False
    raise ValueError("takes true or false")


class _Parser(argparse.ArgumentParser):
    """argparse, with errors as one line and no guessing of shortened flags."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {self.prog} --help)")


def parser(prog: str, description: str, flags: Sequence[Flag]) -> argparse.ArgumentParser:
    """The parser of a command's flags; its --help names every flag's environment variable."""
    found = _Parser(
        prog=prog,
        description=description,
        epilog="Every flag can be set by the environment variable named with it; a flag given wins.",
        allow_abbrev=False,
    )
    for flag in flags:
        shown = f"{flag.help} (default: {flag.default})" if flag.default else flag.help
        text = f"{shown} [{flag.variable}]".replace("%", "%%")
        if flag.switch:
            found.add_argument(f"--{flag.name}", dest=flag.attribute, action="store_const", const="true", help=text)
        elif flag.repeatable:
            found.add_argument(
                f"--{flag.name}", dest=flag.attribute, action="append", metavar=flag.metavar, help=f"{text}; repeatable"
            )
        else:
            found.add_argument(f"--{flag.name}", dest=flag.attribute, metavar=flag.metavar, help=text)
    return found


def values_of(parsed: argparse.Namespace, flags: Sequence[Flag], environment: Mapping[str, str]) -> dict[str, Any]:
    """The value of each flag, by its attribute. Raises SettingsError."""
    given = vars(parsed)
    return {flag.attribute: _value(flag, given[flag.attribute], environment) for flag in flags}


def _value(flag: Flag, given: str | list[str] | None, environment: Mapping[str, str]) -> Any:  # noqa: ANN401
    """One flag's value, by its own type."""
    origin = f"--{flag.name}"
    if given is None and flag.variable in environment:
        given, origin = environment[flag.variable], flag.variable
    if given is None:
        given = flag.default
    if flag.repeatable:
        parts = given.split(",") if isinstance(given, str) else given
        return tuple(part.strip() for part in parts if part.strip())
    try:
        return flag.parse(str(given)) if given or flag.switch else ""
    except ValueError as error:
        raise SettingsError(f"{origin}: {error}, not {given!r}") from None
