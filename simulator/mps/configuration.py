"""The TOML file of `-a`: read once, when a protocol 3 daemon starts, as the commands that it stands for."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_SERVER = {"uid", "allowed_devices", "locality_domains", "namespaces"}
_LIMITS = {"pinned_memory_limit", "active_thread_percentage", "client_priority"}
_FEATURES = {"memacct": {"enabled", "audit_log"}, "context-share": {"enabled", "default_socket"}}


class ConfigurationError(Exception):
    """A file that the daemon does not start with, in one line."""


def commands(path: Path) -> list[list[str]]:
    """The commands that a file stands for. Raises ConfigurationError."""
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    _known(content, {"schema_version", "servers", "features"}, "file")
    if content.get("schema_version") != "1.0":
        raise ConfigurationError(f"{path}: schema_version should be 1.0")
    found = []
    for name, server in content.get("servers", {}).items():
        _known(server, _SERVER | _LIMITS, f"servers.{name}")
        create = [
            f"--{key.replace('_', '-')}={server[key]}" for key in sorted(_SERVER - {"namespaces"}) if key in server
        ]
        found.append(["server", "create", name, *create])
        found += _set(["server", "set", name], server)
        for space, values in server.get("namespaces", {}).items():
            _known(values, _LIMITS, f"servers.{name}.namespaces.{space}")
            if space != "default":
                found.append(["namespace", "create", space, f"--server={name}"])
            found += _set(["namespace", "set", space, f"--server={name}"], values)
    return found + list(_features(content.get("features", {})))


def _features(features: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    _known(features, set(_FEATURES), "features")
    for name, values in features.items():
        _known(values, _FEATURES[name], f"features.{name}")
        if "enabled" in values:
            yield ["feature", "enable" if values["enabled"] else "disable", name]
        if "audit_log" in values:
            yield ["memacct", "set", f"audit_log={str(values['audit_log']).lower()}"]


def _set(command: list[str], values: Mapping[str, Any]) -> list[list[str]]:
    options = [f"--{key.replace('_', '-')}={values[key]}" for key in sorted(_LIMITS) if key in values]
    return [[*command, *options]] if options else []


def _known(values: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigurationError(f"configuration error: unknown key {unknown[0]} in {where}")
