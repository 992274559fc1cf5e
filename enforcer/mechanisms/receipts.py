"""The receipts that pods' gates wait for: one file for each pod, which every pod may read and nobody else may write.

A pod's receipt is also the enforcer's own record of when its caps had been read back: there is no second one that could
say otherwise. A receipt of an earlier boot is none.
"""

from collections.abc import Mapping
from types import MappingProxyType

from enforcer.mechanisms.folders import Folder
from enforcer.mechanisms.names import is_pod_uid
from enforcer.model import WriteReceipt
from enforcer.outcomes import Done
from enforcer.receipt import MOST, Receipt, file_name, parse, to_bytes
from exporter.clock import Clock
from exporter.errors import Failure, Reason


class Receipts:
    """The folder of receipts, of the boot with id `boot`."""

    def __init__(self, path: str, *, boot: str, clock: Clock) -> None:
        self._folder = Folder(path, mode=0o755, file_mode=0o644)
        self._boot = boot
        self._clock = clock

    def write(self, action: WriteReceipt) -> Done | Failure:
        """Write a pod's receipt, and read it back."""
        pod = action.pod
        if not is_pod_uid(pod.uid):
            return Failure(Reason.MALFORMED, f"not a pod's uid: {pod.uid!r}")
        receipt = Receipt(
            pod.namespace,
            pod.name,
            pod.uid,
            action.containers,
            self._boot,
            applied=self._clock.boottime(),
            written=self._clock.unix(),
        )
        problem = self._folder.write(file_name(pod.uid), to_bytes(receipt))
        if problem is not None:
            return problem
        found = self._read(pod.uid)
        if isinstance(found, Failure):
            return found
        if found != receipt:
            return Failure(Reason.FOREIGN, f"{self._folder.path}: somebody else writes receipts there")
        return Done(f"receipt for {', '.join(action.containers) or 'a pod without caps'}")

    def read(self) -> Mapping[str, float] | Failure:
        """When each pod's caps had been read back, in seconds since boot, by uid."""
        names = self._folder.names()
        if isinstance(names, Failure):
            return names
        found: dict[str, float] = {}
        for name in names:
            uid = name.removesuffix(".json")
            if not is_pod_uid(uid) or name != file_name(uid):
                return Failure(Reason.FOREIGN, f"{self._folder.path}/{name} is not ours; remove it")
            receipt = self._read(uid)
            if isinstance(receipt, Failure):
                return receipt
            if receipt is not None and receipt.boot == self._boot:
                found[uid] = receipt.applied
        return MappingProxyType(found)

    def drop(self, uid: str) -> Failure | None:
        """Remove a pod's receipt, if there is one."""
        if not is_pod_uid(uid):
            return Failure(Reason.MALFORMED, f"not a pod's uid: {uid!r}")
        return self._folder.remove(file_name(uid))

    def _read(self, uid: str) -> Receipt | Failure | None:
        content = self._folder.read(file_name(uid), most=MOST)
        if not isinstance(content, bytes):
            return content
        receipt = parse(content)
        path = f"{self._folder.path}/{file_name(uid)}"
        if isinstance(receipt, Failure):
            return Failure(receipt.reason, f"{path}: {receipt.detail}; remove it")
        return receipt if receipt.uid == uid else Failure(Reason.FOREIGN, f"{path} is another pod's; remove it")
