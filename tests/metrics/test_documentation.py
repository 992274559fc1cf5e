import subprocess
import sys
from pathlib import Path

from enforcer.documentation import metrics as document
from enforcer.metrics import GROUP
from exporter.errors import Reason
from exporter.metrics.catalog import FAMILIES
from exporter.model import Condition, MemoryClass

ROOT = Path(__file__).parents[2]


ALL = (*FAMILIES, *GROUP.families)


def test_the_committed_document_is_the_generated_one():
    committed = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert committed == document(), "run `make docs`"


def test_the_command_prints_the_document():
    command = [sys.executable, "-m", "enforcer.documentation", "metrics"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode() == document()


def test_every_family_has_one_row_of_six_cells():
    rows = [line for line in document().splitlines() if line.startswith("| `podgpu_")]
    assert [row.split("`")[1] for row in rows] == [family.name for family in ALL]
    for row, family in zip(rows, ALL, strict=True):
        assert row.count("|") == 7
        assert family.meaning in row
        assert family.source in row
        assert all(f"`{label}`" in row for label in family.labels)


def test_it_says_what_a_user_must_know():
    text = document()
    assert "honorLabels: true" in text
    assert "Unknown is absent" in text
    for value in (*MemoryClass, *Condition, *Reason):
        assert f"`{value}`" in text
