"""What a pod is told: what is so, and what to do about it."""

import re
from fractions import Fraction

import pytest

from enforcer.model import Cap, CapKey, CapState, Gpu, PodId, Records, Seen
from enforcer.notices import LONGEST, NoticeReason
from enforcer.wording import annotation_errors, policy, standings, unusable_daemon
from exporter.caps import contract
from exporter.caps.book import Decided
from exporter.caps.policy import Policy, Rule, apply
from exporter.caps.requests import CapRequest, Reaction, Share, limits
from exporter.errors import Failure, Reason
from exporter.model import ContainerKind, MpsDaemon, PodContainer

GIB = 1 << 30
POD = PodId("team", "job", "uid-1", "uid-1")


def cap(gpu="GPU-0", *, container="main", limit=10 * GIB, percentage=None, gated=False):
    return Cap(CapKey(POD, container, gpu), limit, percentage, gated=gated)


def seen(*gpus, **more):
    return Seen(frozenset({POD.uid}), {gpu.uuid: gpu for gpu in gpus}, **more)


def told(caps, state, seen_now=None):
    return standings(caps, {found.key: state for found in caps}, seen_now or seen(Gpu("GPU-0")))


@pytest.mark.parametrize(
    ("state", "reason", "does"),
    [
        (CapState.APPLIED, NoticeReason.CAP_APPLIED, "read back"),
        (CapState.PENDING, NoticeReason.CAP_PENDING, "Start the job anew"),
        (CapState.LATE, NoticeReason.CAP_LATE, "podgpu-gate"),
        (CapState.FAILED, NoticeReason.CAP_FAILED, "log of podgpu's enforcer"),
        (CapState.UNSUPPORTED, NoticeReason.CAP_UNSUPPORTED, "driver 615"),
    ],
)
def test_each_state_is_told_with_what_to_do(state, reason, does):
    (found,) = told([cap(percentage=25)], state)
    assert found.reason is reason
    assert "main 10Gi and 25 % of threads on GPU-0" in found.message
    assert does in found.message


def test_one_notice_for_a_pod_however_many_gpus_and_containers():
    caps = [cap(f"GPU-{number}", container=name) for number in range(8) for name in ("a", "b")]
    (found,) = told(caps, CapState.APPLIED)
    assert "a 10Gi on GPU-0 and 7 more; b 10Gi on GPU-0 and 7 more" in found.message


def test_what_may_still_come_is_told_only_to_a_pod_that_waits_for_it():
    assert told([cap()], CapState.WANTED) == []
    (found,) = told([cap(gated=True)], CapState.WANTED)
    assert found.reason is NoticeReason.GATE_WAITING
    let_in = seen(Gpu("GPU-0"), records=Records(receipts={POD.uid: 1.0}))
    assert told([cap(gated=True)], CapState.WANTED, let_in) == []


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (seen(), "can't be read"),
        (seen(Gpu("GPU-0", mig=True, mps=False)), "MIG"),
        (seen(Gpu("GPU-0", mps=False)), "Volta"),
        (seen(Gpu("GPU-0")), "MPS control daemon"),
        (seen(Gpu("GPU-0"), daemons={"/run/mps": MpsDaemon(2)}), "exactly this GPU"),
    ],
)
def test_why_nothing_can_apply_it(node, says):
    (found,) = told([cap()], CapState.UNSUPPORTED, node)
    assert says in found.message


def test_annotation_errors_come_with_their_sentences_and_a_count():
    annotations = {f"nvidia.com/container.main.gpu-memory.limt{number}": "8Gi" for number in range(9)}
    read = contract.read(annotations, [PodContainer("main", ContainerKind.MAIN, ())])
    (found,) = annotation_errors(POD, read.errors)
    assert found.reason is NoticeReason.ANNOTATION_ERROR
    assert read.errors[0].sentence in found.message
    assert found.message.endswith(f"And {len(read.errors) - 5} more of these.")
    assert annotation_errors(POD, []) == ()


def test_what_policy_changed_is_told_once():
    rule = Rule(memory_ceiling=Share(Fraction(1, 2)), harshest=Reaction.WARN)
    request = CapRequest("main", requested=70 * GIB, limit=70 * GIB, on_overrun=Reaction.EVICT)
    decision = apply(Policy(rule), "team", request, capacity=80 * GIB)
    decided = Decided(decision, limits(decision.request, 80 * GIB))
    (found,) = policy(POD, [decided] * 8)
    assert found.message.count("ceiling") == 1
    assert "on-overrun is warn, not evict" in found.message
    assert found.reason is NoticeReason.POLICY


def test_a_request_above_the_limit_is_told():
    request = CapRequest("main", requested=2 * GIB, limit=Share(Fraction(1, 80)))
    decided = Decided(apply(Policy(), "team", request), limits(request, 80 * GIB))
    assert decided.limits.clamped
    (found,) = policy(POD, [decided])
    assert "the request is the limit" in found.message


def test_a_daemon_that_cant_be_used_is_told_to_each_pod_once():
    other = PodId("team", "other", "uid-2")
    found = unusable_daemon([POD, other, POD], "/run/mps", Failure(Reason.DAEMON_WEDGED, "pid 7: no answer in 3.0 s"))
    assert [one.pod for one in found] == [POD, other]
    assert "daemon_wedged" in found[0].message
    assert "3.0" not in found[0].message  # a number that changes would make it another notice each time


def test_however_much_there_is_to_say_it_fits():
    caps = [cap(f"GPU-{number}", container=f"container-{number}", limit=GIB * (1 + number)) for number in range(200)]
    for state in CapState:
        for found in told(caps, state):
            assert len(found.message.encode()) <= LONGEST
            assert not re.search(r"[\n\r]", found.message)
