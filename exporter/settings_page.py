"""Writes docs/configuration.md from the table of flags: `python -m exporter.settings_page > docs/configuration.md`."""

from exporter.settings import FLAGS

_INTRODUCTION = """\
# Configuration

<!-- Generated from exporter/settings.py by `make docs`; do not edit. -->

`podgpu exporter` takes these flags. Each can be set by the environment variable beside it; a flag that is given wins.
A repeatable flag takes a comma-separated list in its variable. A flag or variable that can't be used ends the exporter
with one line and exit code 2.

| flag | environment variable | default | meaning |
|---|---|---|---|
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


def page() -> str:
    """The page as Markdown."""
    rows = [
        f"| `--{flag.name}`{' (repeatable)' if flag.repeatable else ''} | `{flag.variable}` "
        f"| {f'`{flag.default}`' if flag.default else ''} | {flag.help} |"
        for flag in FLAGS
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n" + _WEB_CONFIG


if __name__ == "__main__":
    print(page(), end="")
