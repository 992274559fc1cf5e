"""One answer of one source."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from exporter.errors import Failure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """One answer of one source: a value or a failure, never both and never neither."""

    source: str
    outcome: T | Failure
    seconds: float = 0.0

    @property
    def value(self) -> T | None:
        """The value, or None when the source failed."""
        return None if isinstance(self.outcome, Failure) else self.outcome

    @property
    def failure(self) -> Failure | None:
        """The failure, or None when the source answered."""
        return self.outcome if isinstance(self.outcome, Failure) else None
