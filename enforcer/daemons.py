"""Looks after the MPS control daemons of `--mps=managed`: before each cycle, so that the cycle finds them ready."""

import logging
from pathlib import Path

from enforcer.mechanisms.compute_modes import ComputeModes
from enforcer.mechanisms.daemon_start import ManagedGpu
from enforcer.mechanisms.folders import Folder
from enforcer.mechanisms.gpu_calls import GpuCalls
from enforcer.mechanisms.managed_daemon import ManagedDaemons
from enforcer.outcomes import Done, Outcome
from enforcer.settings import Settings
from exporter.clock import Clock
from exporter.model import Snapshot
from exporter.sampler import Sampler
from exporter.sources.library_use import LibraryUse

log = logging.getLogger(__name__)

_WITH_LIMITS = (7, 0)  # Volta


class DaemonCare:
    """Keeps the daemons running. For one thread."""

    def __init__(self, settings: Settings, *, boot: str, clock: Clock, use: LibraryUse) -> None:
        node = settings.node
        state = Folder(settings.state)
        modes = ComputeModes(state, boot=boot, calls=GpuCalls(deadline=node.deadline, clock=clock, use=use))
        self._daemons = ManagedDaemons(
            binary=node.mps_control,
            state=state,
            modes=modes,
            procfs=Path(node.procfs),
            clock=clock,
            exclusive=settings.exclusive,
            pipes=settings.managed_directory,
            logs=f"{settings.managed_directory}-logs",
        )
        self._said: dict[str, str] = {}

    def keep(self, sampler: Sampler) -> None:
        """See to it that every daemon runs. Does nothing while the GPUs can't be read."""
        snapshot = sampler.snapshot(sampler.readings())
        if snapshot.driver is None:
            return
        major = snapshot.driver[0].partition(".")[0]
        if not major.isdigit():
            return
        kept = self._daemons.keep(_gpus(snapshot), driver_major=int(major), seen=snapshot.mps)
        for pipe_directory, outcome in kept.items():
            self._say(pipe_directory, outcome)

    def stop(self) -> None:
        """End the daemons that have no clients."""
        for pipe_directory, outcome in self._daemons.stop().items():
            log.info("MPS control daemon of %s: %s", pipe_directory, outcome)

    def _say(self, pipe_directory: str, outcome: Outcome) -> None:
        text = str(outcome)
        if self._said.get(pipe_directory) != text:
            self._said[pipe_directory] = text
            log.log(
                logging.INFO if isinstance(outcome, Done) else logging.WARNING,
                "MPS control daemon of %s: %s",
                pipe_directory,
                text,
            )


def _gpus(snapshot: Snapshot) -> list[ManagedGpu]:
    """The GPUs that a daemon can have, with their capacity."""
    found = []
    for state in snapshot.devices:
        device = state.device
        capacity = state.domains[0].capacity if len(state.domains) == 1 else None
        able = device.compute_capability is not None and device.compute_capability >= _WITH_LIMITS
        if able and not device.mig_mode and capacity is not None:
            found.append(ManagedGpu(device.index, device.uuid, capacity))
    return found
