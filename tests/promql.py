"""Which labels a query's answer has, and what in it can't be: a name, a label or a match that does not exist.

A query with a misspelt label is valid and answers nothing, for ever. Here every metric's labels are known, from the
catalogue, so that such a query is an error.
"""

import re
from collections.abc import Iterator, Mapping

import promql_parser as promql

from exporter.metrics.catalog import CONTAINER, FAMILIES
from exporter.model import Isolation, MemoryClass

TARGET = frozenset({"cluster", "job", "instance", "node"})  # what a scrape adds; `cluster` may be missing everywhere
_OF_A_POD = frozenset({"namespace", "pod", "container"})  # the exporter's own, where a device's series have none
_SCALAR = None
_LABELLESS = {"absent", "vector", "absent_over_time"}
_SCALARS = {"scalar", "time", "pi"}
_SETS = ("and", "or", "unless")
_VALUES = {"class": {one.value for one in MemoryClass}, "isolation": {*(one.value for one in Isolation), "memory"}}

_DCGM = ("UUID", "gpu", "device", "modelName", "Hostname", "GPU_I_ID", "namespace", "pod", "container")
_FOREIGN: Mapping[str, tuple[str, ...]] = {
    "up": (),
    "ALERTS": ("alertname", "alertstate", "severity", *CONTAINER),
    "podgpu_pod_labels": ("namespace", "pod", "label_team"),  # of an exporter with --pods.label=team
    "DCGM_FI_DEV_POWER_USAGE": _DCGM,
    "DCGM_FI_DEV_GPU_UTIL": _DCGM,
}

Labels = frozenset[str]


class QueryError(Exception):
    """What can't be in a query, in one line."""


def known() -> dict[str, Labels]:
    """The labels of every metric that a scrape brings."""
    families = {family.name: family.labels for family in FAMILIES}
    return {name: TARGET | set(labels) for name, labels in {**_FOREIGN, **families}.items()}


def metrics(query: str) -> set[str]:
    """The metrics that a query asks for."""
    return {selector.name for selector in _selectors(promql.parse(query))}


def labels_of(query: str, metrics_known: Mapping[str, Labels]) -> Labels:
    """The labels that the answer may have. Raises QueryError."""
    try:
        expression = promql.parse(query)
    except ValueError as error:
        raise QueryError(f"{error}: {query}") from None
    return _labels(expression, metrics_known) or frozenset()


def functions(query: str) -> Iterator[tuple[str, set[str]]]:
    """Each function call of a query with the metrics inside it."""
    for node in _nodes(promql.parse(query)):
        if isinstance(node, promql.Call):
            yield node.func.name, {selector.name for selector in _selectors(node)}


def _children(node: promql.Expr) -> list[promql.Expr]:
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    return [node.expr] if hasattr(node, "expr") else []


def _nodes(node: promql.Expr) -> Iterator[promql.Expr]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _selectors(node: promql.Expr) -> Iterator[promql.VectorSelector]:
    return (one for one in _nodes(node) if isinstance(one, promql.VectorSelector))


def _labels(node: promql.Expr, names: Mapping[str, Labels]) -> Labels | None:
    if isinstance(node, promql.VectorSelector):
        return _selected(node, names)
    if isinstance(node, promql.AggregateExpr):
        return _aggregated(node, names)
    if isinstance(node, promql.Call):
        return _called(node, names)
    if isinstance(node, promql.BinaryExpr):
        return _joined(node, names)
    if isinstance(node, promql.NumberLiteral | promql.StringLiteral):
        return _SCALAR
    return _labels(_children(node)[0], names)


def _selected(node: promql.VectorSelector, names: Mapping[str, Labels]) -> Labels:
    if node.name not in names:
        raise QueryError(f"there is no metric {node.name}")
    for matcher in node.matchers.matchers:
        _has(names[node.name], {matcher.name}, f"{node.name}")
        for value in matcher.value.split("|"):
            if matcher.name in _VALUES and value not in _VALUES[matcher.name]:
                raise QueryError(f"{node.name}: {matcher.name} is never {value}")
    return names[node.name]


def _aggregated(node: promql.AggregateExpr, names: Mapping[str, Labels]) -> Labels:
    inside = _labels(node.expr, names) or frozenset()
    given = set(node.modifier.labels) if node.modifier is not None else set()
    without = node.modifier is not None and node.modifier.type == promql.AggModifierType.Without
    _has(inside, given - _OF_A_POD if without else given, f"{node.op} over {node.expr}")
    if str(node.op) in ("topk", "bottomk"):
        return inside
    return inside - given if without else frozenset(given)


def _called(node: promql.Call, names: Mapping[str, Labels]) -> Labels | None:
    name = node.func.name
    if name in _SCALARS:
        for argument in node.args:
            _labels(argument, names)
        return _SCALAR
    found = [inside for argument in node.args if (inside := _labels(argument, names)) is not None]
    labels = frozenset().union(*found)
    if name in ("label_replace", "label_join"):
        texts = [argument.val for argument in node.args if isinstance(argument, promql.StringLiteral)]
        sources = [texts[2]] if name == "label_replace" else texts[2:]
        _has(labels, {source for source in sources if source}, name)
        return labels | {texts[0]}
    return frozenset() if name in _LABELLESS else labels


def _joined(node: promql.BinaryExpr, names: Mapping[str, Labels]) -> Labels | None:
    left, right = _labels(node.lhs, names), _labels(node.rhs, names)
    if left is None or right is None:
        return left if right is None else right
    modifier = node.modifier
    matching = modifier.matching if modifier is not None else None
    if matching is not None:
        on = set(matching.labels)
        if matching.type == promql.LabelModifierType.Include:
            for side, labels in ((node.lhs, left), (node.rhs, right)):
                if not (str(node.op) == "or" and "vector" in str(side)):
                    _has(labels, on, f"{node.op} on, {side}")
        else:
            _has(left | right, on, f"{node.op} ignoring")
    if str(node.op) in _SETS:
        if matching is None and str(node.op) != "or" and left != right:
            raise QueryError(f"{node.op} never matches: {sorted(left ^ right)} is on one side only: {node}")
        return left | right if str(node.op) == "or" else left
    if matching is None:
        if left != right:
            raise QueryError(f"{node.op} never matches: {sorted(left ^ right)} is on one side only: {node}")
        return left
    extra = set(modifier.group_labels or ())
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        _has(right, extra, "group_left")
        return left | extra
    if modifier.card == promql.VectorMatchCardinality.OneToMany:
        _has(left, extra, "group_right")
        return right | extra
    return frozenset(on) if matching.type == promql.LabelModifierType.Include else left - on


def _has(labels: Labels, wanted: set[str], where: str) -> None:
    missing = wanted - labels - {"cluster"}
    if missing:
        raise QueryError(f"{where}: there is no label {', '.join(sorted(missing))}, only {', '.join(sorted(labels))}")


def ranges(query: str) -> list[str]:
    """The ranges of a query, such as 5m, as they are written."""
    return re.findall(r"\[([^\]:]+)", query)
