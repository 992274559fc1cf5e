"""The dashboard *Chargeback*: GiB-hours and share-hours by namespace, workload and team, and what was idle."""

from dashboards.builder.layout import Row, choice
from dashboards.builder.layout import dashboard as whole
from dashboards.builder.panels import (
    BYTES,
    GIB_HOURS,
    HOURS,
    NEUTRAL,
    RATIO,
    Json,
    Query,
    bars,
    stat,
    table,
    timeseries,
)
from dashboards.builder.selectors import CONTAINERS, DEVICES, NAMESPACES

METHODS = ("idle-separate", "idle-proportional", "idle-even")
_GIB_HOURS = "/ 3600 / 2^30"
_COMMITTED = f"podgpu_container_memory_committed_byte_seconds_total{CONTAINERS}"
_CHARGED = 'namespace_gpu:podgpu_charged_byte_seconds:increase1h{cluster=~"$cluster",gpu_uuid=~"$gpu",method="$method"}'
_CHARGED_HOURS = 'namespace:podgpu_charged_gpu_hours:increase1h{cluster=~"$cluster",method="$method"}'
# A charge of the last hour is known each minute, so each minute is in 60 of them.
_OVER_THE_RANGE = "[$__range:1m]"


def _committed(by: str) -> str:
    return f"sum by ({by}) (increase({_COMMITTED}[$__range]))"


def dashboard() -> Json:
    """The dashboard as Grafana reads it."""
    classes = "podgpu_device_memory_byte_seconds_total"
    capacity = f"sum(increase({classes}{DEVICES}[$__range]))"
    overhead = f'{classes}{{cluster=~"$cluster",gpu_uuid=~"$gpu",class!~"containers|free"}}'
    now = Row(
        "The whole period",
        4,
        [
            stat(
                "Committed",
                "Byte-seconds that tenants kept from others: the larger of used and requested, at each instant.",
                f"sum(increase({_COMMITTED}[$__range])) {_GIB_HOURS}",
                unit=GIB_HOURS,
            ),
            stat(
                "Capacity",
                "What the chosen GPUs had to give in this period, as far as it was measured.",
                f"{capacity} {_GIB_HOURS}",
                unit=GIB_HOURS,
            ),
            stat(
                "Idle",
                "The part of the capacity that nobody committed, and that was no overhead.",
                f"sum(sum_over_time(gpu:podgpu_idle_byte_seconds:increase1h{DEVICES}{_OVER_THE_RANGE}))\n"
                f"/ sum(sum_over_time(gpu:podgpu_device_memory_byte_seconds:increase1h{DEVICES}{_OVER_THE_RANGE}))",
                unit=RATIO,
            ),
            stat(
                "Overhead",
                "The part of the capacity that was the driver's, the host's, the MPS servers' or nobody's.",
                f"sum(increase({overhead}[$__range])) / {capacity}",
                unit=RATIO,
            ),
            stat(
                "Above the caps",
                "Byte-seconds that containers held above their caps.",
                f"sum(increase(podgpu_container_memory_overrun_byte_seconds_total{CONTAINERS}[$__range])) {_GIB_HOURS}",
                unit=GIB_HOURS,
            ),
        ],
        widths=[5, 5, 5, 5, 4],
    )
    charges = Row(
        "Charges by the chosen method",
        10,
        [
            table(
                "By namespace",
                "What each namespace is charged by the chosen method (docs/chargeback.md): GiB-hours, and the same as "
                "a part of each GPU. The lines __idle__ and __overhead__ are no namespaces; with them the sum is the "
                "capacity. Each value is made of charges of whole hours, so the ends of the period are blurred by up "
                "to one.",
                Query(f"sum by (namespace) (sum_over_time({_CHARGED}{_OVER_THE_RANGE})) / 60 {_GIB_HOURS}", "Memory"),
                Query(f"sum by (namespace) (sum_over_time({_CHARGED_HOURS}{_OVER_THE_RANGE})) / 60", "GPU-hours"),
                labels=["namespace"],
                units={"Memory": GIB_HOURS, "GPU-hours": HOURS},
                sort="Memory",
            ),
            timeseries(
                "Committed memory by namespace",
                "What each namespace keeps from others, up to the capacity of the chosen GPUs.",
                Query(
                    f"sum by (namespace) (rate({_COMMITTED}[$__rate_interval]))",
                    "{{namespace}}",
                ),
                Query(f"sum(podgpu_device_memory_capacity_bytes{DEVICES})", "capacity"),
                unit=BYTES,
                stacked=True,
                lines=["capacity"],
            ),
        ],
        widths=[10, 14],
    )
    who = Row(
        "By workload and team",
        10,
        [
            table(
                "By workload",
                "Committed GiB-hours of each job or service, its ended pods included.",
                Query(
                    f"sum by (namespace, workload_kind, workload) (\n{_committed('cluster, namespace, pod')}\n"
                    "* on (cluster, namespace, pod) group_left (workload_kind, workload)\n"
                    "topk by (cluster, namespace, pod) (1, last_over_time("
                    'pod:podgpu_workload:info{cluster=~"$cluster",namespace=~"$namespace",workload=~"$workload"}[$__range]))\n'
                    f") {_GIB_HOURS}",
                    "Memory",
                ),
                labels=["namespace", "workload_kind", "workload"],
                units={"Memory": GIB_HOURS},
                sort="Memory",
            ),
            table(
                "By team",
                "Committed GiB-hours by the pods' label `team`, which the exporter shows when it is started with "
                "--pods.label=team.",
                Query(
                    f"sum by (label_team) (\n{_committed('cluster, namespace, pod')}\n"
                    "* on (cluster, namespace, pod) group_left (label_team)\n"
                    f"topk by (cluster, namespace, pod) (1, last_over_time(podgpu_pod_labels{NAMESPACES}[$__range]))\n"
                    f") {_GIB_HOURS}",
                    "Memory",
                ),
                labels=["label_team"],
                units={"Memory": GIB_HOURS},
                sort="Memory",
            ),
            bars(
                "Kept and not used",
                "Committed GiB-hours less those that were used: what reservations cost.",
                Query(
                    f"(\n{_committed('namespace')}\n- sum by (namespace) (increase("
                    f"podgpu_container_memory_used_byte_seconds_total{CONTAINERS}[$__range]))\n) {_GIB_HOURS}",
                    "{{namespace}}",
                ),
                unit=GIB_HOURS,
                steps=NEUTRAL,
            ),
        ],
    )
    shares = Row(
        "Shares",
        8,
        [
            bars(
                "Compute share-hours",
                "What MPS let each namespace use of a GPU's threads, in GPU-hours, whether or not it did.",
                Query(
                    "sum by (namespace) (increase("
                    f"podgpu_container_mps_thread_ratio_seconds_total{CONTAINERS}[$__range])) / 3600",
                    "{{namespace}}",
                ),
                unit=HOURS,
                steps=NEUTRAL,
            ),
            bars(
                "Slot-hours",
                "The part of each GPU's slots that each namespace held, in GPU-hours.",
                Query(
                    f"sum by (namespace) (sum_over_time(podgpu_container_share_ratio{CONTAINERS}{_OVER_THE_RANGE}))"
                    " / 60",
                    "{{namespace}}",
                ),
                unit=HOURS,
                steps=NEUTRAL,
            ),
        ],
    )
    return whole(
        "podgpu-chargeback",
        "GPU chargeback",
        "GPU memory and compute shares as bills see them: by namespace, workload and team; idle memory by three "
        "methods.",
        [now, charges, who, shares],
        since="now-24h",
        choices=[choice("method", "Idle memory", METHODS)],
    )
