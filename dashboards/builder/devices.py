"""The dashboard *GPU devices*: what each GPU's memory is used for, who shares it, and how well it is seen."""

from dashboards.builder.layout import Row
from dashboards.builder.layout import dashboard as whole
from dashboards.builder.panels import (
    BYTES,
    COUNT,
    FULL_IS_BAD,
    NOTHING_IS_GOOD,
    RATIO,
    SECONDS,
    Json,
    Query,
    bars,
    stat,
    table,
    timeseries,
)
from dashboards.builder.selectors import CLUSTER, DEVICES, TO_DEVICE, of_containers

_GPU = "{{node}} GPU {{gpu}}"
_INSTANCE = "{{node}} GPU {{gpu}} {{gpu_instance}}"
_DAEMON = "{{node}} {{pipe_directory}}"


def dashboard() -> Json:
    """The dashboard as Grafana reads it."""
    capacity = f"podgpu_device_memory_capacity_bytes{DEVICES}"
    free = 'podgpu_device_memory_bytes{cluster=~"$cluster",gpu_uuid=~"$gpu",class="free"}'
    unisolated = 'podgpu_device_tenants{cluster=~"$cluster",gpu_uuid=~"$gpu",isolation="none"}'
    now = Row(
        "Now",
        4,
        [
            stat("GPUs", "GPUs that the driver shows.", f"count(podgpu_device_info{DEVICES})"),
            stat("Capacity", "Memory of the chosen GPUs.", f"sum({capacity})", unit=BYTES),
            stat(
                "In use",
                "The part of all memory that is not free.",
                f"1 - sum({free}) / sum({capacity})",
                unit=RATIO,
                steps=FULL_IS_BAD,
            ),
            stat(
                "Shared without isolation",
                "GPUs that several namespaces share with nothing between them.",
                f"count({unisolated} > 1) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
            stat(
                "GPUs not read",
                "GPUs or MIG instances whose readings failed in the last cycle.",
                f"count(podgpu_device_up{DEVICES} == 0) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
            stat(
                "Sources failing",
                "Sources, on all nodes, that gave nothing in the last cycle.",
                f"count(podgpu_source_up{CLUSTER} == 0) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
        ],
    )
    memory = Row(
        "Memory",
        10,
        [
            timeseries(
                "Every byte once",
                "Memory of the chosen GPUs by who has it. The classes add up to the capacity: containers, processes "
                "of the host, MPS servers, what could not be placed (unresolved) or explained (remainder) or read "
                "(unread), what the driver keeps (reserved), and what is free.",
                Query(f"sum by (class) (podgpu_device_memory_bytes{DEVICES})", "{{class}}"),
                Query(f"sum({capacity})", "capacity"),
                unit=BYTES,
                stacked=True,
                lines=["capacity"],
            ),
            timeseries(
                "In use by GPU",
                "The part of each GPU's (or MIG instance's) memory that is not free.",
                Query(f"1 - sum without (class) ({free}) / {capacity}", _INSTANCE),
                unit=RATIO,
                most=1,
            ),
            timeseries(
                "Used by pods",
                "What the pods of the chosen namespaces and workloads hold of the chosen GPUs.",
                Query(
                    f"sum by (namespace, pod) {of_containers('podgpu_container_memory_used_bytes')}",
                    "{{namespace}}/{{pod}}",
                ),
                unit=BYTES,
                stacked=True,
            ),
        ],
        widths=[10, 6, 8],
    )
    sharing = Row(
        "Sharing",
        9,
        [
            table(
                "Each GPU",
                "Each GPU (or MIG instance): its size, how many replicas of it are given out, how many are held, and "
                "how many namespaces are on it.",
                Query(f"sum by (node, gpu, gpu_instance, gpu_uuid) ({capacity})", "Capacity"),
                Query(f"max by (node, gpu, gpu_instance, gpu_uuid) (podgpu_device_slots{DEVICES})", "Slots"),
                Query(f"sum by (node, gpu, gpu_instance, gpu_uuid) (podgpu_container_slots{DEVICES})", "Held"),
                Query(f"max by (node, gpu, gpu_instance, gpu_uuid) (podgpu_device_tenants{DEVICES})", "Tenants"),
                labels=["node", "gpu", "gpu_instance", "gpu_uuid"],
                units={"Capacity": BYTES, "Slots": COUNT, "Held": COUNT, "Tenants": COUNT},
                sort="Capacity",
            ),
            bars(
                "Slots held",
                "The part of the replicas of each GPU that containers hold.",
                Query(
                    f"sum without (namespace, pod, container) (podgpu_container_slots{DEVICES})\n"
                    f"/ {TO_DEVICE}\nmax without (resource) (podgpu_device_slots{DEVICES})",
                    _INSTANCE,
                ),
                unit=RATIO,
                most=1,
                steps=FULL_IS_BAD,
            ),
            timeseries(
                "SM utilization",
                "The part of the time in which at least one kernel ran on the GPU. Not told under MIG.",
                Query(f"podgpu_device_sm_utilization_ratio{DEVICES}", _GPU),
                unit=RATIO,
                most=1,
            ),
        ],
        widths=[10, 6, 8],
    )
    mps = Row(
        "MPS",
        8,
        [
            stat(
                "Daemons that don't answer",
                "MPS control daemons that did not answer in the last cycle.",
                f"count(podgpu_mps_daemon_up{CLUSTER} == 0) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
            table(
                "Servers",
                "The state that each MPS server is in, and its clients.",
                Query(
                    "sum by (node, pipe_directory, server, state) (\n"
                    f"podgpu_mps_server_clients{CLUSTER}\n"
                    "* on (cluster, job, instance, pipe_directory, server) group_left (state)\n"
                    f"(podgpu_mps_server_state{CLUSTER} == 1)\n)",
                    "Clients now",
                ),
                labels=["node", "pipe_directory", "server", "state"],
                units={"Clients now": COUNT},
                sort="Clients now",
            ),
            timeseries(
                "Clients",
                "Clients of the servers of each MPS daemon.",
                Query(f"sum by (node, pipe_directory) (podgpu_mps_server_clients{CLUSTER})", _DAEMON),
                unit=COUNT,
            ),
            timeseries(
                "Active thread limits",
                "The part of the threads that each scope lets its clients use.",
                Query(f"podgpu_mps_active_thread_ratio{CLUSTER}", "{{node}} {{server}} {{mps_namespace}} {{scope}}"),
                unit=RATIO,
                most=1,
            ),
            timeseries(
                "Memory limits",
                "What each scope lets its clients allocate.",
                Query(
                    f"podgpu_mps_pinned_memory_limit_bytes{CLUSTER}",
                    "{{node}} {{server}} {{mps_namespace}} {{scope}} {{device}}",
                ),
                unit=BYTES,
            ),
        ],
        widths=[3, 6, 5, 5, 5],
    )
    health = Row(
        "Health of the measurement",
        8,
        [
            timeseries(
                "Age of the numbers",
                "Seconds since each node's last complete reading; beyond a bound values are withheld.",
                Query(f"time() - podgpu_snapshot_timestamp_seconds{CLUSTER}", "{{node}} {{instance}}"),
                unit=SECONDS,
            ),
            timeseries(
                "Duration of readings",
                "How long each source took, the slowest node's.",
                Query(f"max by (source) (podgpu_source_duration_seconds{CLUSTER})", "{{source}}"),
                unit=SECONDS,
            ),
            timeseries(
                "Cycles",
                "Cycles of reading a second, by result. Partial: something was missing.",
                Query(f"sum by (result) (rate(podgpu_sampler_cycles_total{CLUSTER}[$__rate_interval]))", "{{result}}"),
                unit="ops",
            ),
            timeseries(
                "Not integrated",
                "Part of the time in which nothing could be added to the byte-second counters.",
                Query(f"rate(podgpu_sampling_gap_seconds_total{CLUSTER}[$__rate_interval])", "{{node}} {{instance}}"),
                unit=RATIO,
            ),
        ],
    )
    return whole(
        "podgpu-devices",
        "GPU devices",
        "What the memory of each GPU is used for, who shares it, the MPS servers, and how well all this is measured.",
        [now, memory, sharing, mps, health],
        since="now-1h",
    )
