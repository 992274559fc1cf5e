"""Pieces of queries that several panels share."""

CLUSTER = '{cluster=~"$cluster"}'
CONTAINERS = '{cluster=~"$cluster",namespace=~"$namespace",gpu_uuid=~"$gpu"}'
NAMESPACES = '{cluster=~"$cluster",namespace=~"$namespace"}'
DEVICES = '{cluster=~"$cluster",gpu_uuid=~"$gpu"}'
TO_DEVICE = "on (cluster, job, node, instance, gpu, gpu_uuid, gpu_instance)"
TO_POD = "on (cluster, job, instance, namespace, pod)"


def of_workload(expr: str) -> str:
    """The expression's series of the chosen workloads, with the workload as a label."""
    chosen = 'pod:podgpu_workload:info{cluster=~"$cluster",namespace=~"$namespace",workload=~"$workload"}'
    return f"({expr}\n* {TO_POD} group_left (workload) {chosen})"


def of_containers(metric: str) -> str:
    """A container metric's series of the chosen namespaces, workloads and GPUs."""
    return of_workload(metric + CONTAINERS)
