"""The enforcer's page: its families, what is there before anything happened, and what is not."""

from prometheus_client.parser import text_string_to_metric_families

from enforcer.metrics import EVENT_RESULTS, GROUP, Figures, samples
from enforcer.model import CapState
from exporter.caps.requests import Reaction
from exporter.metrics.process import self_metrics
from exporter.metrics.render import Renderer, joined

NEW = Figures("enforce", "managed", "1.2.3")
FULL = Figures(
    "audit",
    "found",
    "1.2.3",
    {CapState.APPLIED: 3, CapState.LATE: 1},
    {("cgroup", "limit", "done"): 7, ("cgroup", "limit", "failed"): 2, ("eviction", "evict", "planned"): 1},
    {Reaction.EVICT: 4},
    {"sent": 9, "held_back": 2},
    1_790_000_000.5,
    0.25,
)


def page(figures):
    text = Renderer().render(samples(figures)).text.decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_new_enforcer_shows_what_it_knows_and_nothing_else():
    found = page(NEW)
    names = {name for name, *_ in found}
    assert names == {"podgpu_enforcer_info", "podgpu_enforcer_overruns_total", "podgpu_enforcer_events_total"}
    assert found["podgpu_enforcer_info", ("mode", "enforce"), ("mps", "managed"), ("version", "1.2.3")] == 1
    for reaction in Reaction:
        assert found["podgpu_enforcer_overruns_total", ("reaction", reaction)] == 0
    for result in EVENT_RESULTS:
        assert found["podgpu_enforcer_events_total", ("result", result)] == 0


def test_every_family_has_its_samples():
    found = page(FULL)
    assert {name for name, *_ in found} == {family.name for family in GROUP.families}
    assert found["podgpu_enforcer_caps", ("state", "applied")] == 3
    assert found["podgpu_enforcer_caps", ("state", "failed")] == 0
    assert sum(value for (name, *_), value in found.items() if name == "podgpu_enforcer_caps") == 4
    labels = ("action", "limit"), ("mechanism", "cgroup"), ("result", "failed")
    assert found["podgpu_enforcer_actions_total", *labels] == 2
    assert found["podgpu_enforcer_last_reconcile_timestamp_seconds",] == 1_790_000_000.5
    assert found["podgpu_enforcer_reconcile_duration_seconds",] == 0.25


def test_rows_are_sorted_whatever_the_order_of_what_was_counted():
    turned = Figures("audit", "found", "1.2.3", actions=dict(reversed(FULL.actions.items())))
    assert samples(turned) == samples(Figures("audit", "found", "1.2.3", actions=FULL.actions))


def test_it_stands_beside_the_process_metrics_in_both_formats():
    whole = joined(Renderer().render(samples(FULL)), self_metrics())
    assert b"process_resident_memory_bytes" in whole.text
    assert whole.openmetrics.endswith(b"# EOF\n")
    assert b"# UNIT podgpu_enforcer_reconcile_duration_seconds seconds\n" in whole.openmetrics
