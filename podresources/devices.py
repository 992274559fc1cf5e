"""What a device id means. Every device plugin has its own way of writing one; this module knows the ways and no device.

    GPU-<uuid>                   a whole GPU
    MIG-<uuid>                   a MIG device
    MIG-GPU-<uuid>/<gi>/<ci>     a MIG device of drivers before 470: parent, GPU instance, compute instance
    <any of these>::<n>          replica n of it (time-slicing and MPS are written alike)
    nvidia<m>[/gi<i>][/vgpu<n>]  GKE: device minor number, GPU instance, replica
    all, all::<n>                every GPU of the node (WSL)
    gpu-<m>, gpu-<m>-mig-...     dynamic resource allocation (DRA), in `parse_dra`

Guarantees: no text raises; the text itself is always kept; a form is recognised as a whole or not at all.

Everything else is `Kind.UNKNOWN`, and on purpose so are `GPU-<uuid>-<n>` (HAMi, Volcano, an old AWS plugin) and the ids
of plugins that count units of memory: there the kubelet picks any id, and the GPU that the scheduler chose stands in an
annotation of the pod. To read the GPU out of such an id would name the wrong one. Plain numbers (Tegra) are unknown
too: they are an index of a numbering that is not said.
"""

import re
from dataclasses import dataclass
from enum import StrEnum, unique

DRA_DRIVER = "gpu.nvidia.com"

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NUMBER = "(?:0|[1-9][0-9]{0,5})"  # as a program prints one: bounded, no sign, no leading zero

_GPU = re.compile(f"GPU-{_UUID}")
_MIG = re.compile(f"MIG-{_UUID}")
_OLD_MIG = re.compile(f"MIG-(GPU-{_UUID})/({_NUMBER})/({_NUMBER})")
_REPLICA = re.compile(_NUMBER)
_GKE = re.compile(f"nvidia({_NUMBER})(?:/gi({_NUMBER}))?(?:/vgpu({_NUMBER}))?")
_DRA_GPU = re.compile(f"gpu-({_NUMBER})")
# The two generations differ in what the last numbers mean (profile and placement), and none is a GPU instance id.
_DRA_MIG = re.compile(f"gpu-({_NUMBER})-mig-[a-z0-9]+(?:-[a-z]+)*-{_NUMBER}-{_NUMBER}")


@unique
class Kind(StrEnum):
    """What a device id names."""

    GPU = "gpu"
    MIG = "mig"
    ALL = "all"  # every GPU of the node
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DeviceId:
    """A device id, taken apart. A GPU or MIG device has a `uuid` or a `minor`, by its allocator's way of naming.

    `uuid` is the parent's ("GPU-...") for a MIG device that is written as parent and instances. `minor` is the N of
    /dev/nvidiaN, which need not be NVML's index. `replica` is empty where the device is not shared.
    """

    raw: str
    kind: Kind = Kind.UNKNOWN
    uuid: str = ""
    minor: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    replica: str = ""


def parse(device_id: str) -> DeviceId:
    """The meaning of one of a device plugin's ids."""
    if match := _GKE.fullmatch(device_id):
        minor, gpu_instance, replica = match.groups()
        return DeviceId(
            device_id,
            kind=Kind.GPU if gpu_instance is None else Kind.MIG,
            minor=int(minor),
            gpu_instance=None if gpu_instance is None else int(gpu_instance),
            replica=replica or "",
        )
    # The last "::" is the one that the plugin added: what is before it is the plugin's id of the device.
    base, separator, replica = device_id.rpartition("::")
    if not separator:
        base, replica = device_id, ""
    elif not _REPLICA.fullmatch(replica):
        return DeviceId(device_id)
    if base == "all":
        return DeviceId(device_id, kind=Kind.ALL, replica=replica)
    if _GPU.fullmatch(base):
        return DeviceId(device_id, kind=Kind.GPU, uuid=base, replica=replica)
    if _MIG.fullmatch(base):
        return DeviceId(device_id, kind=Kind.MIG, uuid=base, replica=replica)
    if match := _OLD_MIG.fullmatch(base):
        uuid, gpu_instance, compute_instance = match.groups()
        return DeviceId(
            device_id,
            kind=Kind.MIG,
            uuid=uuid,
            gpu_instance=int(gpu_instance),
            compute_instance=int(compute_instance),
            replica=replica,
        )
    return DeviceId(device_id)


def parse_dra(driver: str, pool: str, device: str, *, share_id: str = "") -> DeviceId:
    """The meaning of a DRA device. `raw` becomes driver/pool/device, which is the device's identity.

    The name of a MIG device tells its GPU and not its GPU instance; only the driver's ResourceSlice does. Passthrough
    devices (gpu-vfio-N) are unknown: the host's driver does not see them. A share counts as a replica.
    """
    raw = f"{driver}/{pool}/{device}"
    if driver != DRA_DRIVER:
        return DeviceId(raw)
    if match := _DRA_GPU.fullmatch(device):
        return DeviceId(raw, kind=Kind.GPU, minor=int(match[1]), replica=share_id)
    if match := _DRA_MIG.fullmatch(device):
        return DeviceId(raw, kind=Kind.MIG, minor=int(match[1]), replica=share_id)
    return DeviceId(raw)
