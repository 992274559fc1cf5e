"""For each alert a node on which it comes about."""

from tests.rules.timelines import CONTAINER, DEVICE, TARGET, Case, Series

GIB = 1 << 30
_OTHER = {**CONTAINER, "namespace": "vision", "pod": "serve-0", "container": "serve"}
_MPS = {"pipe_directory": "/run/nvidia/mps/pipe", **TARGET}
_POD = {"namespace": "research", "pod": "train-0", "container": "trainer", **TARGET}
_JOB = {"namespace": "research", "workload_kind": "Job", "workload": "nightly", "job": "podgpu"}


def _of(severity, labels):
    return {"severity": severity, **labels}


def _free(labels, well, wrong):
    return Series("podgpu_device_memory_bytes", {**labels, "class": "free"}, well, wrong)


_LIMIT = Series("podgpu_container_memory_limit_bytes", CONTAINER, 8 * GIB, 8 * GIB)
_OVER = (
    Series("podgpu_container_memory_used_bytes", CONTAINER, 7 * GIB, 10 * GIB),
    Series("podgpu_container_memory_overrun_bytes", CONTAINER, 0, 2 * GIB),
    _LIMIT,
)
_CAPACITY = Series("podgpu_device_memory_capacity_bytes", DEVICE, 80 * GIB, 80 * GIB)

CASES = (
    Case("PodgpuExporterDown", (Series("up", TARGET, 1, 0),), _of("warning", TARGET)),
    Case("PodgpuExporterAbsent", (Series("up", TARGET, 1, 0),), _of("critical", {})),
    Case(
        "PodgpuSourceFailing",
        (Series("podgpu_source_up", {"source": "kubelet", **TARGET}, 1, 0),),
        _of("warning", {"source": "kubelet", **TARGET}),
    ),
    Case(
        "PodgpuSnapshotStale",
        (Series("podgpu_snapshot_timestamp_seconds", TARGET, kind="clock"),),
        _of("warning", TARGET),
        lag=1,
    ),
    Case("PodgpuDeviceDown", (Series("podgpu_device_up", DEVICE, 1, 0),), _of("warning", DEVICE)),
    Case(
        "PodgpuAttributionGap",
        (
            Series("podgpu_device_memory_bytes", {**DEVICE, "class": "containers"}, 20 * GIB, 20 * GIB),
            Series("podgpu_device_memory_bytes", {**DEVICE, "class": "unresolved"}, 0, 6 * GIB),
            Series("podgpu_device_memory_bytes", {**DEVICE, "class": "remainder"}, GIB, GIB),
            Series("podgpu_device_memory_bytes", {**DEVICE, "class": "reserved"}, GIB, GIB),
            _free(DEVICE, 58 * GIB, 52 * GIB),
        ),
        _of("warning", DEVICE),
    ),
    Case("PodgpuPodMemoryOverLimit", _OVER, _of("critical", CONTAINER)),
    Case(
        "PodgpuPodMemoryOverrunSpikes",
        (
            Series("podgpu_container_memory_overrun_seconds_total", CONTAINER, 0, 4, "counter"),
            Series("podgpu_container_memory_overrun_bytes", CONTAINER, 0, 0),
            _LIMIT,
        ),
        _of("warning", CONTAINER),
        tail=14,
    ),
    Case(
        "PodgpuPodMemoryNearLimit",
        (
            Series("podgpu_container_memory_used_bytes", CONTAINER, 7 * GIB, 7.5 * GIB),
            Series("podgpu_container_memory_overrun_bytes", CONTAINER, 0, 0),
            _LIMIT,
        ),
        _of("warning", CONTAINER),
    ),
    Case(
        "PodgpuJobMemoryOverLimit",
        (
            *_OVER,
            Series("podgpu_container_memory_used_bytes", {**CONTAINER, "pod": "train-1"}, 7 * GIB, 7 * GIB),
            Series("podgpu_container_memory_limit_bytes", {**CONTAINER, "pod": "train-1"}, 8 * GIB, 8 * GIB),
            *(
                Series(
                    "podgpu_pod_info",
                    {"namespace": "research", "pod": pod, "uid": pod, "qos": "Burstable", "priority_class": ""}
                    | {"workload_kind": "Job", "workload": "nightly", **TARGET},
                    1,
                    1,
                )
                for pod in ("train-0", "train-1")
            ),
        ),
        _of("critical", _JOB),
    ),
    Case(
        "PodgpuCapNotEnforced",
        (
            Series("podgpu_container_memory_limit_enforced", CONTAINER, 1, 0),
            Series("podgpu_container_memory_limit_enforced", _OTHER, 1, 1),
            Series("podgpu_container_memory_limit_applied_bytes", {**_OTHER, "mechanism": "cgroup"}, GIB, GIB),
        ),
        _of("warning", CONTAINER),
    ),
    Case(
        "PodgpuAnnotationErrors",
        (
            Series("podgpu_annotation_errors", {**_POD, "reason": "unknown_suffix"}, 0, 1),
            Series("podgpu_annotation_errors", {**_POD, "reason": "unit_missing"}, 0, 1),
        ),
        _of("info", _POD),
    ),
    Case(
        "PodgpuDeviceMemoryPressure",
        (
            _free(DEVICE, 20 * GIB, 2 * GIB),
            _CAPACITY,
            Series("podgpu_container_memory_used_bytes", CONTAINER, 30 * GIB, 48 * GIB),
            Series("podgpu_container_memory_used_bytes", _OTHER, 30 * GIB, 30 * GIB),
        ),
        _of("warning", DEVICE),
    ),
    Case(
        "PodgpuDeviceOvercommitted",
        (
            Series("podgpu_device_memory_bytes", {**DEVICE, "class": "reserved"}, GIB, GIB),
            _CAPACITY,
            Series("podgpu_container_memory_requested_bytes", CONTAINER, 30 * GIB, 50 * GIB),
            Series("podgpu_container_memory_requested_bytes", _OTHER, 40 * GIB, 40 * GIB),
        ),
        _of("warning", DEVICE),
    ),
    Case(
        "PodgpuUseWithoutAllocation",
        (Series("podgpu_container_allocated", CONTAINER, 1, 0),),
        _of("warning", CONTAINER),
    ),
    Case(
        "PodgpuGpuSharedWithoutIsolation",
        (Series("podgpu_device_tenants", {**DEVICE, "isolation": "none"}, 1, 2),),
        _of("info", {**DEVICE, "isolation": "none"}),
    ),
    Case(
        "PodgpuWholeGpuIsShared",
        (
            Series("podgpu_container_slots", CONTAINER, 1, 1),
            Series("podgpu_device_slots", {**DEVICE, "resource": "nvidia.com/gpu"}, 1, 4),
        ),
        _of("info", CONTAINER),
    ),
    Case(
        "PodgpuIdleReservation",
        (
            Series("podgpu_container_memory_used_bytes", CONTAINER, 7 * GIB, GIB // 2),
            Series("podgpu_container_memory_requested_bytes", CONTAINER, 8 * GIB, 8 * GIB),
        ),
        _of("info", CONTAINER),
    ),
    Case("PodgpuMpsDaemonDown", (Series("podgpu_mps_daemon_up", _MPS, 1, 0),), _of("critical", _MPS)),
    Case(
        "PodgpuMpsServerFault",
        (
            Series("podgpu_mps_server_state", {**_MPS, "server": "4711", "state": "active"}, 1, 0),
            Series("podgpu_mps_server_state", {**_MPS, "server": "4711", "state": "fault"}, 0, 1),
        ),
        _of("critical", {**_MPS, "server": "4711", "state": "fault"}),
    ),
    Case(
        "PodgpuMpsServerRestarting",
        (Series("podgpu_mps_server_starts_total", _MPS, 0, 1, "counter"),),
        _of("warning", _MPS),
        lag=2,
        tail=27,
    ),
)
