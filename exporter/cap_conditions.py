"""Why a cap is not known to hold, for people: the one place that says each reason in words."""

from collections.abc import Mapping

from exporter.model import CapCondition

REASONS: Mapping[CapCondition, str] = {
    CapCondition.LIMIT_MISSING: "nothing limits some process of it",
    CapCondition.LIMIT_UNKNOWN: "what limits it can't be read now",
    CapCondition.LIMIT_ABOVE_CAP: "what limits it allows more than the cap",
    CapCondition.LIMIT_UNPROVEN: "its limit is shown rounded, or is not known to be the one under which a client came; "
    "the MPS server's log would tell",
    CapCondition.OUTSIDE_MPS: "a process of it is no MPS client: check CUDA_MPS_PIPE_DIRECTORY and its mount",
    CapCondition.OTHER_NAMESPACE: "an MPS client of it is not in the namespace that was made for it",
    CapCondition.SEVERAL_CLIENTS: "each of its MPS clients has a limit of its own, and these add up to more "
    "than the cap",
    CapCondition.VARIABLE_VOIDS_LIMIT: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT of a client names a GPU that it can't see, "
    "which drops all its limits",
    CapCondition.ENVIRONMENT_UNREADABLE: "the environment of a client can't be read, and may void its limit: the "
    "exporter needs CAP_SYS_PTRACE",
    CapCondition.NOT_ALL_CHARGED: "memory from before the limit does not count against it: restart the container",
    CapCondition.ABOVE_CAP: "it holds more than the cap",
}
