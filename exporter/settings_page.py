"""Makes docs/configuration.md from the commands' tables of flags. `make docs` writes it; a test compares."""

from collections.abc import Sequence
from typing import NamedTuple

from exporter.flags import Flag
from exporter.settings import FLAGS

_INTRODUCTION = """\
# Configuration

<!-- Generated from the tables of flags by `make docs`; do not edit. -->

Each flag can be set by the environment variable beside it; a flag that is given wins. The variables have one scheme for
all commands: each runs in a container of its own. A repeatable flag takes a comma-separated list in its variable. A
flag or variable that can't be used ends the command with one line and exit code 2.
"""

_WEB_CONFIG = """
## The web config file

`--web.config.file` takes the format of Prometheus' exporter-toolkit. The file and the files it names are read again
when they change; a change that can't be used is logged and the last good state stays in force.

```yaml
tls_server_config:
  cert_file: server.crt          # relative to this file
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: clients.crt
  min_version: TLS12
basic_auth_users:
  prometheus: $2y$10$...         # a bcrypt hash, as from `htpasswd -nBC 10 prometheus`
```
"""


class Command(NamedTuple):
    """A command, its flags, and what there is to say about them."""

    name: str
    about: str
    flags: Sequence[Flag]


_EXPORTER = Command(
    "podgpu exporter",
    "`podgpu explain` and `podgpu top --node` take the same flags, and read the node as it does.",
    FLAGS,
)


def page(further: Sequence[Command] = ()) -> str:
    """The page as Markdown, with commands that are not the exporter's after its own.

    Of these only the flags are listed that the exporter does not have in the same way.
    """
    parts = [_INTRODUCTION, _section(_EXPORTER, FLAGS)]
    known = {(flag.name, flag.default, flag.help): flag for flag in FLAGS}
    for command in further:
        own = [flag for flag in command.flags if (flag.name, flag.default, flag.help) not in known]
        shared = [flag for flag in command.flags if (flag.name, flag.default, flag.help) in known]
        parts.append(_section(command, own))
        names = ", ".join(f"`--{flag.name}`" for flag in shared)
        parts.append(f"\nAnd as the exporter has them: {names}.\n")
    return "".join([*parts, _WEB_CONFIG])


def _section(command: Command, flags: Sequence[Flag]) -> str:
    rows = [
        f"| `--{flag.name}`{' (repeatable)' if flag.repeatable else ''} | `{flag.variable}` "
        f"| {f'`{flag.default}`' if flag.default else ''} | {flag.help} |"
        for flag in flags
    ]
    head = "| flag | environment variable | default | meaning |\n|---|---|---|---|\n"
    return f"\n## {command.name}\n\n{command.about}\n\n{head}" + "\n".join(rows) + "\n"
