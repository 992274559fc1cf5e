"""How protocol 3 prints lists: as csv, or as a table for people, which cuts long pids."""

from collections.abc import Sequence

_WIDTHS = {
    "name": 17,
    "server": 14,
    "server-status": 15,
    "pinned-memory-limit": 22,
    "active-thread-percentage": 27,
    "pid": 9,
}
_LONGEST_PID = 6


def printed(columns: Sequence[str], rows: Sequence[Sequence[object]], form: str) -> str:
    """A list in a `--format`: table, csv, or either with `,noheader`."""
    kind, _, header = form.partition(",")
    if kind == "csv":
        lines = [",".join(str(value) for value in row) for row in rows]
        heading = ",".join(columns)
    else:
        lines = [
            _line(columns, [_short(column, value) for column, value in zip(columns, row, strict=True)]) for row in rows
        ]
        heading = _line(columns, [column.upper().replace("-", " ") for column in columns])
    return "".join(f"{line}\n" for line in ([] if header == "noheader" else [heading]) + lines)


def is_format(form: str) -> bool:
    """Whether a `--format` can be printed."""
    return form in ("table", "csv", "table,noheader", "csv,noheader")


def _line(columns: Sequence[str], values: Sequence[str]) -> str:
    return " ".join(
        f"{value:<{_WIDTHS.get(name, 16) - 1}}" for name, value in zip(columns, values, strict=True)
    ).rstrip()


def _short(column: str, value: object) -> str:
    text = str(value)
    return f"{text[: _LONGEST_PID - 3]}..." if column == "pid" and len(text) > _LONGEST_PID else text
