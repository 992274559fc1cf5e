"""What a pod is told about its caps: where they stand, what was wrong with how it asked, what stands in the way. Pure.

Guarantees: each text says what is so and what to do about it; one notice for each pod and matter, however many GPUs and
containers it is about; no text holds a number that changes by itself, so that the same state is the same notice.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from enforcer.model import Cap, CapKey, CapState, Gpu, PodId, Seen
from enforcer.notices import Notice, NoticeReason, notice
from exporter.caps.book import Decided
from exporter.caps.quantities import quantity_text
from exporter.caps.requests import AnnotationError
from exporter.errors import Failure

_MOST_SENTENCES = 5
_SAID = {
    CapState.APPLIED: (NoticeReason.CAP_APPLIED, "In force, as read back: {}."),
    CapState.PENDING: (
        NoticeReason.CAP_PENDING,
        (
            "Not in force yet: {}. What the job holds, or how it connected, stands in the way; it goes on as memory is "
            "freed. Start the job anew to have it at once."
        ),
    ),
    CapState.LATE: (
        NoticeReason.CAP_LATE,
        (
            "In force too late: {}. The job had begun before, and what it had then is not under the cap. Start it "
            "anew, with an init container podgpu-gate, which waits for the cap."
        ),
    ),
    CapState.FAILED: (
        NoticeReason.CAP_FAILED,
        "Could not be applied: {}. It is tried again; the log of podgpu's enforcer on the node says why it failed.",
    ),
}


def standings(caps: Iterable[Cap], states: Mapping[CapKey, CapState], seen: Seen) -> Sequence[Notice]:
    """Where the caps of each pod stand. A cap that nothing can be done about yet is told only to a pod that waits."""
    by_state: dict[tuple[PodId, CapState], list[Cap]] = defaultdict(list)
    for cap in sorted(caps, key=lambda cap: cap.key):
        by_state[cap.key.pod, states.get(cap.key, CapState.WANTED)].append(cap)
    found: list[Notice] = []
    for (pod, state), mine in by_state.items():
        if state in _SAID:
            reason, text = _SAID[state]
            found.append(notice(pod, reason, text.format(_listed(mine))))
        elif state is CapState.UNSUPPORTED:
            why = dict.fromkeys(_unsupported(seen.gpus.get(cap.key.gpu_uuid), seen) for cap in mine)
            text = f"Can't be applied on this node: {_listed(mine)}. {' '.join(why)}"
            found.append(notice(pod, NoticeReason.CAP_UNSUPPORTED, text))
        elif mine[0].gated and pod.uid not in seen.records.receipts:
            text = f"The gate waits until these are in force: {_listed(mine)}."
            found.append(notice(pod, NoticeReason.GATE_WAITING, text))
    return found


def _unsupported(gpu: Gpu | None, seen: Seen) -> str:
    """Why nothing can apply a cap on a GPU, and what could be changed."""
    if gpu is None:
        return "The GPU can't be read now; podgpu_device_up and podgpu_source_up of the node's exporter tell why."
    if gpu.mig:
        return "GPUs in MIG mode have no limits but their instances' own size: ask for an instance of the right size."
    if not gpu.mps:
        return "The GPU is older than Volta, for which MPS has no limits."
    if not seen.daemons:
        return (
            "That needs limits by control group (driver 615, cgroup v2) or an MPS control daemon on the node: ask its "
            "operator, or choose a node that has one."
        )
    return "No MPS server of the node is known to have exactly this GPU: its operator can start one that has."


def annotation_errors(pod: PodId, errors: Collection[AnnotationError]) -> Sequence[Notice]:
    """What is wrong with a pod's annotations: the first few sentences, and how many more there are."""
    return _joined(pod, NoticeReason.ANNOTATION_ERROR, [error.sentence for error in sorted(errors)])


def policy(pod: PodId, decided: Iterable[Decided]) -> Sequence[Notice]:
    """What the cluster's policy made of a pod's requests."""
    sentences: list[str] = []
    for one in decided:
        container = one.decision.request.container
        sentences += [f"{container}: {note.sentence}" for note in one.decision.notes]
        if one.limits.clamped:
            sentences.append(f"{container}: More was requested than the limit allows; the request is the limit.")
    return _joined(pod, NoticeReason.POLICY, sentences)


def unusable_daemon(pods: Iterable[PodId], pipe_directory: str, failure: Failure) -> Sequence[Notice]:
    """An MPS daemon that pods with caps wait for, or are under, and that does not do what it is told."""
    text = (
        f"The MPS control daemon at {pipe_directory} can't be used ({failure.reason}), so caps can't be set or checked "
        "there. What is set stays set. The node's operator should look at its control.log; podgpu does not end a "
        "daemon that has clients."
    )
    return [notice(pod, NoticeReason.DAEMON, text) for pod in sorted(set(pods))]


def _joined(pod: PodId, reason: NoticeReason, sentences: Sequence[str]) -> Sequence[Notice]:
    unique = list(dict.fromkeys(sentences))
    if not unique:
        return ()
    more = len(unique) - _MOST_SENTENCES
    text = " ".join(unique[:_MOST_SENTENCES]) + (f" And {more} more of these." if more > 0 else "")
    return [notice(pod, reason, text)]


def _listed(caps: Sequence[Cap]) -> str:
    """What the caps are: containers with the same cap on several GPUs once."""
    gpus: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cap in caps:
        gpus[cap.key.container, _amounts(cap)].append(cap.key.gpu_uuid)
    return "; ".join(
        f"{container} {amounts} on {uuids[0]}{f' and {len(uuids) - 1} more' if len(uuids) > 1 else ''}"
        for (container, amounts), uuids in gpus.items()
    )


def _amounts(cap: Cap) -> str:
    memory = [quantity_text(cap.limit)] if cap.limit is not None else []
    threads = [f"{cap.percentage} % of threads"] if cap.percentage is not None else []
    return " and ".join(memory + threads)
