"""Keys that are not ours but look as if they were meant to be: a typing error must not pass for "no cap".

Guarantees that every key below our prefixes that we don't know is reported, if Kubernetes allows it at all, and that
the keys which other schedulers and device plugins put on pods are not. Says what to write where that can be told, and
costs little for any text.
"""

import difflib
from collections.abc import Collection

from exporter.caps.keys import KAI_PREFIX, OWN_PREFIX, ContainerKey, PodKey, in_full, parsed, prefix_of
from exporter.caps.quantities import shown
from exporter.caps.requests import AnnotationError, ErrorReason

_LONGEST = 320  # characters of an annotation key in Kubernetes
_FAMILIAR_DOMAINS = frozenset({"", "nvidia.com", "gpu-fractioning.nvidia.com", "kai.scheduler", "run.ai", "runai"})
_STEMS = ("gpumem", "gpufrac", "gpucompute", "gpuportion", "gpusdevices", "activethread", "onoverrun")
_COMMON_WORDS = (PodKey.MPS, PodKey.JOB, PodKey.RECEIVED_TYPE)  # or not written by people: elsewhere they mean nothing
_ALIKE = 0.85  # of difflib's ratio; one wrong, missing or swapped letter in ten stays above it


def near_miss(key: str, containers: Collection[str], nvidia: str) -> AnnotationError | None:
    """What is wrong with a key that isn't one of ours; None when it has nothing to do with us."""
    if len(key) > _LONGEST:
        return None
    if (right := _in_right_case(key, nvidia)) is not None:
        return _error("", key, ErrorReason.WRONG_CASE, f"differs from {right} in case or blanks; write {right}")
    for prefix in dict.fromkeys((nvidia, KAI_PREFIX, OWN_PREFIX)):
        if key.startswith(prefix):
            return _below_prefix(key, key[len(prefix) :], containers, nvidia)
    domain, slash, name = key.partition("/")
    if not slash:
        domain, name = "", key
    if (found := _container_key(name)) is not None:
        right = in_full(*found, nvidia)
        return _error(
            "", key, ErrorReason.WRONG_PREFIX, f"does not begin with {prefix_of(found[0], nvidia)}; write {right}"
        )
    return _elsewhere(key, domain, name, nvidia)


def _below_prefix(key: str, rest: str, containers: Collection[str], nvidia: str) -> AnnotationError:
    """A key under one of our prefixes whose end is not one that belongs there."""
    container = max((name for name in containers if rest.startswith(f"{name}.")), key=len, default="")
    found = _container_key(f"container.{rest}")
    if found is not None:
        right = in_full(*found, nvidia)
        return _error(
            container,
            key,
            ErrorReason.WRONG_PREFIX,
            f"does not begin with {prefix_of(found[0], nvidia)}; write {right}",
        )
    if any(f".{rest}" == suffix for suffix in ContainerKey):
        return _error(
            "",
            key,
            ErrorReason.UNKNOWN_CONTAINER,
            "names no container; write the container's name before the last part",
        )
    ending = rest[len(container) :] if container else f".{rest.partition('.')[2]}"
    close = difflib.get_close_matches(ending[:64], list(ContainerKey), n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(ContainerKey)}"
    return _error(container, key, ErrorReason.UNKNOWN_SUFFIX, f"does not end in anything known; {hint}")


def _elsewhere(key: str, domain: str, name: str, nvidia: str) -> AnnotationError | None:
    """A key outside our prefixes."""
    familiar = domain in _FAMILIAR_DOMAINS or domain == nvidia.partition("/")[0]
    ours = f"{domain}/" == OWN_PREFIX.partition("container.")[0]
    bare = {pod_key.rpartition("/")[2]: str(pod_key) for pod_key in PodKey if pod_key not in _COMMON_WORDS}
    if name in bare and (familiar or ours or name == "on-overrun"):
        return _error("", key, ErrorReason.WRONG_PREFIX, f"is not read; write {bare[name]}")
    squashed = _squashed(name)
    known = {_squashed(text): right for text, right in bare.items()} | {
        _squashed(suffix): in_full(suffix, "<container>", nvidia) for suffix in ContainerKey
    }
    close = difflib.get_close_matches(squashed[:64], known, n=1, cutoff=_ALIKE) if familiar or ours else []
    if not ours and not close and not (familiar and _has_stem(squashed, anywhere=bool(domain))):
        return None
    hint = f"did you mean {known[close[0]]}?" if close else "the keys that are read are listed in docs/annotations.md"
    return _error("", key, ErrorReason.MISSPELT_KEY, f"is not read; {hint}")


def _has_stem(squashed: str, *, anywhere: bool) -> bool:
    """Whether the name speaks of what our keys are about. A bare name must begin so: others' hold such words too."""
    return any(stem in squashed if anywhere else squashed.startswith(stem) for stem in _STEMS)


def _in_right_case(key: str, nvidia: str) -> str | None:
    """The key of ours that this one is when case and surrounding blanks don't count."""
    lower = key.strip().lower()
    found = parsed(lower, nvidia.lower())
    if found is None:
        return None
    right = str(found) if isinstance(found, PodKey) else in_full(*found, nvidia)
    return right if right != key else None


def _container_key(name: str) -> tuple[ContainerKey, str] | None:
    """The key and container of a name of the form container.<name><suffix>, whatever stands before it."""
    head, _, rest = name.partition(".")
    if head not in ("container", "containers"):
        return None
    for suffix in ContainerKey:
        if rest.endswith(suffix) and len(rest) > len(suffix):
            return suffix, rest[: -len(suffix)]
    return None


def _squashed(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _error(container: str, key: str, reason: ErrorReason, problem: str) -> AnnotationError:
    return AnnotationError(container, printable(key), reason, f"{printable(key)} {problem[:400]}.".replace("?.", "?"))


def printable(key: str) -> str:
    """A key as it may stand in a sentence: itself, unless Kubernetes would not have allowed it."""
    return key if len(key) <= _LONGEST and key.isascii() and key.isprintable() else shown(key)
