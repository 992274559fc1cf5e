"""Derives the manifests that wrap what dashboards/ has: a PrometheusRule, and ConfigMaps for Grafana's sidecar.

    python -m tools.manifests [--check]

Kustomize reads no file outside its own folder, so these are written and committed; `--check` says whether they are what
would be written. The chart reads the same originals by links.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).resolve().parent.parent
_DASHBOARDS = _ROOT / "dashboards"
_COMPONENTS = _ROOT / "deploy" / "components"
_NOTICE = "# Derived from {} by `make manifests`; do not edit.\n"
_LABELS = {"app.kubernetes.io/name": "podgpu"}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that a change reads as one."""


def _text(dumper: yaml.SafeDumper, content: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", content, style="|" if "\n" in content else None)


_Dumper.add_representer(str, _text)


def rules() -> dict[str, Any]:
    """The PrometheusRule: the groups of all rule files, in order of their names."""
    files = sorted((_DASHBOARDS / "rules").glob("*.yaml"), key=lambda path: (".rules." not in path.name, path.name))
    groups = [group for path in files for group in yaml.safe_load(path.read_text())["groups"]]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "podgpu", "namespace": "podgpu", "labels": _LABELS},
        "spec": {"groups": groups},
    }


def dashboard(path: Path) -> dict[str, Any]:
    """The ConfigMap of one dashboard. One each, because kubectl keeps a copy of an object in an annotation."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": path.stem, "namespace": "podgpu", "labels": {**_LABELS, "grafana_dashboard": "1"}},
        "data": {path.name: path.read_text()},
    }


def files() -> Iterator[tuple[Path, str]]:
    """Each derived file with its content."""
    yield _COMPONENTS / "prometheusrule" / "rules.yaml", _written(rules(), "dashboards/rules")
    for path in sorted(_DASHBOARDS.glob("podgpu-*.json")):
        yield _COMPONENTS / "dashboards" / f"{path.stem}.yaml", _written(dashboard(path), f"dashboards/{path.name}")


def _written(content: dict[str, Any], origin: str) -> str:
    return _NOTICE.format(origin) + yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files. Exit codes: 0 done, or all as they should be; 1 some are not."""
    parser = argparse.ArgumentParser(prog="python -m tools.manifests", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and say what is out of date")
    given = parser.parse_args(arguments)
    stale = [path for path, content in files() if not path.exists() or path.read_text() != content]
    if not given.check:
        for path, content in files():
            path.write_text(content)
        return 0
    for path in stale:
        print(f"{path.relative_to(_ROOT)} is out of date: run `make manifests`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
