"""Log lines on standard error, as logfmt or JSON: one event, one line."""

import json
import logging
import re
import sys
from datetime import UTC, datetime


class _Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in _fields(self, record).items())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(self, record), ensure_ascii=False)


def _fields(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, str]:
    fields = {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": record.getMessage(),
    }
    if record.exc_info:
        fields["exception"] = formatter.formatException(record.exc_info)
    return fields


def _quoted(value: str) -> str:
    return value if re.fullmatch(r"[\w.:+/-]+", value) else json.dumps(value, ensure_ascii=False)


def configure(*, level: str, form: str) -> None:
    """Send all logging to standard error. `level`: debug, info, warning, error; `form`: logfmt or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Logfmt())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
