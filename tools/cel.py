"""Evaluates expressions of admission policies; run by the environment of tools.deploy_tools, which has the evaluator.

Reads a JSON object: `variables` by name, `steps` as pairs of a name and an expression. Each step's value can be used by
the next ones, as `variables.NAME`. Writes the values as a JSON object. What only an API server has (`authorizer`, the
types under `Object`) is not here.
"""

import json
import sys
from typing import Any


def main() -> int:
    """Evaluate. Exit codes: 0 done, 1 an expression can't be used, in one line."""
    from cel_expr_python import cel  # type: ignore[import-not-found]

    asked: dict[str, Any] = json.load(sys.stdin)
    names = [*asked["variables"], "variables"]
    environment = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))
    values: dict[str, Any] = {}
    for name, expression in asked["steps"]:
        try:
            found = environment.compile(expression).eval(data={**asked["variables"], "variables": values})
            problem = str(found) if found.type() == cel.Type.ERROR else ""
            values[name] = found.plain_value()
        except Exception as error:  # noqa: BLE001 - whatever the evaluator raises is about the expression
            problem = str(error)
        if problem:
            print(f"{name}: {' '.join(problem.split())}", file=sys.stderr)
            return 1
    json.dump(values, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
