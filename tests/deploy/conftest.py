"""The real programs that manifests are held to. One that is missing fails the test that needs it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import CHART, COMPONENTS, DEPLOY, ROOT, Manifest, load
from tools.deploy_tools import find


def program(name: str) -> str:
    found = find(name)
    assert found is not None, f"{name} is missing; `make deploy-tools` fetches it"
    return str(found)


def run(*command: str, stdin: str | None = None) -> str:
    """What a program prints. A program that fails fails the test, with what it says."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def kustomize(tmp_path: Path) -> Callable[..., list[Manifest]]:
    """Builds the plain manifests with these components."""

    def build(*components: str) -> list[Manifest]:
        # kubectl takes bases by relative paths only.
        folder = tmp_path / "overlay"
        folder.mkdir(exist_ok=True)
        base = Path(*[".."] * len(folder.parts[1:])) / DEPLOY.relative_to("/")
        overlay = {"resources": [str(base)], "components": [str(base / "components" / name) for name in components]}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return load(run(program("kubectl"), "kustomize", str(folder)))

    return build


@pytest.fixture
def helm(tmp_path: Path) -> Callable[..., list[Manifest]]:
    """Renders the chart with these values."""

    def render(**values: Any) -> list[Manifest]:
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        flags = ["--namespace", "podgpu", "--values", str(tmp_path / "values.yaml")]
        return load(run(program("helm"), "template", "podgpu", str(CHART), *flags))

    return render


@pytest.fixture
def validate(tmp_path: Path) -> Callable[..., None]:
    """Holds manifests to the API's schemas of a version, refusing unknown fields."""

    def check(manifests: list[Manifest], *, version: str) -> None:
        (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(manifests))
        run(
            program("kubernetes-validate"),
            "--strict",
            "--kubernetes-version",
            version,
            str(tmp_path / "manifests.yaml"),
        )

    return check


def evaluate(steps: list[tuple[str, str]], **variables: Any) -> dict[str, Any]:
    """The values of expressions, by a real evaluator."""
    asked = json.dumps({"variables": variables, "steps": steps})
    python = program("python")
    values: dict[str, Any] = json.loads(run(python, str(ROOT / "tools" / "cel.py"), stdin=asked))
    return values


NAMES = [path.name for path in COMPONENTS]
