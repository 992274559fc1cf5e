"""The demo's table: what it shows of a page."""

from simulator.table import table

GPU = 'gpu="0",gpu_uuid="GPU-a",gpu_instance=""'
PAGE = f"""\
# TYPE podgpu_device_memory_capacity_bytes gauge
podgpu_device_memory_capacity_bytes{{{GPU}}} 8589934592
# TYPE podgpu_container_memory_used_bytes gauge
podgpu_container_memory_used_bytes{{namespace="n",pod="busy",container="c",{GPU}}} 4294967296
podgpu_container_memory_used_bytes{{namespace="n",pod="idle",container="c",{GPU}}} 2147483648
podgpu_container_memory_used_bytes{{namespace="n",pod="unknown",container="c",{GPU}}} 1073741824
podgpu_container_memory_used_bytes{{namespace="n",pod="member",container="c",{GPU}}} 1048576
# TYPE podgpu_container_share_ratio gauge
podgpu_container_share_ratio{{namespace="n",pod="busy",container="c",{GPU}}} 0.5
# TYPE podgpu_container_allocated gauge
podgpu_container_allocated{{namespace="n",pod="busy",container="c",{GPU}}} 1
podgpu_container_allocated{{namespace="n",pod="idle",container="c",{GPU}}} 0
podgpu_container_allocated{{namespace="n",pod="member",container="c",{GPU}}} 1
# TYPE podgpu_container_sm_utilization_ratio gauge
podgpu_container_sm_utilization_ratio{{namespace="n",pod="busy",container="c",{GPU}}} 1
podgpu_container_sm_utilization_ratio{{namespace="n",pod="idle",container="c",{GPU}}} 0
"""


def test_a_container_is_shown_with_its_memory_its_utilization_and_its_slots():
    _, busy, idle, unknown, member = table(PAGE).splitlines()
    assert busy.split() == ["n/busy/c", "4.00", "█" * 12 + "·" * 12, "SM", "100%", "50%", "of", "the", "slots"]
    assert idle.split()[3:] == ["SM", "0%", "not", "allocated"]
    assert unknown.split()[3:] == []
    assert member.split()[3:] == ["a", "part", "of", "it"]
    assert busy.index("50%") == idle.index("not") == member.index("a part")
