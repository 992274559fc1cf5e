"""A pod's annotations sorted by what they are about, and the list in which faults are gathered.

Guarantees that no key that was meant for podgpu disappears: it is found again under its container or under the pod, or
it is an error. Values are not looked at. What comes out does not depend on the order of the annotations.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from exporter.caps.keys import Key, PodKey, parsed
from exporter.caps.near_misses import near_miss, printable
from exporter.caps.quantities import Fault, shown
from exporter.caps.requests import AnnotationError, ErrorReason

_MOST_ERRORS = 50  # on one pod; hundreds say no more to a person, and would be anybody's to cause
_MOST_STRANGERS = 300  # keys of others that are compared with ours


class Entry(NamedTuple):
    """One annotation."""

    key: str
    text: str


class Faults:
    """The faults of one pod, as they are found."""

    def __init__(self) -> None:
        self._errors: set[AnnotationError] = set()

    def add(self, container: str, entry: Entry, fault: Fault) -> None:
        """Note that a value, or what it says together with others, can't be used."""
        key = printable(entry.key)
        self._errors.add(AnnotationError(container, key, fault.reason, f"{key} {fault.problem}."))

    def add_error(self, error: AnnotationError) -> None:
        """Note an error that is complete."""
        self._errors.add(error)

    def sorted(self) -> tuple[AnnotationError, ...]:
        """All faults in a fixed order; where there are too many, the first ones and how many more there are."""
        errors = sorted(self._errors)
        if len(errors) <= _MOST_ERRORS:
            return tuple(errors)
        more = f"The pod's annotations have {len(errors) - _MOST_ERRORS} further errors; correct these first."
        return (*errors[:_MOST_ERRORS], AnnotationError("", "", ErrorReason.TOO_MANY, more))


class Annotations(NamedTuple):
    """The annotations that are podgpu's, by container and key, and those of the whole pod by key."""

    containers: Mapping[str, Mapping[Key, Entry]]
    pod: Mapping[Key, Entry]

    def view(self, container: str, *, shorthands: bool) -> dict[Key, Entry]:
        """What is said of one container, with the pod's shorthands if they are about it."""
        found: dict[Key, Entry] = {**self.containers.get(container, {})}
        if shorthands:
            found.update(self.pod)
        return found


def sort(annotations: Mapping[str, str], containers: Collection[str], nvidia: str, faults: Faults) -> Annotations:
    """Sort a pod's annotations. `containers` are the names that the pod declares, `nvidia` the prefix in use."""
    by_container: dict[str, dict[Key, Entry]] = {}
    pod: dict[Key, Entry] = {}
    strangers = 0
    for text in sorted(annotations):
        entry = Entry(text, annotations[text])
        found = parsed(text, nvidia)
        if isinstance(found, PodKey):
            pod[found] = entry
        elif found is not None and found[1] in containers:
            by_container.setdefault(found[1], {})[found[0]] = entry
        elif found is not None:
            faults.add("", entry, unknown_container("is about", found[1], containers))
        elif strangers < _MOST_STRANGERS:
            strangers += 1
            if (error := near_miss(text, containers, nvidia)) is not None:
                faults.add_error(error)
        elif strangers == _MOST_STRANGERS:
            strangers += 1
            more = f"The pod has over {_MOST_STRANGERS} other annotations; those after {shown(text)} were not checked."
            faults.add_error(AnnotationError("", "", ErrorReason.TOO_MANY, more))
    return Annotations(by_container, pod)


def unknown_container(verb: str, name: str, containers: Collection[str]) -> Fault:
    """The fault that an annotation `verb` ("names", "is about") a container that the pod does not declare."""
    known = ", ".join(shown(container, most=63) for container in list(containers)[:5]) or "none"
    problem = f"{verb} {shown(name, most=63)}, but the pod's containers are {known}"
    return Fault(ErrorReason.UNKNOWN_CONTAINER, problem)
