"""The one table of metric families: the page, `docs/metrics.md` and every check of a name derive from it.

Guarantees: a name, its labels and their order, its unit and its help text are written here and nowhere else, so that
code refers to a family by a constant and a misspelt name cannot be printed. Only families that the exporter prints
are listed.

It will not compute anything: which samples a snapshot has is decided in `exporter.metrics.samples`.
"""

from dataclasses import dataclass
from typing import Literal

PREFIX = "podgpu_"

Type = Literal["gauge", "counter"]
Unit = Literal["", "bytes", "seconds", "ratio", "byte_seconds"]
Stability = Literal["stable", "experimental"]  # experimental: name and labels may change in a minor release

DOMAIN = ("gpu", "gpu_uuid", "gpu_instance")
CONTAINER = ("namespace", "pod", "container", *DOMAIN)


@dataclass(frozen=True, slots=True, eq=False)  # one object per family: identity is equality, and hashing is cheap
class Family:
    """One metric family. `labels` gives the order in which a sample carries its label values."""

    name: str
    type: Type
    unit: Unit
    labels: tuple[str, ...]
    meaning: str
    source: str
    stability: Stability = "stable"

    @property
    def help(self) -> str:
        """The text of the HELP line: what the number means in which unit, and where it comes from."""
        return f"{self.meaning} Source: {self.source}."


@dataclass(frozen=True, slots=True)
class Group:
    """Families that are documented together."""

    title: str
    about: str
    families: tuple[Family, ...]


# --- devices ------------------------------------------------------------------------------------------------------

_MEMORY_INFO = "nvmlDeviceGetMemoryInfo_v2"
_PROCESS_LISTS = "nvmlDeviceGetComputeRunningProcesses and its Graphics and MPSCompute siblings"
_USE = f"{_PROCESS_LISTS}, joined with /proc/PID/cgroup"

DEVICE_INFO = Family(
    "podgpu_device_info",
    "gauge",
    "",
    (*DOMAIN, "name", "pci_bus_id", "minor", "compute_capability", "compute_mode", "mig_mode", "persistence"),
    "Always 1; the labels say what the GPU is, and a label is empty where the driver does not tell.",
    "nvmlDeviceGetName, nvmlDeviceGetPciInfo_v3, nvmlDeviceGetMinorNumber, nvmlDeviceGetCudaComputeCapability, "
    "nvmlDeviceGetComputeMode, nvmlDeviceGetMigMode, nvmlDeviceGetPersistenceMode",
)
DEVICE_UP = Family(
    "podgpu_device_up",
    "gauge",
    "",
    DOMAIN,
    "1 when this cycle's readings of the memory domain succeeded, 0 when one failed.",
    "return codes of the NVML calls",
)
DEVICE_MEMORY_CAPACITY = Family(
    "podgpu_device_memory_capacity_bytes",
    "gauge",
    "bytes",
    DOMAIN,
    "Memory of the domain in bytes: a GPU's, or a GPU instance's under MIG.",
    f"{_MEMORY_INFO} (total)",
)
DEVICE_MEMORY = Family(
    "podgpu_device_memory_bytes",
    "gauge",
    "bytes",
    (*DOMAIN, "class"),
    "Memory of the domain in bytes by who has it; every byte is in one class, and the classes add up to the capacity.",
    f"{_MEMORY_INFO} (free, reserved), and for who uses it {_USE}",
)
DEVICE_MEMORY_OVER_ATTRIBUTED = Family(
    "podgpu_device_memory_over_attributed_bytes",
    "gauge",
    "bytes",
    DOMAIN,
    "Bytes by which the processes' memory exceeds what the domain has in use; normally 0, above it the classes do not "
    "add up.",
    f"{_PROCESS_LISTS}, less {_MEMORY_INFO} (used)",
)
_INTEGRATED = "what a cycle saw counts until the next, unless that is more than three intervals later"
DEVICE_MEMORY_BYTE_SECONDS = Family(
    "podgpu_device_memory_byte_seconds_total",
    "counter",
    "byte_seconds",
    (*DOMAIN, "class"),
    f"Memory of the domain by who had it, times how long, in byte-seconds since the exporter started; {_INTEGRATED}.",
    "podgpu_device_memory_bytes over the monotonic clock",
)
DEVICE_SLOTS = Family(
    "podgpu_device_slots",
    "gauge",
    "",
    (*DOMAIN, "resource"),
    "Replicas of the domain that the resource advertises; 1 when it is exclusive.",
    "kubelet PodResources v1, GetAllocatableResources; of devices that claims give out, ResourceSlices",
)
DEVICE_SM_UTILIZATION = Family(
    "podgpu_device_sm_utilization_ratio",
    "gauge",
    "ratio",
    DOMAIN,
    "Share of time, as a ratio from 0 to 1, in which at least one kernel ran on the GPU; absent under MIG.",
    "nvmlDeviceGetUtilizationRates (gpu)",
)
DEVICE_TENANTS = Family(
    "podgpu_device_tenants",
    "gauge",
    "",
    (*DOMAIN, "isolation"),
    "Namespaces that hold or use the domain. Isolation says what is between them: exclusive (one tenant by design), "
    "hardware (one tenant on a MIG GPU instance), memory (every container has a cap, and all caps hold) or none (they "
    "can exhaust each other's memory).",
    f"kubelet PodResources v1, List and GetAllocatableResources; {_USE}",
)
DEVICE_UNRESOLVED_PROCESSES = Family(
    "podgpu_device_unresolved_processes",
    "gauge",
    "",
    (*DOMAIN, "reason"),
    "Processes on the domain that could be placed neither in a container nor on the host, by reason.",
    _USE,
    "experimental",
)
MIG_DEVICE_INFO = Family(
    "podgpu_mig_device_info",
    "gauge",
    "",
    (*DOMAIN, "compute_instance", "mig_uuid", "profile"),
    "Always 1; one series per compute instance of a GPU instance, where MIG is on.",
    "nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetGpuInstanceId, nvmlDeviceGetComputeInstanceId, "
    "nvmlDeviceGetUUID, nvmlDeviceGetName",
)
DRIVER_INFO = Family(
    "podgpu_driver_info",
    "gauge",
    "",
    ("driver_version", "cuda_version"),
    "Always 1; the labels are the driver's version and the newest CUDA version that it supports.",
    "nvmlSystemGetDriverVersion, nvmlSystemGetCudaDriverVersion",
)

# --- containers ---------------------------------------------------------------------------------------------------

CONTAINER_MEMORY_USED = Family(
    "podgpu_container_memory_used_bytes",
    "gauge",
    "bytes",
    CONTAINER,
    "Memory in bytes that the container's processes hold on the domain; absent when one of them has unknown memory.",
    _USE,
)
_ANNOTATIONS = "the pod's annotations (kubelet Pods API or API server) and the policy file"
CONTAINER_MEMORY_REQUESTED = Family(
    "podgpu_container_memory_requested_bytes",
    "gauge",
    "bytes",
    CONTAINER,
    "Memory in bytes that the container's pod asks to be guaranteed on the domain, whether or not anything does so.",
    _ANNOTATIONS,
)
CONTAINER_MEMORY_LIMIT = Family(
    "podgpu_container_memory_limit_bytes",
    "gauge",
    "bytes",
    CONTAINER,
    "Memory in bytes that the container is to stay under on the domain, as its pod asks for or policy sets it, whether "
    "or not anything enforces it.",
    _ANNOTATIONS,
)
CONTAINER_MEMORY_OVERRUN = Family(
    "podgpu_container_memory_overrun_bytes",
    "gauge",
    "bytes",
    CONTAINER,
    "Memory in bytes that the container uses above its limit, 0 while it is under it.",
    "podgpu_container_memory_used_bytes and podgpu_container_memory_limit_bytes",
)
CONTAINER_MEMORY_PEAK = Family(
    "podgpu_container_memory_peak_bytes",
    "gauge",
    "bytes",
    CONTAINER,
    "Highest memory in bytes that a cycle saw the container use since it was first seen; what happens between two "
    "cycles is not seen.",
    "podgpu_container_memory_used_bytes over time",
)
CONTAINER_MEMORY_USED_BYTE_SECONDS = Family(
    "podgpu_container_memory_used_byte_seconds_total",
    "counter",
    "byte_seconds",
    CONTAINER,
    "Memory that the container used, times how long, in byte-seconds since it was first seen; time in which its use "
    "was not known is left out.",
    "podgpu_container_memory_used_bytes over the monotonic clock",
)
CONTAINER_MEMORY_REQUESTED_BYTE_SECONDS = Family(
    "podgpu_container_memory_requested_byte_seconds_total",
    "counter",
    "byte_seconds",
    CONTAINER,
    "Memory that the container's pod asked to be guaranteed, times how long, in byte-seconds since it was first seen.",
    "podgpu_container_memory_requested_bytes over the monotonic clock",
)
CONTAINER_MEMORY_COMMITTED_BYTE_SECONDS = Family(
    "podgpu_container_memory_committed_byte_seconds_total",
    "counter",
    "byte_seconds",
    CONTAINER,
    "The larger of used and requested memory at each instant, times how long, in byte-seconds since the container was "
    "first seen; where only one of the two is known, that one.",
    "podgpu_container_memory_used_bytes and podgpu_container_memory_requested_bytes over the monotonic clock",
)
CONTAINER_MEMORY_OVERRUN_BYTE_SECONDS = Family(
    "podgpu_container_memory_overrun_byte_seconds_total",
    "counter",
    "byte_seconds",
    CONTAINER,
    "Memory that the container used above its limit, times how long, in byte-seconds since both were first known.",
    "podgpu_container_memory_overrun_bytes over the monotonic clock",
)
CONTAINER_MEMORY_OVERRUN_SECONDS = Family(
    "podgpu_container_memory_overrun_seconds_total",
    "counter",
    "seconds",
    CONTAINER,
    "Seconds in which the container used more memory than its limit.",
    "podgpu_container_memory_overrun_bytes over the monotonic clock",
)
CONTAINER_MPS_THREAD_RATIO_SECONDS = Family(
    "podgpu_container_mps_thread_ratio_seconds_total",
    "counter",
    "seconds",
    CONTAINER,
    "The share of the GPU's threads that MPS let the container have, as a ratio from 0 to 1, times how long: the "
    "seconds for which it could have had the whole GPU instead.",
    "podgpu_container_mps_active_thread_ratio over the monotonic clock",
)
CONTAINER_PROCESSES = Family(
    "podgpu_container_processes",
    "gauge",
    "",
    (*CONTAINER, "kind"),
    "Processes of the container on the domain; each counts once: as mps before compute before graphics.",
    _USE,
)
CONTAINER_PROCESSES_MEMORY_UNKNOWN = Family(
    "podgpu_container_processes_memory_unknown",
    "gauge",
    "",
    CONTAINER,
    "Processes of the container whose memory the driver does not tell.",
    _USE,
)
CONTAINER_SLOTS = Family(
    "podgpu_container_slots",
    "gauge",
    "",
    CONTAINER,
    "Replicas of the domain that the container holds.",
    "kubelet PodResources v1, List",
)
CONTAINER_SHARE = Family(
    "podgpu_container_share_ratio",
    "gauge",
    "ratio",
    CONTAINER,
    "Ratio from 0 to 1 of the replicas that the container holds to those advertised for the domain; absent where more "
    "are held than advertised, as by the containers of a shared claim.",
    "kubelet PodResources v1, List and GetAllocatableResources; of devices that claims give out, ResourceSlices",
)
CONTAINER_ALLOCATED = Family(
    "podgpu_container_allocated",
    "gauge",
    "",
    CONTAINER,
    "1 when the kubelet allocated the domain to the container, or a scheduler that reserved it gave the pod a part; 0 "
    "when the container uses it without allocation; absent where the device of a claim of the container's, or who "
    "shares a reserved device, is not known.",
    f"kubelet PodResources v1, List; {_USE}",
)
CONTAINER_SM_UTILIZATION = Family(
    "podgpu_container_sm_utilization_ratio",
    "gauge",
    "ratio",
    CONTAINER,
    "Estimated ratio from 0 to 1 of the SMs' time that the container's processes took: the sum of each one's mean over "
    "the driver's samples since the cycle before, 0 without a sample, at most 1. A sample credits the one "
    "process that was active, so where several share the GPU (time-slicing, MPS) the value says who is busy, not how "
    "the GPU was divided, and those of one GPU may add up to more than 1. Absent under MIG.",
    f"nvmlDeviceGetProcessUtilization (smUtil); {_USE}",
)

_APPLIED = "nvmlDeviceGetMemoryLimits_v1, dmem.max, MPS control daemon, /proc/PID/environ"
CONTAINER_MEMORY_CHARGED = Family(
    "podgpu_container_memory_charged_bytes",
    "gauge",
    "bytes",
    CONTAINER,
    "Memory in bytes on the domain that is charged to the container's control group, where the kernel or the driver "
    "does that; the driver's own table counts only what was allocated since there is a limit.",
    "dmem.current, else nvmlDeviceGetMemoryLimits_v1 (currentUsed)",
)
CONTAINER_MEMORY_LIMIT_APPLIED = Family(
    "podgpu_container_memory_limit_applied_bytes",
    "gauge",
    "bytes",
    (*CONTAINER, "mechanism"),
    "Limit in bytes that was read back, by mechanism: cgroup (all processes together), mps_namespace and mps_server "
    "(each client for itself; where a daemon shows whole GiB, rounded down), client_env (each client's own wish).",
    _APPLIED,
)
CONTAINER_MEMORY_LIMIT_ENFORCED = Family(
    "podgpu_container_memory_limit_enforced",
    "gauge",
    "",
    CONTAINER,
    "1 when limits that were read back hold the container to podgpu_container_memory_limit_bytes, 0 when they do not; "
    "absent without a cap, and where that cannot be told (then podgpu_container_condition says why).",
    _APPLIED,
)
CONTAINER_CONDITION = Family(
    "podgpu_container_condition",
    "gauge",
    "",
    (*CONTAINER, "reason"),
    "1 for each reason why the container's cap is not known to hold; a reason that does not apply has no series.",
    _APPLIED,
)
CONTAINER_MPS_ACTIVE_THREAD_RATIO = Family(
    "podgpu_container_mps_active_thread_ratio",
    "gauge",
    "ratio",
    (*CONTAINER, "source"),
    "Ratio from 0 to 1 of the GPU's threads that an MPS client of the container may use at most: the smallest that is "
    "in force, and the source is what sets it (default: nothing does); of clients that differ the largest.",
    "MPS control daemon: namespace list, get_active_thread_percentage; /proc/PID/environ",
)
CONTAINER_MPS_CLIENTS = Family(
    "podgpu_container_mps_clients",
    "gauge",
    "",
    CONTAINER,
    "Processes of the container on the domain that are clients of an MPS server.",
    f"MPS control daemon: client list, get_client_list; {_USE}",
)

# --- MPS ----------------------------------------------------------------------------------------------------------

_DAEMON = ("pipe_directory",)
_SERVER = (*_DAEMON, "server")
MPS_DAEMON_UP = Family(
    "podgpu_mps_daemon_up",
    "gauge",
    "",
    _DAEMON,
    "1 when the MPS control daemon of the pipe directory answered in the last cycle, 0 when it did not.",
    "podgpu, the MPS control daemon's answer to server list or get_default_active_thread_percentage",
)
MPS_DAEMON_INFO = Family(
    "podgpu_mps_daemon_info",
    "gauge",
    "",
    (*_DAEMON, "protocol"),
    "Always 1; the label is the daemon's control protocol, 2 or 3.",
    "podgpu, the MPS control daemon's answer to server list",
)
MPS_DAEMON_STARTS = Family(
    "podgpu_mps_daemon_starts_total",
    "counter",
    "",
    _DAEMON,
    "Times that the daemon was found to be another process than before, since the exporter started; each loses all "
    "shares and limits that were set.",
    "nvidia-cuda-mps-control.pid and /proc/PID/stat",
)
MPS_SERVER_INFO = Family(
    "podgpu_mps_server_info",
    "gauge",
    "",
    (*_SERVER, "uid"),
    "Always 1; one series per MPS server. Before protocol 3 a server is named by the user that it runs as.",
    "MPS control daemon: server list, get_server_list; /proc/PID/status",
)
MPS_SERVER_STATE = Family(
    "podgpu_mps_server_state",
    "gauge",
    "",
    (*_SERVER, "state"),
    "1 for the state that the server is in, 0 for the others; unknown where the control command does not tell.",
    "MPS control daemon: server list, get_server_status",
)
MPS_SERVER_CLIENTS = Family(
    "podgpu_mps_server_clients",
    "gauge",
    "",
    _SERVER,
    "Processes that are connected to the server.",
    "MPS control daemon: client list, get_client_list",
)
MPS_SERVER_STARTS = Family(
    "podgpu_mps_server_starts_total",
    "counter",
    "",
    _DAEMON,
    "Servers of the daemon that have appeared since the exporter started.",
    "MPS control daemon: server list, get_server_list",
)
MPS_ACTIVE_THREAD_RATIO = Family(
    "podgpu_mps_active_thread_ratio",
    "gauge",
    "ratio",
    (*_SERVER, "mps_namespace", "scope"),
    "Ratio from 0 to 1 of the GPU's threads that a client may use, as set for a scope: default (servers that start "
    "later), server (its clients yet to come) or namespace.",
    "MPS control daemon: get_default_active_thread_percentage, get_active_thread_percentage, namespace list",
)
MPS_PINNED_MEMORY_LIMIT = Family(
    "podgpu_mps_pinned_memory_limit_bytes",
    "gauge",
    "bytes",
    (*_SERVER, "mps_namespace", "scope", "device"),
    "Limit in bytes of each client's memory on a device, as set for a scope; the device is the server's ordinal, and "
    "empty where the limit is for each of them. Absent without one. Where a daemon shows whole GiB, rounded down.",
    "MPS control daemon: get_default_device_pinned_mem_limit, get_device_pinned_mem_limit, namespace list",
)

# --- pods ---------------------------------------------------------------------------------------------------------

POD_INFO = Family(
    "podgpu_pod_info",
    "gauge",
    "",
    ("namespace", "pod", "uid", "workload_kind", "workload", "priority_class", "qos"),
    "Always 1; one series per pod that holds or uses a GPU. The workload is what the pod is a part of: the name in "
    "podgpu.io/job, else its job or controller, else the pod itself.",
    "kubelet Pods API or API server: metadata, spec.priorityClassName, status.qosClass",
)
ANNOTATION_ERRORS = Family(
    "podgpu_annotation_errors",
    "gauge",
    "",
    ("namespace", "pod", "container", "reason"),
    "Annotations about GPU memory and compute that can't be used, by reason; the container is empty where the fault is "
    "the whole pod's.",
    "the pod's annotations (kubelet Pods API or API server)",
)

# --- health -------------------------------------------------------------------------------------------------------

SOURCE_UP = Family(
    "podgpu_source_up",
    "gauge",
    "",
    ("source",),
    "1 when the source answered in the last cycle, 0 when it failed.",
    "podgpu, one reading per source and cycle",
)
SOURCE_DURATION = Family(
    "podgpu_source_duration_seconds",
    "gauge",
    "seconds",
    ("source",),
    "Seconds that the source's reading took in the last cycle.",
    "podgpu, monotonic clock",
)
SOURCE_LAST_SUCCESS = Family(
    "podgpu_source_last_success_timestamp_seconds",
    "gauge",
    "seconds",
    ("source",),
    "Unix time in seconds at which the source last answered; absent when it never did.",
    "podgpu, system clock",
)
SOURCE_ERRORS = Family(
    "podgpu_source_errors_total",
    "counter",
    "",
    ("source", "reason"),
    "Failures of the source since the exporter started, by reason.",
    "podgpu, one reading per source and cycle",
)
CONDITION = Family(
    "podgpu_condition",
    "gauge",
    "",
    ("condition",),
    "1 while the named state of the node makes numbers incomplete, 0 otherwise.",
    f"podgpu, concluded from {_USE}, {_MEMORY_INFO}, nvmlDeviceGetProcessUtilization and kubelet PodResources v1",
)
SNAPSHOT_TIMESTAMP = Family(
    "podgpu_snapshot_timestamp_seconds",
    "gauge",
    "seconds",
    (),
    "Unix time in seconds at which the readings on this page were complete.",
    "podgpu, system clock",
)
SAMPLER_CYCLES = Family(
    "podgpu_sampler_cycles_total",
    "counter",
    "",
    ("result",),
    "Cycles of reading and publishing since the exporter started, by result.",
    "podgpu, the sampler",
)
SAMPLING_GAP = Family(
    "podgpu_sampling_gap_seconds_total",
    "counter",
    "seconds",
    (),
    "Seconds between cycles that were more than three intervals apart; no counter of byte-seconds or seconds has them.",
    "podgpu, monotonic clock",
)
BUILD_INFO = Family(
    "podgpu_build_info",
    "gauge",
    "",
    ("version", "python_version"),
    "Always 1; the labels are the versions of podgpu and of the Python that runs it.",
    "podgpu, package metadata",
)

GROUPS = (
    Group(
        "Devices",
        "One series per memory domain: a GPU, or a GPU instance under MIG. None of them carries a pod.",
        (
            DEVICE_INFO,
            DEVICE_UP,
            DEVICE_MEMORY_CAPACITY,
            DEVICE_MEMORY,
            DEVICE_MEMORY_OVER_ATTRIBUTED,
            DEVICE_MEMORY_BYTE_SECONDS,
            DEVICE_SLOTS,
            DEVICE_SM_UTILIZATION,
            DEVICE_TENANTS,
            DEVICE_UNRESOLVED_PROCESSES,
            MIG_DEVICE_INFO,
            DRIVER_INFO,
        ),
    ),
    Group(
        "Containers",
        "One series per container and memory domain that it was given or that it uses. Gauges go with the container; "
        "its counters stay for `--retain` after it was last seen.",
        (
            CONTAINER_MEMORY_USED,
            CONTAINER_MEMORY_PEAK,
            CONTAINER_MEMORY_REQUESTED,
            CONTAINER_MEMORY_LIMIT,
            CONTAINER_MEMORY_OVERRUN,
            CONTAINER_MEMORY_USED_BYTE_SECONDS,
            CONTAINER_MEMORY_REQUESTED_BYTE_SECONDS,
            CONTAINER_MEMORY_COMMITTED_BYTE_SECONDS,
            CONTAINER_MEMORY_OVERRUN_BYTE_SECONDS,
            CONTAINER_MEMORY_OVERRUN_SECONDS,
            CONTAINER_MPS_THREAD_RATIO_SECONDS,
            CONTAINER_PROCESSES,
            CONTAINER_PROCESSES_MEMORY_UNKNOWN,
            CONTAINER_SLOTS,
            CONTAINER_SHARE,
            CONTAINER_ALLOCATED,
            CONTAINER_SM_UTILIZATION,
            CONTAINER_MEMORY_CHARGED,
            CONTAINER_MEMORY_LIMIT_APPLIED,
            CONTAINER_MEMORY_LIMIT_ENFORCED,
            CONTAINER_CONDITION,
            CONTAINER_MPS_ACTIVE_THREAD_RATIO,
            CONTAINER_MPS_CLIENTS,
        ),
    ),
    Group(
        "MPS",
        "What the MPS control daemons of the node say, by pipe directory. Only where there is such a directory.",
        (
            MPS_DAEMON_UP,
            MPS_DAEMON_INFO,
            MPS_DAEMON_STARTS,
            MPS_SERVER_INFO,
            MPS_SERVER_STATE,
            MPS_SERVER_CLIENTS,
            MPS_SERVER_STARTS,
            MPS_ACTIVE_THREAD_RATIO,
            MPS_PINNED_MEMORY_LIMIT,
        ),
    ),
    Group(
        "Pods",
        "What Kubernetes and the pods' authors say. Only where the kubelet's Pods API or the API server is a source of "
        "pods; besides, `podgpu_pod_labels{namespace,pod,label_...}` shows the labels that `--pods.label` names.",
        (POD_INFO, ANNOTATION_ERRORS),
    ),
    Group(
        "Health",
        "Why a number is missing, and how old the page is. These stay when a snapshot is too old to print its values, "
        "except `podgpu_condition`, which is a reading as well.",
        (
            SOURCE_UP,
            SOURCE_DURATION,
            SOURCE_LAST_SUCCESS,
            SOURCE_ERRORS,
            CONDITION,
            SNAPSHOT_TIMESTAMP,
            SAMPLER_CYCLES,
            SAMPLING_GAP,
            BUILD_INFO,
        ),
    ),
)
FAMILIES: tuple[Family, ...] = tuple(family for group in GROUPS for family in group.families)
