"""The pages about annotations and policy say what the code does: every key, every reason, every example."""

import re
from pathlib import Path

import pytest

from exporter.caps.contract import read
from exporter.caps.keys import ContainerKey, PodKey, in_full
from exporter.caps.policy_file import read_policy
from exporter.caps.requests import ErrorReason, Reaction, Share
from exporter.model import PodContainer

DOCS = Path(__file__).parents[2] / "docs"
PREFIX = "nvidia.com/container."
MAIN = (PodContainer("main"), PodContainer("helper"))
LIMIT = in_full(ContainerKey.MEMORY_LIMIT, "main", PREFIX)
REQUEST = in_full(ContainerKey.MEMORY_REQUEST, "main", PREFIX)


def rows(page: str, *, columns: int) -> list[list[str]]:
    lines = [line for line in (DOCS / page).read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


KEYS = {row[0].strip("`"): row for row in rows("annotations.md", columns=5)}
CONTAINER_KEYS = {in_full(key, "<container>", PREFIX): key for key in ContainerKey}

# What a key needs beside it to mean something; then what makes it contradict itself, beside that.
COMPANIONS = {
    "gpu-fraction.limit": {"gpu-fraction": "0.5"},
    in_full(ContainerKey.PORTION_LIMIT, "main", PREFIX): {"gpu-fraction": "0.5"},
    "gpu-memory.limit": {"gpu-memory": "4096"},
    "gpu-memory": {},
    "gpu-fraction": {},
    REQUEST: {},
}
VALUES = [
    "",
    "x",
    "0",
    "-1",
    "101",
    "2048",
    "50%",
    "4Gi",
    "1.5",
    "500m",
    "8Ei",
    "main",
    "helper",
    "time-slicing",
    "GPU-a",
]
VALUES += ["Regular", ",".join("abc" * 40)]
NEIGHBOURS: list[dict[str, str]] = [
    {},
    {REQUEST: "1Gi"},
    {LIMIT: "2Gi"},
    {"gpu-memory": "8192"},
    {"gpu-fraction": "0.5"},
    {"gpu-fraction": "0.9", "gpu-fraction.limit": "0.7"},
    {"gpu-memory.limit": "2Gi"},
    {in_full(ContainerKey.PORTION_LIMIT, "main", PREFIX): "0.3", "gpu-fraction": "0.2"},
    {"gpu-fraction-num-devices": "3", REQUEST: "1Gi"},
    {"gpu-fraction-container-name": "nobody"},
    {"kai.scheduler/gpu-compute-sharing-mode": "sm-sharing", REQUEST: "1Gi"},
    {
        in_full(ContainerKey.COMPUTE_MODE, "main", PREFIX): "sm-sharing",
        in_full(ContainerKey.COMPUTE_PORTION, "main", PREFIX): "0.1",
    },
    {REQUEST: "1Gi", in_full(ContainerKey.MEMORY_LIMIT, "helper", PREFIX): "1Gi"},
]


def test_every_key_has_a_row_and_every_row_a_key():
    assert set(KEYS) == {*CONTAINER_KEYS, *PodKey}


def test_every_reason_has_a_row_and_every_row_a_reason():
    text = (DOCS / "annotations.md").read_text(encoding="utf-8")
    errors = text[text.index("## Errors") :]
    assert re.findall(r"^\| `(\w+)`", errors, re.MULTILINE) == list(ErrorReason)


@pytest.mark.parametrize("documented", KEYS)
def test_every_example_is_read_without_error(documented):
    key = documented.replace("<container>", "main")
    beside = COMPANIONS.get(key, {LIMIT: "16Gi"} if key != LIMIT else {})
    caps = read({key: KEYS[documented][3].strip("`"), **beside}, MAIN)
    assert caps.errors == ()
    assert caps.of("main").limit is not None


@pytest.mark.parametrize("documented", KEYS)
def test_a_key_gives_the_errors_that_its_row_lists_and_no_others(documented):
    key = documented.replace("<container>", "main")
    example = KEYS[documented][3].strip("`")
    pods = (MAIN,) if documented in CONTAINER_KEYS else (MAIN, ())
    found = {
        str(error.reason)
        for value in (*VALUES, example)
        for beside in NEIGHBOURS
        for containers in pods
        for error in read({**beside, key: value}, containers).errors
        if error.key == key
    }
    assert found == set(re.findall(r"`(\w+)`", KEYS[documented][4]))


def test_the_policy_of_the_page_is_one(tmp_path):
    text = (DOCS / "policy.md").read_text(encoding="utf-8")
    origin = tmp_path / "policy.yaml"
    origin.write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0], encoding="utf-8")
    policy = read_policy(origin)
    assert policy.defaults.memory_default == 8 << 30
    assert policy.defaults.harshest is Reaction.TERMINATE
    assert policy.rule("research").memory_ceiling == Share(1)
    assert policy.rule("trusted").memory_default is None
    assert {row[0].strip("`") for row in rows("policy.md", columns=3)} == {
        f"{section}.{key}"
        for section, keys in {
            "memory": ("default", "ceiling"),
            "active_thread_percentage": ("default", "ceiling"),
            "on_overrun": ("default", "harshest"),
        }.items()
        for key in keys
    }
