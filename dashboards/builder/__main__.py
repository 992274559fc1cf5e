"""`python -m dashboards.builder` writes the dashboards anew."""

import json

from dashboards.builder import FOLDER, dashboards

for name, dashboard in dashboards().items():
    (FOLDER / name).write_text(json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n")
