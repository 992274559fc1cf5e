"""What a return code of NVML means for the exporter.

The codes fall into a few classes by what helps: a new start of the library, a new look for the GPU, nothing ever, a
change of configuration, the next cycle. Source: the nvmlReturn_t values of nvml.h.
"""

from enum import Enum, auto

import pynvml

from exporter.errors import Failure, Reason


class CodeClass(Enum):
    """What to do about a code."""

    LIFECYCLE = auto()  # the library is unusable until it is initialised again
    GPU_GONE = auto()  # this GPU's handle is worthless: open it anew
    ABSENT = auto()  # this driver or GPU will never answer this call: remember, do not ask again
    CONFIGURATION = auto()  # a right is missing
    TRANSIENT = auto()  # the next cycle may work
    NOTHING = auto()  # "not found": there is nothing there, which is an answer


_CLASSES: dict[int, tuple[CodeClass, Reason]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: (CodeClass.LIFECYCLE, Reason.DRIVER_NOT_LOADED),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (CodeClass.LIFECYCLE, Reason.DRIVER_NOT_LOADED),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (CodeClass.LIFECYCLE, Reason.LIBRARY_NOT_FOUND),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (CodeClass.LIFECYCLE, Reason.LIBRARY_MISMATCH),
    pynvml.NVML_ERROR_GPU_IS_LOST: (CodeClass.GPU_GONE, Reason.GPU_LOST),
    pynvml.NVML_ERROR_RESET_REQUIRED: (CodeClass.GPU_GONE, Reason.GPU_LOST),
    pynvml.NVML_ERROR_GPU_NOT_FOUND: (CodeClass.GPU_GONE, Reason.GPU_LOST),
    pynvml.NVML_ERROR_INVALID_STATE: (CodeClass.GPU_GONE, Reason.GPU_LOST),
    pynvml.NVML_ERROR_NOT_SUPPORTED: (CodeClass.ABSENT, Reason.NOT_SUPPORTED),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (CodeClass.ABSENT, Reason.NOT_SUPPORTED),
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: (CodeClass.ABSENT, Reason.NOT_SUPPORTED),
    pynvml.NVML_ERROR_DEPRECATED: (CodeClass.ABSENT, Reason.NOT_SUPPORTED),
    pynvml.NVML_ERROR_NO_PERMISSION: (CodeClass.CONFIGURATION, Reason.NO_PERMISSION),
    pynvml.NVML_ERROR_INSUFFICIENT_SIZE: (CodeClass.TRANSIENT, Reason.TRANSIENT),
    pynvml.NVML_ERROR_NOT_READY: (CodeClass.TRANSIENT, Reason.TRANSIENT),
    pynvml.NVML_ERROR_IN_USE: (CodeClass.TRANSIENT, Reason.TRANSIENT),
    pynvml.NVML_ERROR_TIMEOUT: (CodeClass.TRANSIENT, Reason.TRANSIENT),
    pynvml.NVML_ERROR_NO_DATA: (CodeClass.TRANSIENT, Reason.TRANSIENT),
    pynvml.NVML_ERROR_UNKNOWN: (CodeClass.TRANSIENT, Reason.DRIVER_ERROR),
    pynvml.NVML_ERROR_NOT_FOUND: (CodeClass.NOTHING, Reason.NOT_FOUND),
}

_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is not on this container's library path; "
        "run with NVIDIA_DRIVER_CAPABILITIES=utility under the NVIDIA runtime, or mount the driver's libraries"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not loaded on this node; install or load it",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was replaced while this library stayed loaded; restart the exporter's pod to get the new library"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "the device is not open to this process; run with NVIDIA_VISIBLE_DEVICES=all, and under MIG with "
        "NVIDIA_MIG_MONITOR_DEVICES=all and a privileged container"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus; the node needs a reset of it or a reboot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU needs a reset",
}


def classify(code: int) -> CodeClass:
    """The class of a return code. A code that nobody knows is transient: dropped for this cycle, never a zero."""
    return _CLASSES.get(code, (CodeClass.TRANSIENT, Reason.DRIVER_ERROR))[0]


def failure(code: int, *, call: str) -> Failure:
    """The failure for a return code of `call`, in one line that says what to change where that is known."""
    reason = _CLASSES.get(code, (CodeClass.TRANSIENT, Reason.DRIVER_ERROR))[1]
    name = _NAMES.get(code, str(code))
    advice = _ADVICE.get(code)
    return Failure(reason, f"{call}: {name}: {advice}" if advice else f"{call}: {name}")


_NAMES: dict[int, str] = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}
