"""Which containers are shown, and in which order. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, unique

from exporter.top.view import Container, Gpu, View


@unique
class Sort(StrEnum):
    """What the containers of a GPU are sorted by: the largest first, names from A to Z, and the unknown last."""

    MEMORY = "memory"
    CAP = "cap"
    OVERRUN = "overrun"
    THREADS = "threads"
    SM = "sm"
    NAME = "name"


_VALUES: Mapping[Sort, Callable[[Container], float | None]] = {
    Sort.MEMORY: lambda container: container.used,
    Sort.CAP: lambda container: container.of_limit,
    Sort.OVERRUN: lambda container: container.overrun,
    Sort.THREADS: lambda container: container.threads,
    Sort.SM: lambda container: container.sm,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """`text` is looked for in the container's name, whatever the case; `namespace` must be the whole one."""

    sort: Sort = Sort.MEMORY
    reverse: bool = False
    text: str = ""
    namespace: str = ""

    @property
    def is_everything(self) -> bool:
        """Whether no container is left out."""
        return not self.text and not self.namespace


def chosen(view: View, choice: Choice) -> View:
    """The view with the containers that were asked for, sorted. GPUs stay, also without one of them."""
    return replace(view, gpus=tuple(_of_gpu(gpu, choice) for gpu in view.gpus))


def _of_gpu(gpu: Gpu, choice: Choice) -> Gpu:
    wanted = choice.text.casefold()
    found = [
        container
        for container in gpu.containers
        if wanted in container.id.name.casefold() and choice.namespace in ("", container.id.namespace)
    ]
    return replace(gpu, containers=tuple(_sorted(found, choice)))


def _sorted(found: list[Container], choice: Choice) -> list[Container]:
    by_name = sorted(found, key=lambda container: container.id)
    if choice.sort is Sort.NAME:
        return by_name[::-1] if choice.reverse else by_name
    value = _VALUES[choice.sort]
    known = [(amount, container) for container in by_name if (amount := value(container)) is not None]
    known.sort(key=lambda entry: entry[0] if choice.reverse else -entry[0])
    return [container for _, container in known] + [container for container in by_name if value(container) is None]
