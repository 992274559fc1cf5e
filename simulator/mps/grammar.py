"""The words of a protocol 3 command: `<module> <verb> [positionals] [--key=value | key=value ...] [--flag ...]`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MODULES = ("server", "namespace", "client", "device", "feature", "memacct")
VERBS: Mapping[tuple[str, str], tuple[str, int, tuple[str, ...]]] = {
    # module and verb: how it is used, how many positionals it needs, which options it has
    ("server", "create"): ("<name>", 0, ("uid", "allowed-devices", "locality-domains")),
    ("server", "delete"): ("<name>", 1, ("force",)),
    ("server", "list"): ("[<name>]", 0, ("format",)),
    ("server", "set"): ("<name>", 1, ("pinned-memory-limit", "active-thread-percentage", "client-priority")),
    ("server", "get"): ("<name> <field>", 2, ()),
    ("namespace", "create"): ("<name>", 1, ("server",)),
    ("namespace", "delete"): ("<name>", 1, ("server", "force")),
    ("namespace", "list"): ("[<name>]", 0, ("server", "format")),
    ("namespace", "set"): (
        "<name>",
        1,
        ("server", "pinned-memory-limit", "active-thread-percentage", "client-priority"),
    ),
    ("namespace", "get"): ("<name> <server> <field>", 3, ()),
    ("client", "list"): ("", 0, ("server", "all", "format")),
    ("client", "get"): ("<pid> <field>", 2, ()),
    ("client", "terminate"): ("<pid>", 1, ()),
    ("device", "list"): ("", 0, ("server", "format")),
    ("feature", "describe"): ("<feature>", 0, ("format",)),
    ("feature", "enable"): ("<feature>", 1, ()),
    ("feature", "disable"): ("<feature>", 1, ()),
    ("memacct", "set"): ("", 0, ("audit_log",)),
    ("memacct", "describe"): ("", 0, ()),
}
_FLAGS = ("force", "all")
_MOST_POSITIONALS = 3


class CommandError(Exception):
    """What a command was refused for, in one line."""


@dataclass(frozen=True, slots=True)
class Words:
    """A command that follows the grammar."""

    module: str
    verb: str
    positionals: tuple[str, ...]
    options: Mapping[str, str]


def parse(words: Sequence[str]) -> Words:
    """Read a command. Raises CommandError."""
    module, verb = words[0], words[1] if len(words) > 1 else ""
    if module not in MODULES:
        raise CommandError(f'Unknown module "{module}"')
    if (module, verb) not in VERBS:
        raise CommandError(f'Unknown verb "{verb}" of module "{module}"')
    _, least, known = VERBS[module, verb]
    positionals, options = [], {}
    for word in words[2:]:
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals and not word.startswith("--"):
            positionals.append(word)
        elif key not in known or (not equals and key not in _FLAGS):
            raise CommandError(f'Unknown option "{word}" of {module} {verb}')
        else:
            options[key] = value
    if not least <= len(positionals) <= _MOST_POSITIONALS:
        raise CommandError(f"usage: {usage(module, verb)}")
    return Words(module, verb, tuple(positionals), options)


def usage(module: str, verb: str) -> str:
    """How a verb is used."""
    positionals, _, options = VERBS[module, verb]
    words = [f"[--{name}]" if name in _FLAGS else f"[--{name}=<value>]" for name in options]
    return " ".join(word for word in (module, verb, positionals, *words) if word)


def help_text(module: str) -> str:
    """How the verbs of a module are used."""
    return "".join(f"  {usage(module, verb)}\n" for known, verb in VERBS if known == module)
