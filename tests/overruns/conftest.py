"""A node with an MPS daemon, and pods on it that are over their caps or not."""

from dataclasses import dataclass, field

from enforcer.model import Cap, CapKey, Client, EvictPod, Gpu, PodId, Seen, TerminateClient
from enforcer.outcomes import Done
from enforcer.overruns import Use, Window
from enforcer.reactions import Watched, react, settled
from exporter.caps.requests import Reaction
from exporter.errors import Failure, Reason
from exporter.model import Backend, MpsClient, MpsDaemon, MpsServer, ServerStatus

GIB = 1 << 30
MIB = 1 << 20
GPU = "GPU-0"
PIPE = "/run/mps"
CAP = 10 * GIB
OVER = 12 * GIB
UNDER = 9 * GIB
SECONDS = 2.0  # between two cycles


def pod(number: int = 0) -> PodId:
    uid = f"00000000-0000-4000-8000-{number:012d}"
    return PodId("team", f"job-{number}", uid, uid)


def cap(number: int = 0, reaction: Reaction = Reaction.WARN, *, container: str = "main", limit: int = CAP) -> Cap:
    return Cap(CapKey(pod(number), container, GPU), limit, None, reaction)


@dataclass
class Node:
    """What the enforcer sees of it, cycle by cycle. `clients`: who is an MPS client, by pid."""

    caps: list[Cap]
    used: dict[CapKey, int] = field(default_factory=dict)
    clients: dict[int, Client] = field(default_factory=dict)
    backend: Backend | None = None
    pods_known: bool = True
    all_clients: bool = True
    lists: bool = True  # the server tells who its clients are
    second_server: tuple[int, ...] = ()  # pids that another daemon lists
    acting: bool = True
    now: float = 1000.0
    watched: Watched = field(default_factory=Watched)
    window: Window = field(default_factory=Window)
    notices: list = field(default_factory=list)
    log: list[tuple[float, TerminateClient | EvictPod]] = field(default_factory=list)
    began: list = field(default_factory=list)

    def joins(self, pid: int, number: int = 0, *, container: str = "main", started: float = 1.0) -> None:
        self.clients[pid] = Client(pid, pod(number).uid, container, started)

    def seen(self) -> Seen:
        listed = tuple(MpsClient(pid, "0") for pid in self.clients)
        told = listed if self.lists else Failure(Reason.BUSY, "Server 77 is busy")
        daemons = {PIPE: MpsDaemon(2, servers=(MpsServer("s", 77, 0, ServerStatus.ACTIVE, told, devices=(GPU,)),))}
        if self.second_server:
            others = tuple(MpsClient(pid, "0") for pid in self.second_server)
            daemons["/other"] = MpsDaemon(2, servers=(MpsServer("s", 88, 0, ServerStatus.ACTIVE, others),))
        pods = frozenset(found.key.pod.uid for found in self.caps) if self.pods_known else None
        return Seen(pods, {GPU: Gpu(GPU, 80 * GIB, self.backend)}, daemons=daemons, clients=dict(self.clients))

    def uses(self) -> dict[CapKey, Use]:
        pids = {
            key: frozenset(
                client.pid
                for client in self.clients.values()
                if (client.pod_uid, client.container) == (key.pod.uid, key.container)
            )
            for key in self.used
        }
        return {key: Use(used, pids[key]) for key, used in self.used.items()}

    def decide(self):
        """One cycle's decisions, without doing them."""
        step = react(
            self.watched,
            self.caps,
            self.uses(),
            self.seen(),
            all_clients=self.all_clients,
            window=self.window,
            now=self.now,
            acting=self.acting,
        )
        self.watched = step.watched
        self.notices += step.notices
        self.began += step.began.items()
        self.log += [(self.now, action) for action in step.actions]
        self.now += SECONDS
        return step.actions

    def do(self, action, outcome=None) -> None:
        """What the mechanisms would do, and how it ends."""
        outcome = Done() if outcome is None else outcome
        if isinstance(action, TerminateClient) and isinstance(outcome, Done):
            self.clients.pop(action.pid, None)
        self.watched, notices = settled(self.watched, action, outcome)
        self.notices += notices

    def cycle(self, times: int = 1, *, outcome=None) -> list:
        """Cycles in which everything is done that is decided. Returns the actions."""
        done = []
        for _ in range(times):
            for action in self.decide():
                done.append(action)
                self.do(action, outcome(action) if outcome is not None else None)
        return done

    def reasons(self) -> list[str]:
        return [found.reason for found in self.notices]
