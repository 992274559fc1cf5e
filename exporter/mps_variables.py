"""What the environment of an MPS client means for its share and its limits. Pure; the text is the workload's.

A variable can only lower what the daemon sets. One entry that names a GPU which the client cannot see makes the driver
drop every limit of the client, the daemon's too, so that case is told apart from a variable without effect.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.model import ClientEnvironment

_ENTRY = re.compile(r"\s*([0-9A-Za-z-]{1,64})\s*=(.*)", re.ASCII | re.DOTALL)
_AMOUNT = re.compile(r"\s*([0-9]{1,15})([MG])[A-Za-z]*\s*", re.ASCII)  # units are binary
_PERCENTAGE = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,10})?)\s*", re.ASCII)
_UNIT = {"M": 1 << 20, "G": 1 << 30}
_SOME = ""  # a visible GPU, but which one is not known


@dataclass(frozen=True, slots=True)
class VariableLimit:
    """What CUDA_MPS_PINNED_DEVICE_MEM_LIMIT sets on one GPU.

    `limit` is in bytes, None where it sets none. `void`: it drops every limit that the client has. `unknown`: what it
    does can't be told, for it is not known which GPUs the client sees.
    """

    limit: int | None = None
    void: bool = False
    unknown: bool = False


def thread_ratio(environment: ClientEnvironment) -> float | None:
    """The share of threads that the client asks for, above 0 and at most 1; None where it asks for none."""
    match = _PERCENTAGE.fullmatch(environment.percentage or "")
    percent = float(match[1]) if match is not None else 0.0
    return percent / 100 if 0 < percent <= 100 else None


def pinned_limit(
    environment: ClientEnvironment, *, gpu_uuid: str, server_devices: Sequence[str] | None, held: Sequence[str]
) -> VariableLimit:
    """The limit that the client's environment sets on a GPU.

    `server_devices` are the UUIDs of its server's ordinals, `held` those of the GPUs that its container was given. A
    value that is not written as documented, a whole number with M or G, sets nothing here: the driver takes such values
    for other ones, most of them without any effect.
    """
    named = [match for entry in (environment.pinned or "").split(",") if (match := _ENTRY.fullmatch(entry)) is not None]
    if not named:
        return VariableLimit()
    visible = _visible(environment, server_devices, held)
    if visible is None:
        # Every client that sees a GPU at all has an ordinal 0; which GPU that is, can't be told.
        return VariableLimit(unknown=any(match[1] != "0" for match in named))
    least: int | None = None
    for match in named:
        device = _device(match[1], visible)
        if device is None:
            return VariableLimit(void=True)
        if device in (gpu_uuid, _SOME) and (amount := _amount(match[2])) is not None:
            if device == _SOME and len(visible) > 1:
                continue  # about one of several GPUs, and which one can't be told: it can only lower
            least = amount if least is None else min(least, amount)
    return VariableLimit(least)


def _amount(text: str) -> int | None:
    """Bytes of a limit; None where it sets none."""
    match = _AMOUNT.fullmatch(text)
    return (int(match[1]) * _UNIT[match[2]]) or None if match is not None else None


def _device(key: str, visible: Sequence[str]) -> str | None:
    """The UUID of the visible GPU that an entry names, `_SOME` where it isn't known; None: it is not visible."""
    if key.isdigit():
        return visible[int(key)] if int(key) < len(visible) else None
    found = [uuid for uuid in visible if uuid.startswith(key)]
    return found[0] if found else _SOME if _SOME in visible else None


def _visible(
    environment: ClientEnvironment, server_devices: Sequence[str] | None, held: Sequence[str]
) -> Sequence[str] | None:
    """The UUIDs of the GPUs that the client sees, by its own ordinals; None: how many these are isn't known."""
    base = _given(environment, server_devices, held)
    chosen = _listed(environment.cuda_devices)
    if chosen is None:
        return base
    visible: list[str] = []
    for name in chosen:
        if name.isdigit():
            if base is not None and int(name) >= len(base):
                break  # CUDA ignores what follows the first device that it doesn't find
            visible.append(base[int(name)] if base is not None else _SOME)
        else:
            whole = [uuid for uuid in base or () if uuid.startswith(name)]
            visible.append(whole[0] if whole else name)
    return visible


def _given(
    environment: ClientEnvironment, server_devices: Sequence[str] | None, held: Sequence[str]
) -> Sequence[str] | None:
    """The GPUs that the client could choose from: those of the server that its container has."""
    names = _listed(environment.nvidia_devices)
    if names is not None and names and all(name.startswith("GPU-") for name in names):
        found: Sequence[str] = names
    elif names is not None and names and all(name.isdigit() for name in names):
        return [_SOME] * len(names)
    elif held:
        found = held
    elif server_devices is not None and (len(server_devices) == 1 or "all" in (names or ())):
        found = server_devices
    else:
        return None
    return found if server_devices is None else [uuid for uuid in server_devices if uuid in found]


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
