"""What is done about overruns: who is warned, which MPS client is ended, which pod is evicted, and how often. Pure.

Guarantees: nothing is ended or evicted without a proven overrun of a cap whose reaction, as policy bounds it, says so;
a process is ended only where its MPS daemon lists it, it is in the overrunning pod, and no other daemon lists its pid;
a pod is evicted only when it certainly has no MPS client any more, and never after a failed attempt to end one, for
then the server that other pods share is in doubt; a pod is acted on once a minute at most, and there are six acts on
the node in ten minutes. An eviction with the terminations that it needs is one act, and one that was refused is asked
for again, a minute later at the soonest, without being another. One that is given up counts once more, so that the pod
rests.

What is remembered is in memory only: an enforcer that starts anew has to see an overrun again before it acts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from enforcer.clients import clients_of
from enforcer.model import MIB, Cap, CapKey, EvictPod, Seen, TerminateClient
from enforcer.notices import Notice, NoticeReason, notice
from enforcer.outcomes import Done, Outcome, Pending
from enforcer.overruns import Track, Use, Window, follow
from exporter.caps.quantities import quantity_text
from exporter.caps.requests import Reaction
from exporter.errors import Failure

POD_PAUSE = 60.0  # seconds between two acts on a pod
NODE_SPAN = 600.0  # seconds in which
NODE_MOST = 6  # acts there are on a node at most
_ROUNDS = 3  # in which an eviction may end clients that come again

Harsh = TerminateClient | EvictPod


@dataclass(frozen=True, slots=True)
class Leaving:
    """A pod that is being evicted.

    `since`: when it last had no MPS client, or the eviction began. `rounds`: in how many clients were ended. `asked`:
    when the API server was.
    """

    since: float
    rounds: int = 0
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """What the watch remembers, times in monotonic seconds.

    `sampled`: when samples were last taken. `acts`: when which pod was acted on, or its eviction given up, of the last
    ten minutes. `suspects`: pods of which a client could not be ended. `evicted`: pods that the API server has taken on
    itself to evict. By uid.
    """

    tracks: Mapping[CapKey, Track] = field(default_factory=lambda: MappingProxyType({}))
    sampled: float = float("-inf")
    acts: tuple[tuple[float, str], ...] = ()
    leaving: Mapping[str, Leaving] = field(default_factory=lambda: MappingProxyType({}))
    suspects: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reacted:
    """What is to be done now. `began`: the overruns that begin with this cycle, and what their caps ask for."""

    watched: Watched
    actions: tuple[Harsh, ...] = ()
    notices: tuple[Notice, ...] = ()
    began: Mapping[CapKey, Reaction] = field(default_factory=lambda: MappingProxyType({}))


def react(
    watched: Watched,
    caps: Collection[Cap],
    uses: Mapping[CapKey, Use],
    seen: Seen,
    *,
    all_clients: bool,
    window: Window,
    now: float,
    acting: bool = True,
) -> Reacted:
    """What one cycle leads to. Each action's outcome is to be told to `settled` before the next cycle.

    `all_clients`: of every MPS client of the node it is known whose it is (`clients.all_known`), so that a pod without
    one has none. Without `acting` nothing will be done: actions are what would be, and notices say so.
    """
    if now - watched.sampled >= window.spacing:
        watched = replace(watched, sampled=now)
    else:
        uses = {}
    capped = {cap.key: cap for cap in caps if cap.limit is not None}
    before = watched.tracks
    tracks = {key: _followed(before.get(key, Track()), cap, uses.get(key), window) for key, cap in capped.items()}
    was_on = {key for key, track in before.items() if track.on}
    began = {key: capped[key].reaction for key, track in tracks.items() if track.on and key not in was_on}
    if seen.pods is None:  # neither is it known which caps hold
        kept = {key: track for key, track in before.items() if key not in tracks}
        return Reacted(replace(watched, tracks=MappingProxyType(kept | tracks)), began=MappingProxyType(began))
    step = _Step(watched, tracks, seen, all_clients=all_clients, window=window, now=now, acting=acting)
    for key in sorted(key for key, track in tracks.items() if track.on and key in uses):
        step.warn(capped[key], uses[key])
    step.go_on(capped.values())
    for cap in sorted(capped.values(), key=lambda cap: (-_excess(cap, uses), cap.key)):
        if _is_above(cap, uses.get(cap.key), window):
            step.act(cap, uses[cap.key])
    return Reacted(step.watched(), tuple(step.actions), tuple(step.notices), MappingProxyType(began))


def settled(watched: Watched, action: Harsh, outcome: Outcome) -> tuple[Watched, tuple[Notice, ...]]:
    """What became of an action, and what the pod is told of it."""
    pod = action.pod
    match action, outcome:
        case TerminateClient(), Done():
            text = f"Ended the MPS client with pid {action.pid} of the node, for memory above its cap."
            return watched, (notice(pod, NoticeReason.TERMINATED, text),)
        case TerminateClient(), Pending():
            return watched, ()
        case TerminateClient(), Failure():
            text = (
                f"The MPS client with pid {action.pid} of the node could not be ended ({outcome}), so the server that "
                "it shares is in doubt. podgpu does nothing harsh to this pod any more; end the job by its own means."
            )
            leaving = {uid: found for uid, found in watched.leaving.items() if uid != pod.uid}
            suspects = watched.suspects | {pod.uid}
            found = replace(watched, leaving=MappingProxyType(leaving), suspects=suspects)
            return found, (notice(pod, NoticeReason.SUSPECT, text),)
        case EvictPod(), Done():
            leaving = {uid: found for uid, found in watched.leaving.items() if uid != pod.uid}
            found = replace(watched, leaving=MappingProxyType(leaving), evicted=watched.evicted | {pod.uid})
            return found, (notice(pod, NoticeReason.EVICTED, "Evicted for GPU memory above its cap."),)
        case EvictPod(), _:
            why = outcome.why if isinstance(outcome, Pending) else outcome
            text = f"To be evicted for GPU memory above its cap, but: {why}. It is asked for again."
            return watched, (notice(pod, NoticeReason.EVICTION_REFUSED, text),)
    raise AssertionError(action)


class _Step:
    """One cycle under way: what is decided changes what may still be."""

    def __init__(
        self,
        watched: Watched,
        tracks: dict[CapKey, Track],
        seen: Seen,
        *,
        all_clients: bool,
        window: Window,
        now: float,
        acting: bool,
    ) -> None:
        pods = seen.pods or frozenset()
        self.actions: list[Harsh] = []
        self.notices: list[Notice] = []
        self._tracks = tracks
        self._seen = seen
        self._window = window
        self._now = now
        self._acting = acting
        self._sampled = watched.sampled
        self._acts = [(at, uid) for at, uid in watched.acts if now - at < NODE_SPAN]
        self._leaving = {uid: found for uid, found in watched.leaving.items() if uid in pods}
        self._suspects = watched.suspects & pods
        self._evicted = watched.evicted & pods
        self._clients = clients_of(seen, all_clients=all_clients)

    def watched(self) -> Watched:
        """What is remembered after this cycle."""
        return Watched(
            MappingProxyType(self._tracks),
            self._sampled,
            tuple(self._acts),
            MappingProxyType(self._leaving),
            self._suspects,
            self._evicted,
        )

    def warn(self, cap: Cap, use: Use) -> None:
        """Say once that an overrun has begun, and what comes of it."""
        limit = cap.limit or 0
        used, excess = _text(use.used), _text(use.used - limit)
        text = (
            f"Container {cap.key.container} uses {used} of {cap.key.gpu_uuid}, {excess} more than its cap of "
            f"{_text(limit)}. {self._outlook(cap)} Use less, or ask for more."
        )
        self._tell(cap, NoticeReason.OVERRUN, text)

    def _outlook(self, cap: Cap) -> str:
        gpu = self._seen.gpus.get(cap.key.gpu_uuid)
        match cap.reaction:
            case Reaction.WARN:
                return "Nothing is done about it (on-overrun: warn)."
            case Reaction.FREEZE if gpu is not None and gpu.cgroup is not None:
                return "Its control group is held at the present use and lowered with it (on-overrun: freeze)."
            case Reaction.FREEZE:
                return "It can't be held at its present use, as this GPU has no limits by control group."
            case reaction:
                would = "" if self._acting else ", if podgpu enforced here"
                return f"What follows if it stays: {reaction}{would}."

    def go_on(self, caps: Iterable[Cap]) -> None:
        """Take each eviction under way one step further: ends the pod's MPS clients, then asks the API server."""
        asking = {
            cap.key.pod.uid: cap for cap in sorted(caps, key=lambda cap: cap.key) if cap.reaction is Reaction.EVICT
        }
        for uid in sorted(self._leaving):
            found = self._leaving.pop(uid)
            over = any(track.on for key, track in self._tracks.items() if key.pod.uid == uid)
            if uid in asking and self._acting and (found.asked is None or over):
                self._evict(asking[uid], found)
            if uid not in self._leaving:  # given up: the pause before another one counts from here
                self._acts.append((self._now, uid))

    def act(self, cap: Cap, use: Use) -> None:
        """Do what the cap's reaction says about an overrun, if that is proven and may be done now."""
        uid = cap.key.pod.uid
        if cap.reaction not in (Reaction.TERMINATE, Reaction.EVICT) or not self._tracks[cap.key].proven(self._window):
            return
        if uid in self._leaving or uid in self._evicted or uid in self._suspects:
            return
        mine = self._clients.of(cap.key.pod)
        if cap.reaction is Reaction.TERMINATE:
            mine = [found for found in mine if self._is_of(cap, use, found.pid)]
            if not mine:
                text = (
                    f"Container {cap.key.container} has no MPS client on {cap.key.gpu_uuid} that could be ended, and "
                    "podgpu ends no other process. Use less, or ask for more."
                )
                self._tell(cap, NoticeReason.NO_REACTION, text)
                return
        elif not self._clients.knows(cap.key.pod):
            text = "Not evicted: which MPS clients it has is not known, as an MPS daemon of the node does not tell."
            self._tell(cap, NoticeReason.NO_REACTION, text)
            return
        if not self._may_act(cap):
            return
        self._acts.append((self._now, uid))
        for key in [key for key in self._tracks if key.pod.uid == uid]:
            self._tracks[key] = self._tracks[key].judged_anew()
        if cap.reaction is Reaction.TERMINATE:
            self.actions.append(mine[0])
        elif self._acting:
            self._evict(cap, Leaving(self._now))
        else:
            self.actions.append(EvictPod(cap.key.pod))

    def _evict(self, cap: Cap, found: Leaving) -> None:
        """Go on with an eviction, or give it up: then it begins again if the overrun stays."""
        pod, now = cap.key.pod, self._now
        clients = self._clients.of(pod)
        if clients or not self._clients.knows(pod):
            if found.rounds >= _ROUNDS or now - found.since >= POD_PAUSE:
                text = (
                    "Not evicted: it has MPS clients, or may have, that don't end, and a pod that is deleted with them "
                    "may harm all others on the GPU."
                )
                self.notices.append(notice(pod, NoticeReason.EVICTION_REFUSED, text))
                return
            self.actions += clients
            found = replace(found, rounds=found.rounds + bool(clients))
        else:
            found = replace(found, since=now)
            if found.asked is None or now - found.asked >= POD_PAUSE:
                self.actions.append(EvictPod(pod))
                found = replace(found, asked=now)
        self._leaving[pod.uid] = found

    def _may_act(self, cap: Cap) -> bool:
        if any(uid == cap.key.pod.uid and self._now - at < POD_PAUSE for at, uid in self._acts):
            return False
        if len(self._acts) < NODE_MOST:
            return True
        text = f"{cap.reaction} is put off: podgpu has acted {NODE_MOST} times on this node in ten minutes."
        self._tell(cap, NoticeReason.PUT_OFF, text)
        return False

    def _is_of(self, cap: Cap, use: Use, pid: int) -> bool:
        return pid in use.pids and self._seen.clients[pid].container == cap.key.container

    def _tell(self, cap: Cap, reason: NoticeReason, text: str) -> None:
        """Tell the pod once in an overrun."""
        track = self._tracks[cap.key]
        if reason not in track.told:
            self._tracks[cap.key] = replace(track, told=track.told | {reason})
            self.notices.append(notice(cap.key.pod, reason, text))


def _followed(before: Track, cap: Cap, use: Use | None, window: Window) -> Track:
    return follow(before, None if use is None else use.used, cap.limit or 0, window)


def _is_above(cap: Cap, use: Use | None, window: Window) -> bool:
    """Whether this very sample is above. What was above a moment ago and no longer is needs no ending."""
    limit = cap.limit or 0
    return use is not None and use.used - limit > window.tolerance(limit)


def _excess(cap: Cap, uses: Mapping[CapKey, Use]) -> int:
    return uses[cap.key].used - (cap.limit or 0) if cap.key in uses else 0


def _text(size: int) -> str:
    """Bytes as a person reads them, to the MiB."""
    return quantity_text(max(1, round(size / MIB)) * MIB)
