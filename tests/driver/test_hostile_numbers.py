"""Whatever numbers the driver gives, what is printed is possible: B93 as a law, through the real library and source."""

import math

from hypothesis import HealthCheck, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.accounting import account, opened
from exporter.metrics.render import Renderer
from exporter.metrics.samples import BuildInfo, samples
from simulator.nvml.state import Memory, Row, RowKind
from tests.builders import in_pod, names_of, snapshot_of
from tests.driver.conftest import GIB, MIB, gpu, value

# Blanks of NVML, DCGM and nvidia-smi among plain sizes.
capacities = st.sampled_from([0, 1, MIB, GIB, 80 * GIB, 2**47, 2**63 - 14, 2**64 - 1])
numbers = capacities | st.sampled_from([79 * GIB, 81 * GIB, 2**47, 2**63 - 1, 2**63 - 14, 2**63, 2**64 - 2, 2**64 - 1])
pids = st.sampled_from([0, 1, 11, 12, 4194304, 2**31, 2**32 - 1])
rows = st.lists(
    st.builds(Row, pids, used=st.none() | numbers, kind=st.sampled_from(RowKind)),
    max_size=5,
).map(tuple)
gpus = st.builds(
    lambda memory, rows, utilization: gpu(0, memory=memory, rows=rows, utilization=(utilization, 0)),
    st.builds(Memory, capacities, used=numbers, reserved=numbers, free=st.none() | numbers),
    rows,
    st.sampled_from([0, 55, 100, 101, 2147483632, 808334905]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@for_all(state=gpus)
def test_b93_no_blank_reaches_the_page(driver, state):
    driver.write(state)
    source = driver.source()
    try:
        devices = value(source.read()).devices
    finally:
        driver.sources.remove(source)
        source.stop()
    snapshot = snapshot_of(*devices, places={11: in_pod("a"), 12: in_pod("b")}, names=names_of("a/main", "b/main"))
    page = Renderer().render(samples(snapshot, totals=account(opened(), snapshot), build=BuildInfo("0", "3")))
    for family in (*parse_text(page.text.decode()), *parse_openmetrics(page.openmetrics.decode())):
        for sample in family.samples:
            assert math.isfinite(sample.value), sample
            assert 0 <= sample.value < 2**46, sample
            assert not sample.name.endswith("_ratio") or sample.value <= 1, sample
