"""Which GPU an ordinal of an MPS server is. Pure.

A server numbers the GPUs that it may use in CUDA's order, which need not be the driver's: CUDA puts the fastest GPU
first unless it is told to go by the bus. podgpu says which GPU an ordinal is only where that follows; a limit that is
shown for the wrong GPU is worse than one that is not shown.
"""

from collections.abc import Collection, Sequence

from exporter.model import Device

_ALL = ("", "-", "all")


def ordinals(
    gpus: Collection[Device], *, visible: str | None, order: str | None, allowed: str = ""
) -> tuple[str, ...] | None:
    """The UUIDs of a server's ordinals, or None where they can't be told.

    Args:
        gpus: The node's GPUs.
        visible: CUDA_VISIBLE_DEVICES of the daemon; None: not set.
        order: CUDA_DEVICE_ORDER of the daemon; None: not set.
        allowed: The server's own list of devices (protocol 3): UUIDs, or ordinals of the daemon.
    """
    every = _in_order(gpus, order)
    of_daemon = every if visible is None else _chosen(visible, gpus, every)
    return of_daemon if allowed.strip().lower() in _ALL else _chosen(allowed, gpus, of_daemon)


def _in_order(gpus: Collection[Device], order: str | None) -> tuple[str, ...] | None:
    """All GPUs in CUDA's order, where that is the driver's."""
    ranked = sorted(gpus, key=lambda gpu: gpu.index)
    if order != "PCI_BUS_ID" and len({gpu.name for gpu in ranked}) > 1:
        return None
    return tuple(gpu.uuid for gpu in ranked) or None


def _chosen(text: str, gpus: Collection[Device], base: Sequence[str] | None) -> tuple[str, ...] | None:
    """The devices that a list names, by UUID (or the beginning of one) or by their place in `base`."""
    if not text.strip():
        return ()
    found: list[str] = []
    for word in (part.strip() for part in text.split(",")):
        if word.startswith("MIG-"):
            found.append(word)
        elif word.startswith("GPU-"):
            matching = [gpu.uuid for gpu in gpus if gpu.uuid.lower().startswith(word.lower())]
            if len(matching) != 1:
                return None
            found += matching
        elif word.isascii() and word.isdigit() and len(word) < 4 and base is not None and int(word) < len(base):
            found.append(base[int(word)])
        else:
            return None
    return tuple(found) if len(set(found)) == len(found) else None
