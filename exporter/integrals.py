"""Amounts integrated over time, snapshot by snapshot, for those who bill by the byte-second. Pure: a fold.

What a snapshot tells holds until the next one: the left rectangle, on the monotonic clock. Guarantees:

* No sum ever falls while it is there, and each begins with 0 in the snapshot that first knows the amount.
* Time is never guessed across: two snapshots further apart than `Bounds.gap` leave the seconds between them out of
  every sum, and in `Integrals.gap`. While snapshots do not know an amount, its own sum stands still, and no other.
* What is gone is kept for `Bounds.retain` seconds after it was last seen, so that its last value is scraped, and then
  forgotten. What comes back in that time goes on from where it was.

It will not fill in what is not known, and it knows nothing of prices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from exporter.model import ContainerState, DomainState, Integral, Integrals, MemoryClass, Snapshot

K = TypeVar("K")
_Amounts = tuple[float | None, ...]

_CLASSES = tuple(MemoryClass)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long, in seconds, a snapshot may hold (`gap`), and what is gone is kept (`retain`)."""

    gap: float = 15.0
    retain: float = 300.0


def integrate(before: Integrals, snapshot: Snapshot, bounds: Bounds) -> Integrals:
    """The integrals up to a snapshot."""
    now = snapshot.monotonic
    elapsed = now - before.at if before.at is not None else 0.0
    covered = elapsed <= bounds.gap
    seconds = elapsed if covered else 0.0
    containers = {(state.name, state.domain): _of_container(state) for state in snapshot.containers}
    domains = {domain.key: _of_domain(domain) for device in snapshot.devices for domain in device.domains}
    since = now - bounds.retain
    return Integrals(
        _advanced(before.containers, containers, seconds=seconds, now=now, since=since),
        _advanced(before.devices, domains, seconds=seconds, now=now, since=since),
        before.gap if covered else before.gap + elapsed,
        now,
    )


def _advanced(
    before: Mapping[K, Integral], present: Mapping[K, _Amounts], *, seconds: float, now: float, since: float
) -> dict[K, Integral]:
    """The integrals after so many seconds of what was present before. What was last seen before `since` is dropped."""
    after = {}
    for key, amounts in present.items():
        known = before.get(key)
        sums = _begun(amounts) if known is None else _grown(known, amounts, seconds)
        after[key] = Integral(sums, amounts, now)
    for key, known in before.items():
        if key not in present and known.seen >= since:
            nothing = (None,) * len(known.rates)
            after[key] = Integral(_grown(known, nothing, seconds), nothing, known.seen)
    return after


def _begun(amounts: _Amounts) -> _Amounts:
    return tuple([None if amount is None else 0.0 for amount in amounts])


def _grown(known: Integral, amounts: _Amounts, seconds: float) -> _Amounts:
    """The sums, each with its rate's share of the seconds; those whose amount is known for the first time begin."""
    return tuple(
        [
            (None if amount is None else 0.0) if total is None else total if rate is None else total + rate * seconds
            for total, rate, amount in zip(known.sums, known.rates, amounts, strict=True)
        ]
    )


def _of_container(state: ContainerState) -> _Amounts:
    """The amounts in the order of `Amount`."""
    used, requested, limit = state.used, state.requested, state.limit
    committed = used if requested is None else requested if used is None else max(used, requested)
    overrun = None if used is None or limit is None else max(0, used - limit)
    overrunning = None if overrun is None else int(overrun > 0)
    return (used, requested, committed, overrun, overrunning, state.mps_thread_ratio)


def _of_domain(state: DomainState) -> _Amounts:
    """The bytes of each class in the order of `MemoryClass`."""
    return tuple([state.classes.get(memory_class) for memory_class in _CLASSES])
