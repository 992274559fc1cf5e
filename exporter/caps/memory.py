"""The memory of one container from every form in which it can be asked for.

Rather no cap than one that nobody wrote: when a memory key of a container can't be used or contradicts another, the
container has no memory request at all, and the faults say why. The one exception is a request above the limit, which
is clamped to it.

On a pod that KAI bound, the shorthand and what was made of it stand side by side: bytes then go before the fraction
that they were computed from, because the scheduler promised those bytes.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from exporter.caps.annotations import Entry, Faults
from exporter.caps.keys import ContainerKey, Key, PodKey
from exporter.caps.quantities import Fault, mebibytes, quantity, quantity_text, ratio, ratio_text
from exporter.caps.requests import Amount, ErrorReason, Share

_portion_limit = partial(ratio, most_digits=5)
_PARSERS: Mapping[Key, Callable[[str], int | Fraction | Fault]] = {
    ContainerKey.MEMORY_REQUEST: quantity,
    ContainerKey.MEMORY_LIMIT: quantity,
    ContainerKey.PORTION_LIMIT: _portion_limit,
    PodKey.MEMORY: mebibytes,
    PodKey.MEMORY_LIMIT: partial(quantity, unit_required=True),
    PodKey.FRACTION: ratio,
    PodKey.FRACTION_LIMIT: _portion_limit,
}
MEMORY_KEYS = frozenset(_PARSERS)
SHORTHANDS = frozenset(key for key in _PARSERS if isinstance(key, PodKey))
_REQUESTS: tuple[Key, ...] = (ContainerKey.MEMORY_REQUEST, PodKey.MEMORY, PodKey.FRACTION)  # the first one holds
_LIMITS: tuple[Key, ...] = (
    ContainerKey.MEMORY_LIMIT,
    PodKey.MEMORY_LIMIT,
    ContainerKey.PORTION_LIMIT,
    PodKey.FRACTION_LIMIT,
)


class Memory(NamedTuple):
    """Memory asked for, per device, and the keys that say so."""

    requested: Amount
    limit: Amount
    sources: tuple[str, ...]


def memory(container: str, said: Mapping[Key, Entry], faults: Faults) -> Memory | None:
    """What the container asks for; None where it asks for nothing or in a way that can't be used."""
    amounts: dict[Key, Amount] = {}
    usable = True
    for key, parse in _PARSERS.items():
        if key not in said:
            continue
        value = parse(said[key].text)
        if isinstance(value, Fault):
            faults.add(container, said[key], value)
            usable = False
        else:
            amounts[key] = Share(value) if isinstance(value, Fraction) else value
    if not usable or not amounts:
        return None
    contradictions = list(_contradictions(amounts, said))
    for key, fault in contradictions:
        faults.add(container, said[key], fault)
    return None if contradictions else _memory(container, amounts, said, faults)


def _memory(container: str, amounts: Mapping[Key, Amount], said: Mapping[Key, Entry], faults: Faults) -> Memory:
    request_key = next((key for key in _REQUESTS if key in amounts), None)
    limit_key = next((key for key in _LIMITS if key in amounts), None)
    used = [key for key in (request_key, limit_key) if key is not None]
    requested, limit = amounts[used[0]], amounts[used[-1]]
    if request_key is not None and limit_key is not None and exceeds(requested, limit):
        problem = (
            f"is {text_of(requested)}, above {said[limit_key].key} with {text_of(limit)}; the limit is taken for both"
        )
        faults.add(container, said[request_key], Fault(ErrorReason.REQUEST_ABOVE_LIMIT, problem))
        requested = limit
    return Memory(requested, limit, tuple(sorted(said[key].key for key in used)))


def _contradictions(amounts: Mapping[Key, Amount], said: Mapping[Key, Entry]) -> list[tuple[Key, Fault]]:
    """The keys that can't stand beside the others, each with why."""
    found: list[tuple[Key, Fault]] = []

    def conflict(key: Key, problem: str) -> None:
        found.append((key, Fault(ErrorReason.CONFLICT, problem)))

    def needs(key: Key, other: PodKey) -> None:
        if key in amounts and other not in amounts:
            found.append(
                (key, Fault(ErrorReason.INCOMPLETE, f"has no meaning without {other}; add that or remove this"))
            )

    def same(key: Key, other: Key) -> None:
        if key in amounts and other in amounts and amounts[key] != amounts[other]:
            conflict(key, f"and {said[other].key} say different things; remove one of them")

    if PodKey.FRACTION in amounts and PodKey.MEMORY in amounts:
        conflict(PodKey.FRACTION, f"can't stand beside {PodKey.MEMORY}; remove one of them")
    needs(PodKey.MEMORY_LIMIT, PodKey.MEMORY)
    needs(PodKey.FRACTION_LIMIT, PodKey.FRACTION)
    needs(ContainerKey.PORTION_LIMIT, PodKey.FRACTION)
    same(PodKey.MEMORY, ContainerKey.MEMORY_REQUEST)
    same(PodKey.MEMORY_LIMIT, ContainerKey.MEMORY_LIMIT)
    same(PodKey.FRACTION_LIMIT, ContainerKey.PORTION_LIMIT)
    if ContainerKey.MEMORY_LIMIT in amounts:
        key = said[ContainerKey.MEMORY_LIMIT].key
        if PodKey.MEMORY in amounts and PodKey.MEMORY_LIMIT not in amounts:
            conflict(PodKey.MEMORY, f"can't stand beside {key}; write {PodKey.MEMORY_LIMIT} instead of that")
        # The scheduler writes both when it turns a fraction and its limit into bytes; a limit alone is the author's.
        bound = ContainerKey.MEMORY_REQUEST in amounts and not amounts.keys().isdisjoint(
            {ContainerKey.PORTION_LIMIT, PodKey.FRACTION_LIMIT}
        )
        if PodKey.FRACTION in amounts and not bound:
            conflict(PodKey.FRACTION, f"can't stand beside {key}; write {PodKey.FRACTION_LIMIT} instead of that")
    return found


def exceeds(first: Amount, second: Amount) -> bool:
    """Whether an amount is above another of the same kind. Bytes and shares compare only on a device: see `limits`."""
    if isinstance(first, Share) and isinstance(second, Share):
        return first.ratio > second.ratio
    return isinstance(first, int) and isinstance(second, int) and first > second


def text_of(amount: Amount) -> str:
    """An amount as a person reads it."""
    return f"{ratio_text(amount.ratio)} of the device" if isinstance(amount, Share) else quantity_text(amount)
