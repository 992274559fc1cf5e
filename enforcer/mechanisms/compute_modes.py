"""The compute mode of GPUs that a managed daemon has for itself: exclusive, so that nothing runs beside MPS unseen.

What a GPU had is recorded before it is changed and given back when the daemon has ended. A record of an earlier boot is
none: the driver has forgotten the mode as well.
"""

import json

import pynvml

from enforcer.mechanisms.folders import Folder
from enforcer.mechanisms.gpu_calls import GpuCalls
from enforcer.outcomes import Done, Outcome
from exporter.errors import Failure, Reason

_MOST = 4096  # bytes of a record
_EXCLUSIVE: int = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
_NAMES: dict[int, str] = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    _EXCLUSIVE: "exclusive process",
}


class ComputeModes:
    """Records are kept in `folder`, of the boot with id `boot`."""

    def __init__(self, folder: Folder, *, boot: str, calls: GpuCalls) -> None:
        self._folder = folder
        self._boot = boot
        self._calls = calls

    def claim(self, uuid: str) -> Outcome:
        """Let only one process make contexts on a GPU: the MPS server."""
        now = self._calls.call(uuid, _mode)
        if isinstance(now, Failure) or now == _EXCLUSIVE:
            return now if isinstance(now, Failure) else Done(f"{uuid} is in mode {_NAMES[now]}")
        noted = self._noted(uuid)
        if isinstance(noted, Failure):
            return noted
        if noted is None:
            content = json.dumps({"boot": self._boot, "mode": now}).encode()
            problem = self._folder.write(_name(uuid), content)
            if problem is not None:
                return problem
        return self._set(uuid, _EXCLUSIVE)

    def restore(self, uuid: str) -> Outcome:
        """Give a GPU back the mode that it had, if it was changed here."""
        noted = self._noted(uuid)
        if noted is None or isinstance(noted, Failure):
            return Done(f"{uuid} was not changed") if noted is None else noted
        outcome = self._set(uuid, noted)
        return outcome if isinstance(outcome, Failure) else self._folder.remove(_name(uuid)) or outcome

    def _set(self, uuid: str, mode: int) -> Outcome:
        def change(handle: object) -> int:
            pynvml.nvmlDeviceSetComputeMode(handle, mode)
            return _mode(handle)

        found = self._calls.call(uuid, change)
        if isinstance(found, Failure):
            return found
        if found != mode:
            return Failure(Reason.INCONSISTENT, f"{uuid} is in mode {_NAMES.get(found, found)}, not {_NAMES[mode]}")
        return Done(f"{uuid} is in mode {_NAMES[mode]}")

    def _noted(self, uuid: str) -> int | Failure | None:
        """The mode that a GPU had before."""
        content = self._folder.read(_name(uuid), most=_MOST)
        if not isinstance(content, bytes):
            return content
        try:
            said = json.loads(content)
            boot, mode = said["boot"], said["mode"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return Failure(Reason.MALFORMED, f"{self._folder.path}/{_name(uuid)}: {error}; remove it")
        if boot != self._boot:
            return None
        if mode not in _NAMES:
            return Failure(Reason.MALFORMED, f"{self._folder.path}/{_name(uuid)}: no mode: {mode!r}; remove it")
        return int(mode)


def _mode(handle: object) -> int:
    return int(pynvml.nvmlDeviceGetComputeMode(handle))


def _name(uuid: str) -> str:
    return f"compute-mode.{uuid}"
