"""Evicts a pod through the API server, which heeds disruption budgets, and only the pod that was meant.

Guarantees: the request carries the pod's uid, so that a new pod of the same name is safe; a refusal that passes is
`Pending`; a pod that is gone, or another one by now, is `Done`, for the one that was meant is no more.

It will not delete a pod, set a grace period, or evict a static pod: the kubelet would start it again at once. That the
pod has no MPS clients is for the caller to know: see `enforcer.reactions`.
"""

import json
from typing import Any

from enforcer.mechanisms.api_writer import ApiWriter, segment
from enforcer.model import EvictPod
from enforcer.outcomes import Done, Outcome, Pending
from exporter.errors import Failure, Reason
from exporter.sources.apiserver import Answer, refusal

RIGHT = "create on pods/eviction"


def evict(api: ApiWriter, action: EvictPod) -> Outcome:
    """Ask for the eviction of a pod: POST of policy/v1 Eviction with the uid as a precondition."""
    pod = action.pod
    if pod.api_uid not in ("", pod.uid):
        return Failure(Reason.NOT_SUPPORTED, "a static pod can't be evicted: remove its manifest from the node")
    namespace, name = segment(pod.namespace), segment(pod.name)
    if isinstance(namespace, Failure):
        return namespace
    if isinstance(name, Failure):
        return name
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    answer = api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
    return answer if isinstance(answer, Failure) else _outcome(answer)


def _outcome(answer: Answer) -> Outcome:
    match answer.status:
        case 200 | 201 | 202:
            return Done("the API server has taken the eviction on itself")
        case 404:
            return Done("the pod is gone")
        case 409:
            return Done("the pod is gone, and another one has its name")
        case 429:
            return Pending(message_of(answer) or "the API server asks to wait")
        case 500:
            return Failure(Reason.UNAVAILABLE, message_of(answer) or "the API server failed")
        case _:
            return refusal(answer, right=RIGHT)


def message_of(answer: Answer) -> str:
    """What a refusal says to people, in one line; empty where it says nothing."""
    text = status_of(answer).get("message")
    return " ".join(text.split())[:300] if isinstance(text, str) else ""


def status_of(answer: Answer) -> dict[str, Any]:
    """The body as a JSON object; an empty one where it is none."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
