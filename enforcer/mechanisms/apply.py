"""Applies one action of the plan, whatever it is, and says what became of it.

Guarantees: `Done` only of what was read back; what can be undone is recorded before it is done, and where it can't be
recorded it is not done; an action that fails leaves the others as they are. Evicting a pod is not among these: it needs
the API server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from enforcer import model
from enforcer.mechanisms import doors, mps_v2, mps_v3
from enforcer.mechanisms.cgroup_limits import CgroupLimits
from enforcer.mechanisms.mps_telling import ENDING, SETTING, Telling
from enforcer.mechanisms.receipts import Receipts
from enforcer.mechanisms.records import RecordStore
from enforcer.model import Action, Records, Start
from enforcer.outcomes import Done, Outcome
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.library_use import LibraryUse
from exporter.sources.mps_control import DEADLINE, MpsControl


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are on this node. `boot` is the id of this boot, `mps_control` NVIDIA's control command."""

    state: str
    receipts: str
    sysfs: Path
    procfs: Path
    mps_control: str
    boot: str


class Mechanisms:
    """Everything that the plan's actions need. For one thread at a time; `driver_deadline` is in seconds."""

    def __init__(self, places: Places, *, driver_deadline: float, clock: Clock, use: LibraryUse) -> None:
        self._clock = clock
        self._binary = places.mps_control
        self._store = RecordStore(places.state, boot=places.boot)
        self._receipts = Receipts(places.receipts, boot=places.boot, clock=clock)
        self._limits = CgroupLimits(places.sysfs, places.procfs, deadline=driver_deadline, clock=clock, use=use)

    def records(self) -> Records | Failure:
        """What was set so far, and where the doors lead now. A failure: it is not known, so nothing may be undone."""
        stored = self._store.read()
        if isinstance(stored, Failure):
            return stored
        receipts = self._receipts.read()
        if isinstance(receipts, Failure):
            return receipts
        return replace(stored, doors=_as_they_are(stored.doors), receipts=receipts)

    def apply(self, action: Action) -> Outcome:
        """Do one action, and read back what it was to bring about."""
        try:
            return self._apply(action)
        except ValueError as error:  # a number or a name that no command is made from
            return Failure(Reason.MALFORMED, f"{type(action).__name__}: {error}")

    def stop(self) -> None:
        """Let the threads end after their present calls."""
        self._limits.stop()

    def _apply(self, action: Action) -> Outcome:
        match action:
            case model.LimitCgroup(level, hard, before):
                return self._store.note_limit(level, before) or self._limits.limit(level, hard)
            case model.FreeCgroup(level, hard):
                outcome = self._limits.free(level, hard)
                return (self._store.forget_limit(level) or outcome) if isinstance(outcome, Done) else outcome
            case model.EnsureNamespace():
                return mps_v3.ensure_namespace(action, self._telling(action.pipe_directory, SETTING))
            case model.RemoveNamespace():
                return mps_v3.remove_namespace(action, self._telling(action.pipe_directory, SETTING))
            case model.SetServer():
                return mps_v2.set_server(action, self._telling(action.pipe_directory, SETTING))
            case model.TerminateClient():
                terminate = mps_v3.terminate_client if action.protocol >= 3 else mps_v2.terminate_client
                return terminate(action, self._telling(action.pipe_directory, ENDING + DEADLINE))
            case model.EvictPod():
                return Failure(Reason.NOT_SUPPORTED, "a pod is evicted through the API server, not here")
        return self._record(action)

    def _record(self, action: Action) -> Outcome:
        """The actions that are about files of ours alone."""
        match action:
            case model.OpenDoor(uid, container, directory):
                return self._open(uid, container, directory)
            case model.CloseDoor(uid, container):
                return self._close(uid, container)
            case model.BeginStart(directory, uid, usual, percentage):
                start = Start(uid, self._clock.boottime(), usual, percentage)
                return self._store.begin_start(directory, start) or self._started(directory, start)
            case model.EndStart(directory):
                return self._store.end_start(directory) or self._started(directory, None)
            case model.WriteReceipt():
                return self._receipts.write(action)
            case model.DropRecords(uid):
                return self._receipts.drop(uid) or self._store.drop(uid) or Done("forgotten")
        return Failure(Reason.INTERNAL, f"nobody applies {type(action).__name__}")

    def _open(self, uid: str, container: str, directory: str) -> Outcome:
        before = self._store.door(uid, container)
        if isinstance(before, str) and before != directory:  # perhaps of another daemon, where nobody would find it
            outcome = self._close(uid, container)
            if isinstance(outcome, Failure):
                return outcome
        return self._store.note_door(uid, container, directory) or doors.open_door(uid, container, directory)

    def _close(self, uid: str, container: str) -> Outcome:
        directory = self._store.door(uid, container)
        if isinstance(directory, Failure):
            return directory
        if directory is None:
            return Done("no door was opened")
        outcome = doors.close_door(uid, container, directory)
        return outcome if isinstance(outcome, Failure) else self._store.forget_door(uid, container) or outcome

    def _started(self, directory: str, start: Start | None) -> Outcome:
        """Whether the record of a start is as it was written."""
        records = self._store.read()
        if isinstance(records, Failure):
            return records
        if records.starts.get(directory) != start:
            return Failure(
                Reason.UNWRITABLE, f"the record of who is let in through {directory} is not as it was written"
            )
        return Done("recorded")

    def _telling(self, pipe_directory: str, seconds: float) -> Telling:
        control = MpsControl(self._binary, pipe_directory, deadline=seconds, clock=self._clock)
        return Telling(control, seconds=seconds, clock=self._clock)


def _as_they_are(noted: Mapping[tuple[str, str], str]) -> Mapping[tuple[str, str], str]:
    """The doors, with where they lead: a crash may have come between the note and the door."""
    return MappingProxyType(
        {(uid, container): doors.leads_to(uid, container, path) for (uid, container), path in noted.items()}
    )
