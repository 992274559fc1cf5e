"""What the recording rules compute, and the laws that they keep."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rules.timelines import CONTAINER, DEVICE, TARGET, Series

GIB = 1 << 30
METHODS = ("idle-separate", "idle-proportional", "idle-even")
# promtool is a process: few examples, each with several devices. It compares its answers exactly, so what it is to
# find equal is rounded.
few = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def node(series, *expected, at=61):
    """A promtool test: constant series, or counters with `counter`, for an hour; then expressions and their values."""
    return {
        "interval": "1m",
        "input_series": [{"series": one.text, "values": one.values([("well", at + 1)])} for one in series],
        "promql_expr_test": [
            {
                "expr": expr,
                "eval_time": f"{at}m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
            }
            for expr, samples in expected
        ],
    }


def level(name, value, labels=CONTAINER, **changed):
    return Series(name, {**labels, **changed}, value)


def growing(name, per_second, labels=CONTAINER, **changed):
    return Series(name, {**labels, **changed}, 60 * per_second, kind="counter")


def none(expr):
    """That an expression, which selects what breaks a law, selects nothing."""
    return f"count({expr}) or vector(0)", {"{}": 0}


def pod_info(pod, **changed):
    labels = {
        "namespace": "research",
        "pod": pod,
        "uid": f"uid-of-{pod}",
        "workload_kind": "Job",
        "workload": "nightly",
    }
    return Series("podgpu_pod_info", {**labels, "priority_class": "", "qos": "Burstable", **TARGET, **changed}, 1)


def test_levels_add_up_with_and_without_pod_info(promtool):
    series = [
        level("podgpu_container_memory_used_bytes", 3, pod="train-0"),
        level("podgpu_container_memory_used_bytes", 4, pod="train-0", gpu="1", gpu_uuid="GPU-2"),
        level("podgpu_container_memory_used_bytes", 5, pod="train-1", container="side"),
        level("podgpu_container_memory_used_bytes", 7, pod="unknown-0"),
        pod_info("train-0"),
        pod_info("train-1"),
        pod_info("train-1", uid="uid-of-its-predecessor"),
    ]
    assert (
        promtool(
            node(
                series,
                (
                    "sum by (namespace, workload_kind, workload) (workload:podgpu_container_memory_used_bytes:sum)",
                    {
                        '{namespace="research",workload_kind="Job",workload="nightly"}': 12,
                        '{namespace="research",workload_kind="Pod",workload="unknown-0"}': 7,
                    },
                ),
                ("sum(namespace:podgpu_container_memory_used_bytes:sum)", {"{}": 19}),
                ("sum(pod:podgpu_container_memory_used_bytes:sum)", {"{}": 19}),
            )
        )
        == ""
    )


def test_a_pod_with_a_process_of_unknown_memory_has_no_sum(promtool):
    series = [
        level("podgpu_container_memory_used_bytes", 3),
        level("podgpu_container_processes_memory_unknown", 0),
        level("podgpu_container_processes_memory_unknown", 1, container="other"),
    ]
    assert promtool(node(series, none("pod:podgpu_container_memory_used_bytes:sum"))) == ""


def test_nodes_add_up_their_devices_and_promises(promtool):
    second = {**DEVICE, "gpu": "1", "gpu_uuid": "GPU-2"}
    series = [
        *(level("podgpu_device_memory_capacity_bytes", 80, device) for device in (DEVICE, second)),
        *(level("podgpu_device_memory_bytes", 30, {**device, "class": "free"}) for device in (DEVICE, second)),
        level("podgpu_container_memory_requested_bytes", 20),
        level("podgpu_container_memory_requested_bytes", 5, pod="other", gpu="1", gpu_uuid="GPU-2"),
        level("podgpu_container_memory_limit_bytes", 25),
    ]
    on_node = '{node="node-a"}'
    assert (
        promtool(
            node(
                series,
                ("sum by (node) (node:podgpu_device_memory_capacity_bytes:sum)", {on_node: 160}),
                ('sum by (node) (node:podgpu_device_memory_bytes:sum{class="free"})', {on_node: 60}),
                ("sum by (node) (node:podgpu_container_memory_requested_bytes:sum)", {on_node: 25}),
                ("sum by (node) (node:podgpu_container_memory_limit_bytes:sum)", {on_node: 25}),
            )
        )
        == ""
    )


# --- what DCGM knows ------------------------------------------------------------------------------------------------

_use = st.tuples(st.integers(0, 80), st.integers(0, 100), st.booleans())  # GiB, percent of the SMs' time, is it told


@few
@given(st.lists(st.lists(_use, min_size=1, max_size=4), min_size=1, max_size=4))
def test_the_pods_shares_of_a_device_add_up_to_it_however_often_dcgm_copies_it(promtool, gpus):
    series = []
    for gpu, pods in enumerate(gpus):
        device = {"gpu": str(gpu), "gpu_uuid": f"GPU-{gpu}"}
        told = pods[0][2]
        for number, (gibibytes, percent, _) in enumerate(pods):
            pod = {**device, "pod": f"pod-{number}"}
            series.append(level("podgpu_container_memory_used_bytes", gibibytes * GIB, **pod))
            if told:
                series.append(level("podgpu_container_sm_utilization_ratio", percent, **pod))
            dcgm = {"UUID": f"GPU-{gpu}", "gpu": str(gpu), "Hostname": "a", "pod": f"pod-{number}", "job": "dcgm"}
            series.append(Series("DCGM_FI_DEV_POWER_USAGE", dcgm, 300))
            series.append(Series("DCGM_FI_DEV_GPU_UTIL", dcgm, 80))
    in_use = [
        gpu
        for gpu, pods in enumerate(gpus)
        if any(use[0] for use in pods) or (pods[0][2] and any(use[1] for use in pods))
    ]
    watts = {f'{{gpu_uuid="GPU-{gpu}"}}': 300 for gpu in in_use}
    ratios = {f'{{gpu_uuid="GPU-{gpu}"}}': 0.8 for gpu in in_use}
    assert (
        promtool(
            node(
                series,
                ("round(sum by (gpu_uuid) (pod_gpu:dcgm_power_usage_watts:share), 0.001)", watts),
                ("round(sum by (gpu_uuid) (pod_gpu:dcgm_gpu_utilization_ratio:share), 0.001)", ratios),
                at=5,
            )
        )
        == ""
    )


def test_power_goes_by_the_sms_time_and_by_memory_where_that_is_not_told(promtool):
    busy = [("a", 30, 0.6), ("b", 10, 0.2)]
    series = [
        Series("DCGM_FI_DEV_POWER_USAGE", {"UUID": "GPU-1", "gpu": "0"}, 400),
        Series("DCGM_FI_DEV_POWER_USAGE", {"UUID": "GPU-2", "gpu": "1"}, 100),
    ]
    for pod, memory, sm in busy:
        series.append(level("podgpu_container_memory_used_bytes", memory, pod=pod))
        series.append(level("podgpu_container_sm_utilization_ratio", 100 * sm, pod=pod))
    series.append(level("podgpu_container_memory_used_bytes", 30, pod="a", gpu="1", gpu_uuid="GPU-2", gpu_instance="1"))
    series.append(level("podgpu_container_memory_used_bytes", 10, pod="b", gpu="1", gpu_uuid="GPU-2", gpu_instance="2"))
    expected = {
        '{gpu_uuid="GPU-1",pod="a"}': 300,
        '{gpu_uuid="GPU-1",pod="b"}': 100,
        '{gpu_uuid="GPU-2",pod="a"}': 75,
        '{gpu_uuid="GPU-2",pod="b"}': 25,
    }
    assert promtool(node(series, ("sum by (gpu_uuid, pod) (pod_gpu:dcgm_power_usage_watts:share)", expected))) == ""


def test_without_dcgm_nothing_is_said_of_power(promtool):
    series = [level("podgpu_container_memory_used_bytes", 3)]
    assert promtool(node(series, none("pod_gpu:dcgm_power_usage_watts:share"))) == ""


# --- charges --------------------------------------------------------------------------------------------------------

_device = st.tuples(
    st.integers(0, 80),  # GiB of overhead, of 80
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 60), max_size=4),  # GiB committed
)


def charged(device, overhead, committed, *, capacity=80, exporter=""):
    """The counters of one device on which so many GiB were held for an hour, seen by an exporter's pod."""
    seen = {**device, "namespace": "monitoring", "pod": exporter} if exporter else device
    classes = {"reserved": overhead, "containers": 0, "free": capacity - overhead}
    return [
        level("podgpu_device_memory_capacity_bytes", capacity * GIB, seen),
        *(
            growing("podgpu_device_memory_byte_seconds_total", size * GIB, {**seen, "class": name})
            for name, size in classes.items()
        ),
        *(
            growing(
                "podgpu_container_memory_committed_byte_seconds_total",
                size * GIB,
                {**CONTAINER, **device},
                namespace=name,
            )
            for name, size in committed.items()
        ),
    ]


@few
@given(st.lists(_device, min_size=1, max_size=5))
def test_the_charges_of_each_method_add_up_to_the_capacity(promtool, devices):
    series = [
        one
        for number, (overhead, committed) in enumerate(devices)
        for one in charged({**DEVICE, "gpu": str(number), "gpu_uuid": f"GPU-{number}"}, overhead, committed)
    ]
    total = "sum by (gpu_uuid, method) (namespace_gpu:podgpu_charged_byte_seconds:increase1h)"
    each = {
        f'{{gpu_uuid="GPU-{number}",method="{method}"}}': 80 for number in range(len(devices)) for method in METHODS
    }
    assert (
        promtool(
            node(
                series,
                (f"round({total} / 3600 / 2^30, 0.0001)", each),
                none("namespace_gpu:podgpu_charged_byte_seconds:increase1h < 0"),
                (
                    "round(sum by (method) (namespace:podgpu_charged_gpu_hours:increase1h), 0.0001)",
                    {f'{{method="{method}"}}': len(devices) for method in METHODS},
                ),
            )
        )
        == ""
    )


def test_an_exporter_with_a_new_address_goes_on_with_the_same_bill(promtool):
    """Its counters start at 0 again, in series with another instance; the first minute after the change is not seen.

    Where service discovery adds the exporter's own pod to what has no pod, that is another one as well.
    """
    before = charged(DEVICE, 2, {"a": 40}, exporter="podgpu-old")
    test = node(before, at=61)
    for entry in test["input_series"]:
        values = entry["values"].split()
        entry["values"] = " ".join([*values[:30], "stale"])
        if "capacity" in entry["series"]:
            entry["values"] = " ".join(values)
    for one in charged({**DEVICE, "instance": "10.0.0.9:9836"}, 2, {"a": 40}, exporter="podgpu-new"):
        if "capacity" not in one.text:
            later = one.values([("well", 31)]).split()
            test["input_series"].append({"series": one.text, "values": f"_x30 {' '.join(later)}"})
    shares = "sum by (namespace) (namespace_gpu:podgpu_charged_byte_seconds:increase1h{method='idle-separate'})"
    whole = "scalar(sum(gpu:podgpu_device_memory_byte_seconds:increase1h))"
    test["promql_expr_test"] = [
        {
            "expr": f"round({shares} / {whole}, 0.0001)",
            "eval_time": "61m",
            "exp_samples": [
                {"labels": '{namespace="a"}', "value": 0.5},
                {"labels": '{namespace="__idle__"}', "value": 0.475},
                {"labels": '{namespace="__overhead__"}', "value": 0.025},
            ],
        }
    ]
    assert promtool(test) == ""
