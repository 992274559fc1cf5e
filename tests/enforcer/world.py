"""A node as the plan sees it, on which steps can be done: what each mechanism would bring about, without any."""

from dataclasses import dataclass, field, replace

from enforcer import model
from enforcer.model import Client, Gpu, Level, PodId, Records, Seen, Start
from exporter.model import (
    Backend,
    CgroupMemory,
    ContainerRef,
    MpsClient,
    MpsDaemon,
    MpsNamespace,
    MpsServer,
    PinnedLimit,
    ServerStatus,
)

GIB = 1 << 30
MIB = 1 << 20
PIPE = "/run/mps"


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def pod(number: int) -> PodId:
    return PodId("team", f"job-{number}", uid(number))


@dataclass
class World:
    """`cgroups` has hard limits and charges by level, `server` what the MPS server holds."""

    gpus: dict[str, Gpu]
    protocol: int | None = None
    pods: dict[str, set[str]] = field(default_factory=dict)  # uid -> running containers
    holders: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    hard: dict[Level, int | None] = field(default_factory=dict)
    charged: dict[Level, int] = field(default_factory=dict)
    namespaces: dict[str, tuple[int | None, int]] = field(default_factory=dict)  # name -> (MiB, percent)
    limits: dict[int, int | None] = field(default_factory=dict)  # ordinal -> MiB, of the server of protocol 2
    percentage: float = 100.0
    clients: dict[int, tuple[str, str, str]] = field(default_factory=dict)  # pid -> (uid, container, namespace)
    latched: dict[int, dict[int, int]] = field(default_factory=dict)
    gated: frozenset[PodId] = frozenset()
    records: Records = field(default_factory=Records)
    now: float = 100.0
    log: list[object] = field(default_factory=list)

    def ref(self, pod_uid: str, container: str) -> ContainerRef:
        return ContainerRef(pod_uid, f"{container}-of-{pod_uid}")

    def seen(self, *, pods_known: bool = True) -> Seen:
        containers = {(uid, name): self.ref(uid, name) for uid, names in self.pods.items() for name in names}
        refs = [*containers.values(), *(ContainerRef(uid) for uid in self.pods)]
        levels: dict[Level, CgroupMemory | None] = {}
        for gpu in self.gpus.values():
            for ref in refs if gpu.cgroup is not None else ():
                level = Level(ref, gpu.uuid)
                known = self.hard.get(level)
                if gpu.cgroup is Backend.MISC and known is None:
                    levels[level] = None
                else:
                    levels[level] = CgroupMemory(gpu.cgroup, self.charged.get(level, 0), known)
        return Seen(
            frozenset(self.pods) if pods_known else None,
            self.gpus,
            levels,
            self.holders,
            containers,
            self._daemons(),
            {pid: Client(pid, uid, name, 200.0) for pid, (uid, name, _) in self.clients.items()},
            self.gated,
            self.records,
            self.now,
        )

    def _daemons(self):
        if self.protocol is None:
            return {}
        clients = tuple(
            MpsClient(pid, "0", namespace, self.latched.get(pid)) for pid, (_, _, namespace) in self.clients.items()
        )
        server = MpsServer(
            "shared",
            77,
            0,
            ServerStatus.ACTIVE,
            clients,
            self.percentage / 100 if self.protocol == 2 else None,
            {n: None if mib is None else PinnedLimit.exactly(mib * MIB) for n, mib in self.limits.items()},
            tuple(
                MpsNamespace(
                    name, percent / 100, None if mib is None else PinnedLimit.exactly(mib * MIB), f"{PIPE}/{name}"
                )
                for name, (mib, percent) in self.namespaces.items()
            ),
            tuple(self.gpus),
        )
        return {PIPE: MpsDaemon(self.protocol, servers=(server,))}

    # --- what the mechanisms do -----------------------------------------------------------------------------------

    def do(self, action: object) -> None:
        self.log.append(action)
        records = self.records
        match action:
            case model.LimitCgroup(level, hard, before):
                assert level.ref.pod_uid in self.pods
                assert hard <= self.gpus[level.gpu_uuid].capacity  # the driver takes nothing above
                self._record(limits={**records.limits, level: before})
                self.hard[level] = max(hard, 0)
            case model.FreeCgroup(level, hard):
                self.hard[level] = hard
                self._record(limits={key: value for key, value in records.limits.items() if key != level})
            case model.EnsureNamespace(_, _, name, mebibytes, percentage):
                self.namespaces[name] = (mebibytes, percentage)
            case model.RemoveNamespace(_, _, name):
                assert not any(namespace == name for _, _, namespace in self.clients.values())
                del self.namespaces[name]
            case model.OpenDoor(pod_uid, container, directory):
                self._record(doors={**records.doors, (pod_uid, container): directory})
            case model.CloseDoor(pod_uid, container):
                self._record(doors={key: path for key, path in records.doors.items() if key != (pod_uid, container)})
            case model.BeginStart(pipe_directory, pod_uid, usual, percentage):
                start = Start(pod_uid, self.now, usual, percentage)
                self._record(starts={**records.starts, pipe_directory: start})
            case model.EndStart(pipe_directory):
                self._record(starts={key: start for key, start in records.starts.items() if key != pipe_directory})
            case model.SetServer(_, _, ordinal, mebibytes, percentage):
                self.limits[ordinal], self.percentage = mebibytes, percentage
            case model.WriteReceipt(target, _):
                self._record(receipts={**records.receipts, target.uid: self.now})
                self.begins(target)
            case model.DropRecords(pod_uid):
                self._record(
                    limits={key: value for key, value in records.limits.items() if key.ref.pod_uid != pod_uid},
                    doors={key: value for key, value in records.doors.items() if key[0] != pod_uid},
                    receipts={key: value for key, value in records.receipts.items() if key != pod_uid},
                )
            case _:
                raise AssertionError(action)

    def _record(self, **changes) -> None:
        self.records = replace(self.records, **changes)

    def begins(self, target: PodId) -> None:
        """The gate of a pod has opened: its containers start, and connect to the server under what it now gives."""
        if target not in self.gated:
            return
        for container in sorted(
            {name for (pod_uid, _), names in self.holders.items() if pod_uid == target.uid for name in names}
        ):
            self.pods[target.uid].add(container)
            if self.protocol == 2:
                pid = 1000 + len(self.clients)
                self.clients[pid] = (target.uid, container, "")
                self.latched[pid] = {n: mib * MIB for n, mib in self.limits.items() if mib is not None}
