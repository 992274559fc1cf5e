"""CASES.md and the tests say the same: each test that it names exists, and each number in a test's name is on it."""

import ast
import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
SIMULATOR = "nvml_library"  # tests of the simulated driver; they hold podgpu to nothing
_ROW = re.compile(r"^\| ([NCKBV]\d{2,3}) \| (\S.*?) \| (\S.*) \|$", re.MULTILINE)
_NODE = re.compile(r"`([\w/]+\.py)::(\w+)(?:\[([NCKBV]\d{2,3})\])?`")
_IN_NAME = re.compile(r"(?:^|_)([nckbv]\d{2,3})(?=_|$)")

PAGE = (TESTS / "CASES.md").read_text()
ROWS = _ROW.findall(PAGE)


def names_in(path: Path) -> set[str]:
    return {
        found.name
        for found in ast.walk(ast.parse(path.read_text()))
        if isinstance(found, ast.FunctionDef) and found.name.startswith("test_")
    }


def texts(path: Path) -> list[str]:
    return [
        found.value
        for found in ast.walk(ast.parse(path.read_text()))
        if isinstance(found, ast.Constant) and isinstance(found.value, str)
    ]


NAMES = {str(path.relative_to(TESTS)): names_in(path) for path in sorted(TESTS.rglob("test_*.py"))}


def numbers(name: str) -> set[str]:
    return {number.upper() for number in _IN_NAME.findall(name)}


def test_every_number_has_one_row_in_its_order():
    found = [number for number, _, _ in ROWS]
    headings = 2 * PAGE.count("\n## ")
    assert len(found) == len(re.findall(r"^\|", PAGE, re.MULTILINE)) - headings, "a line of a table is no row"
    assert [number for number, count in Counter(found).items() if count > 1] == []
    by_family = {family: [n for n in found if n[0] == family] for family in "NCKBV"}
    assert all(by_family.values())
    assert found == [n for family in by_family.values() for n in sorted(family, key=lambda n: int(n[1:]))]


def test_every_test_on_the_page_exists_and_carries_the_number():
    for number, _, cell in ROWS:
        nodes = _NODE.findall(cell)
        assert cell.count("`") == 2 * len(nodes), cell
        for file, name, parameter in nodes:
            assert name in NAMES.get(file, ()), f"{number}: no test {file}::{name}"
            if parameter:
                assert parameter == number, cell
                assert any(re.search(rf"\b{number}\b", text) for text in texts(TESTS / file)), cell
            else:
                assert number in numbers(name), f"{number}: {name} does not carry it"


def test_every_number_in_a_tests_name_is_on_the_page():
    listed = {number for number, _, _ in ROWS}
    used = {number for names in NAMES.values() for name in names for number in numbers(name)}
    assert used - listed == set()


def test_what_the_page_says_has_no_test_has_none():
    untested = {number for number, _, cell in ROWS if not _NODE.search(cell)}
    tested = {
        f"{file}::{name}": numbers(name) & untested
        for file, names in NAMES.items()
        if SIMULATOR not in file
        for name in names
    }
    assert {node: found for node, found in tested.items() if found} == {}
