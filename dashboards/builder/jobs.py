"""The dashboard *GPU jobs*: who holds what, against which cap."""

from dashboards.builder.layout import Row
from dashboards.builder.layout import dashboard as whole
from dashboards.builder.panels import (
    BYTES,
    COUNT,
    FULL_IS_BAD,
    NOTHING_IS_GOOD,
    RATIO,
    Json,
    Query,
    bars,
    stat,
    table,
    timeseries,
)
from dashboards.builder.selectors import CONTAINERS, of_containers, of_workload

_LABELS = ["namespace", "pod", "container", "workload", "node", "gpu"]
_BY = f"sum by ({', '.join(_LABELS)})"
_POD = "{{namespace}}/{{pod}}"
_CONTAINER = "{{namespace}}/{{pod}}/{{container}} GPU {{gpu}}"


def _column(metric: str) -> str:
    return f"{_BY} {of_containers(metric)}"


def _by_pod(metric: str) -> str:
    return f"sum by (namespace, pod) {of_containers(metric)}"


def dashboard() -> Json:
    """The dashboard as Grafana reads it."""
    used = of_containers("podgpu_container_memory_used_bytes")
    of_cap = of_workload(
        f"podgpu_container_memory_used_bytes{CONTAINERS} / podgpu_container_memory_limit_bytes{CONTAINERS}"
    )
    now = Row(
        "Now",
        4,
        [
            stat("Pods", "Pods that hold memory or slots of a GPU.", f"count(count by (namespace, pod) {used})"),
            stat("Memory used", "Memory that containers hold on the chosen GPUs.", f"sum{used}", unit=BYTES),
            stat(
                "Memory promised",
                "The sum of the caps.",
                f"sum{of_containers('podgpu_container_memory_limit_bytes')}",
                unit=BYTES,
            ),
            stat(
                "Over their cap",
                "Containers that use more than their cap now.",
                f"count({of_containers('podgpu_container_memory_overrun_bytes')} > 0) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
            stat(
                "Caps not in force",
                "Containers whose cap was asked for but is not enforced, as read back from the driver or MPS.",
                f"count({of_containers('podgpu_container_memory_limit_enforced')} == 0) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
            stat(
                "Use without allocation",
                "Containers on a GPU that the kubelet did not give them.",
                f"count({of_containers('podgpu_container_allocated')} == 0) or vector(0)",
                steps=NOTHING_IS_GOOD,
            ),
        ],
    )
    holders = Row(
        "Who holds what",
        10,
        [
            table(
                "Containers",
                "Memory of each container on each GPU: what it uses, what is kept for it, the cap it is to stay "
                "under, and how much of the cap is used. An empty cell is not known or was not asked for; it is not "
                "zero.",
                Query(_column("podgpu_container_memory_used_bytes"), "Used"),
                Query(_column("podgpu_container_memory_peak_bytes"), "Peak"),
                Query(_column("podgpu_container_memory_requested_bytes"), "Requested"),
                Query(_column("podgpu_container_memory_limit_bytes"), "Cap"),
                Query(f"{_BY} {of_cap}", "Of cap"),
                labels=_LABELS,
                units={"Used": BYTES, "Peak": BYTES, "Requested": BYTES, "Cap": BYTES, "Of cap": RATIO},
                sort="Used",
                thresholds_of={"Of cap": FULL_IS_BAD},
            )
        ],
    )
    time = Row(
        "Over time",
        9,
        [
            timeseries(
                "Memory used by pod",
                "Memory that each pod's processes hold, on all chosen GPUs together.",
                Query(_by_pod("podgpu_container_memory_used_bytes"), _POD),
                unit=BYTES,
                stacked=True,
            ),
            timeseries(
                "Use of the cap",
                "Used memory as a part of the cap. Above the red line the container takes from others.",
                Query(of_cap, _CONTAINER),
                unit=RATIO,
                line_at=1.0,
            ),
        ],
    )
    over = Row(
        "Overruns",
        8,
        [
            timeseries(
                "Memory above the cap",
                "By how much containers exceed their cap.",
                Query(of_containers("podgpu_container_memory_overrun_bytes"), _CONTAINER),
                unit=BYTES,
            ),
            timeseries(
                "Time above the cap",
                "Part of the time in which a container was above its cap, also between two scrapes.",
                Query(
                    of_workload(f"rate(podgpu_container_memory_overrun_seconds_total{CONTAINERS}[$__rate_interval])"),
                    _CONTAINER,
                ),
                unit=RATIO,
                most=1,
            ),
        ],
    )
    compute = Row(
        "Compute",
        8,
        [
            bars(
                "MPS share in force",
                "The part of the GPU's threads that MPS lets a container use: the smallest of the limits on it.",
                Query(
                    "min by (namespace, pod, container, gpu) "
                    + of_containers("podgpu_container_mps_active_thread_ratio"),
                    _CONTAINER,
                ),
                unit=RATIO,
                most=1,
                steps={"mode": "absolute", "steps": [{"value": None, "color": "blue"}]},
            ),
            timeseries(
                "MPS clients",
                "Processes of the pod that are clients of an MPS server.",
                Query(_by_pod("podgpu_container_mps_clients"), _POD),
                unit=COUNT,
            ),
            timeseries(
                "SM utilization (estimate)",
                "The part of the SMs' time in which a pod's processes were seen active. Where several share a GPU it "
                "says who is busy, not how the GPU was divided.",
                Query(_by_pod("podgpu_container_sm_utilization_ratio"), _POD),
                unit=RATIO,
            ),
        ],
    )
    return whole(
        "podgpu-jobs",
        "GPU jobs",
        "Who holds which GPU memory, against which cap, with which share of the compute. From podgpu's exporter.",
        [now, holders, time, over, compute],
        since="now-1h",
    )
