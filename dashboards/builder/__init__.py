"""Writes the dashboards: `python -m dashboards.builder`. What is committed is what this writes; a test holds that."""

from pathlib import Path

from dashboards.builder import chargeback, devices, jobs
from dashboards.builder.panels import Json

FOLDER = Path(__file__).resolve().parent.parent


def dashboards() -> dict[str, Json]:
    """Every dashboard by its file name."""
    return {f"{one['uid']}.json": one for one in (jobs.dashboard(), devices.dashboard(), chargeback.dashboard())}
