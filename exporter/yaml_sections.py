"""Reads YAML mappings in a way that lets every complaint name the file, the line and the key.

Guarantees that an unknown, doubled or wrongly shaped key is an error and that nothing but text, lists of text,
booleans and mappings comes out: values are taken from the parsed tree as written, no YAML type or tag is ever
constructed. Knows nothing about what the keys mean.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml

_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})


class ConfigFileError(Exception):
    """A configuration file cannot be used. The message is one line: file, line, key, and what to change."""


class Section:
    """One mapping of the file. `known` is the set of allowed keys, None where any key may stand."""

    def __init__(self, node: yaml.Node | None, *, origin: Path, known: frozenset[str] | None, name: str = "") -> None:
        self._origin = origin
        self._name = name
        self._line = _line(node) if node is not None else 1
        self._values: dict[str, tuple[int, yaml.Node]] = {}
        if node is None or _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            raise self._error(self._line, name, "must be a mapping of 'key: value' lines")
        for key, value in node.value:
            self._add(key, value, known)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def fail(self, key: str, problem: str) -> ConfigFileError:
        """The error that `key` has `problem`; the caller raises it."""
        line = self._values[key][0] if key in self._values else self._line
        return self._error(line, self._path(key), problem)

    def section(self, key: str, known: frozenset[str] | None) -> "Section":
        """The mapping at `key`; an empty one where there is none."""
        node = self._values[key][1] if key in self._values else None
        return Section(node, origin=self._origin, known=known, name=self._path(key))

    def text(self, key: str, *, default: str = "") -> str:
        """The text at `key`."""
        if key not in self._values:
            return default
        node = self._values[key][1]
        if not isinstance(node, yaml.ScalarNode):
            raise self.fail(key, "must be one value")
        return default if _is_null(node) else str(node.value)

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of texts at `key`."""
        if key not in self._values:
            return ()
        node = self._values[key][1]
        if _is_null(node):
            return ()
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(item, yaml.ScalarNode) for item in node.value):
            raise self.fail(key, "must be a list of values")
        return tuple(str(item.value) for item in node.value)

    def flag(self, key: str, *, default: bool) -> bool:
        """The boolean at `key`."""
        value = self.text(key).lower()
        if value in _TRUE | _FALSE:
            return value in _TRUE
        if value:
            raise self.fail(key, "must be true or false")
        return default

    def path(self, key: str) -> Path | None:
        """The file name at `key`, relative to the directory of the configuration file."""
        value = self.text(key)
        return self._origin.parent / value if value else None

    def _add(self, key: yaml.Node, value: yaml.Node, known: frozenset[str] | None) -> None:
        if not isinstance(key, yaml.ScalarNode):
            raise self._error(_line(key), self._name, "has a key that is not plain text")
        name = str(key.value)
        if known is not None and name not in known:
            allowed = ", ".join(sorted(known))
            raise self._error(_line(key), self._path(name), f"unknown key; known here: {allowed}")
        if name in self._values:
            raise self._error(_line(key), self._path(name), "is given twice; remove one")
        self._values[name] = (_line(key), value)

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def _error(self, line: int, path: str, problem: str) -> ConfigFileError:
        subject = f"{path}: " if path else ""
        return ConfigFileError(f"{self._origin}:{line}: {subject}{problem}")


def read_root(origin: Path, known: frozenset[str]) -> Section:
    """The outermost mapping of a file.

    Raises:
        ConfigFileError: unreadable, no YAML, or not a mapping of known keys.
    """
    try:
        node = yaml.compose(origin.read_bytes(), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigFileError(f"{origin}: cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigFileError(f"{origin}:{line}: is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise ConfigFileError(f"{origin}: is not valid YAML: it holds characters that are no text") from error
    except RecursionError as error:
        raise ConfigFileError(f"{origin}: is not valid YAML: nested too deeply") from error
    return Section(node, origin=origin, known=known)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
