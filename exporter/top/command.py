"""The command `podgpu top`: its flags, and what it prints when nobody watches."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from exporter.logs import configure
from exporter.settings import FLAGS, SettingsError, duration, parser, settings_of
from exporter.top.choice import Choice, Sort, chosen
from exporter.top.frame import once
from exporter.top.pages import Credentials, ExporterPage, NodePage
from exporter.top.screen import watch
from exporter.top.terminal import columns, glyphs
from exporter.top.view import Container, Gpu, PageError, View

_PROG = "podgpu top"
_INTERVAL = "2s"
_URL = "http://127.0.0.1:9836/metrics"
_REMOTE = ("url", "user", "password_file", "ca_file", "cert_file", "key_file", "insecure")


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Show who holds what. Returns the exit code: 0, or 1 where nothing could be read.

    Raises SettingsError for a flag or file that can't be used.
    """
    given = _parser().parse_args(list(arguments))
    interval = _interval(given)
    page = _page(given, environment)
    choice = Choice(Sort(given.sort), given.reverse, given.filter, given.namespace)
    if not (given.once or given.json) and sys.stdin.isatty() and sys.stdout.isatty():
        watch(page.view, choice, interval=interval, source=page.shown, environment=environment)
        _leave(0)
    try:
        seen = page.view()
    except PageError as error:
        print(f"{_PROG}: {error}", file=sys.stderr)
        _leave(1)
    if given.json:
        print(json.dumps(as_json(chosen(seen, choice)), indent=2))
    else:
        print("\n".join(once(seen, choice, columns=columns(), now=time.time(), glyphs=glyphs(), source=page.shown)))
    _leave(0)
    return 0


def _leave(code: int) -> None:
    """End at once: as in the exporter, a thread inside a driver call must not hold up the end."""
    with suppress(BrokenPipeError):  # whoever reads us has seen enough
        sys.stdout.flush()
    os._exit(code)


def _parser() -> argparse.ArgumentParser:
    found = parser(
        _PROG,
        "Shows live who holds what on each GPU: from a running exporter's page, or with --node from this node itself. "
        "The flags up to --log.format are those of the exporter and for --node only, except --interval, the time from "
        f"one look to the next, which is {_INTERVAL} here.",
    )
    found.set_defaults(interval=None)
    own = found.add_argument_group("what is shown")
    own.add_argument("--once", action="store_true", help="print once and end; also where there is no terminal")
    own.add_argument("--json", action="store_true", help="print one JSON object and end; what is not known is null")
    own.add_argument("--sort", choices=tuple(Sort), default=Sort.MEMORY.value, help="default: memory")
    own.add_argument("--reverse", action="store_true", help="the smallest first")
    own.add_argument("--filter", default="", metavar="TEXT", help="only containers whose name has this text in it")
    own.add_argument("--namespace", default="", metavar="NAME", help="only containers of this namespace")
    source = found.add_argument_group("where from")
    source.add_argument(
        "--node", action="store_true", default=None, help="read this node itself; needs what the exporter needs"
    )
    source.add_argument("--url", metavar="URL", help=f"metrics page of an exporter (default: {_URL})")
    source.add_argument("--user", metavar="NAME", help="name for basic authentication")
    source.add_argument("--password-file", metavar="FILE", help="file with the password for basic authentication")
    source.add_argument("--ca-file", metavar="FILE", help="authorities that may vouch for the server")
    source.add_argument("--cert-file", metavar="FILE", help="certificate to show to the server")
    source.add_argument("--key-file", metavar="FILE", help="its key, if the certificate's file does not have it")
    source.add_argument("--insecure", action="store_true", default=None, help="trust any server, whoever it is")
    return found


def _page(given: argparse.Namespace, environment: Mapping[str, str]) -> ExporterPage | NodePage:
    values = vars(given)
    if given.node:
        for name in _REMOTE:
            if values[name] is not None:
                raise SettingsError(f"--{name.replace('_', '-')}: can't be used with --node (see {_PROG} --help)")
        given.interval = given.interval or _INTERVAL
        settings = settings_of(given, environment)
        configure(level="error", form=settings.log_format)
        return NodePage(settings)
    for flag in FLAGS:
        if flag.name != "interval" and values[flag.attribute] is not None:
            raise SettingsError(f"--{flag.name}: needs --node (see {_PROG} --help)")
    return ExporterPage(
        given.url or _URL,
        Credentials(
            user=given.user or "",
            password_file=given.password_file or "",
            ca_file=given.ca_file or "",
            cert_file=given.cert_file or "",
            key_file=given.key_file or "",
            insecure=bool(given.insecure),
        ),
    )


def _interval(given: argparse.Namespace) -> float:
    try:
        return duration(given.interval or _INTERVAL)
    except ValueError as error:
        raise SettingsError(f"--interval: {error}, not {given.interval!r}") from None


def as_json(seen: View) -> dict[str, Any]:
    """The view for a program: names as on the page, bytes as whole numbers, null where nothing is known."""
    return {
        "timestamp": seen.timestamp,
        "gpus": [_gpu(gpu) for gpu in seen.gpus],
        "sources_down": seen.sources_down,
        "conditions": seen.conditions,
    }


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        **gpu.id._asdict(),
        "name": gpu.name,
        "up": gpu.up,
        "memory_capacity_bytes": _whole(gpu.capacity),
        "memory_bytes": {name: _whole(amount) for name, amount in gpu.classes.items()},
        "sm_utilization_ratio": gpu.sm,
        "containers": [_container(container) for container in gpu.containers],
    }


def _container(container: Container) -> dict[str, Any]:
    return {
        "namespace": container.id.namespace,
        "pod": container.id.pod,
        "container": container.id.container,
        "memory_used_bytes": _whole(container.used),
        "memory_requested_bytes": _whole(container.requested),
        "memory_limit_bytes": _whole(container.limit),
        "memory_overrun_bytes": _whole(container.overrun),
        "mps_active_thread_ratio": container.threads,
        "sm_utilization_ratio": container.sm,
        "share_ratio": container.share,
        "allocated": container.allocated,
    }


def _whole(amount: float | None) -> int | None:
    return None if amount is None else int(amount)
