"""A metrics page as a table of who holds what, for the demo. Knows only the page, like any other reader of it."""

from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

_BAR = 24
_CLASSES = ("host", "mps_server", "unresolved", "remainder", "unread", "reserved", "free")


def table(page: str) -> str:
    """The page's containers and memory classes by GPU, in GiB, and how busy the SMs are, as lines of text."""
    samples: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples[sample.name].append((sample.labels, sample.value))
    used = samples["podgpu_container_memory_used_bytes"]
    busy = {_container(labels): value for labels, value in samples["podgpu_container_sm_utilization_ratio"]}
    shares = {_container(labels): value for labels, value in samples["podgpu_container_share_ratio"]}
    given = {_container(labels): value for labels, value in samples["podgpu_container_allocated"]}
    lines = []
    for labels, capacity in samples["podgpu_device_memory_capacity_bytes"]:
        device = _device(labels)
        instance = f" instance {labels['gpu_instance']}" if labels["gpu_instance"] else ""
        lines.append(f"GPU {labels['gpu']}{instance}  {labels['gpu_uuid']}  {_gib(capacity)} GiB")
        mine = [(found, value) for found, value in used if _device(found) == device]
        for found, value in sorted(mine, key=lambda entry: -entry[1]):
            name = f"{found['namespace']}/{found['pod']}/{found['container']}"
            slots = _slots(shares.get(_container(found)), given.get(_container(found)))
            lines.append(
                f"  {name:48} {_gib(value)} {_bar(value / capacity)}{_busy(busy.get(_container(found)))}{slots}"
            )
        classes = {found["class"]: v for found, v in samples["podgpu_device_memory_bytes"] if _device(found) == device}
        lines += [
            f"  {f'({name})':48} {_gib(classes[name])} {_bar(classes[name] / capacity)}"
            for name in _CLASSES
            if classes.get(name)
        ]
    down = [labels["source"] for labels, up in samples["podgpu_source_up"] if not up]
    if down:
        lines.append(f"sources that are down: {', '.join(down)}")
    return "\n".join(lines)


def _device(labels: dict[str, str]) -> tuple[str, str]:
    return labels["gpu_uuid"], labels["gpu_instance"]


def _container(labels: dict[str, str]) -> tuple[str, ...]:
    return (labels["namespace"], labels["pod"], labels["container"], *_device(labels))


def _busy(share: float | None) -> str:
    return f"  SM {share:4.0%}" if share is not None else " " * len("  SM 100%")


def _slots(share: float | None, allocated: float | None) -> str:
    """What the container was given; nothing where that is not known."""
    if share is not None:
        return f"  {share:.0%} of the slots"
    return "" if allocated is None else "  a part of it" if allocated else "  not allocated"


def _gib(value: float) -> str:
    return f"{value / (1 << 30):7.2f}"


def _bar(share: float) -> str:
    filled = min(_BAR, round(share * _BAR))
    return "█" * filled + "·" * (_BAR - filled)
