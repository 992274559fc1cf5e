"""Which containers are shown and in which order."""

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.top.choice import Choice, Sort, chosen
from exporter.top.view import Container, ContainerId, DomainId, Gpu, View

DOMAIN = DomainId("0", "GPU-a", "")


def shown(view, **choice):
    return [container.id.pod for container in chosen(view, Choice(**choice)).gpus[0].containers]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (Sort.MEMORY, ["over", "near", "stranger", "idle", "unknown"]),
        (Sort.CAP, ["over", "near", "idle", "stranger", "unknown"]),
        (Sort.OVERRUN, ["over", "near", "idle", "stranger", "unknown"]),
        (Sort.THREADS, ["near", "over", "idle", "stranger", "unknown"]),
        (Sort.SM, ["over", "near", "stranger", "idle", "unknown"]),
        (Sort.NAME, ["near", "over", "idle", "stranger", "unknown"]),
    ],
)
def test_the_largest_first_and_the_unknown_last_by_name(node, sort, order):
    assert shown(node, sort=sort) == order


def test_reversed_the_unknown_stay_last(node):
    assert shown(node, sort=Sort.MEMORY, reverse=True) == ["idle", "stranger", "near", "over", "unknown"]
    assert shown(node, sort=Sort.NAME, reverse=True) == ["unknown", "stranger", "idle", "over", "near"]


def test_filters_look_into_the_whole_name_whatever_the_case(node):
    assert shown(node, text="TEAM-B/") == ["stranger", "idle"]
    assert shown(node, text="nea") == ["near"]
    assert shown(node, namespace="team-a") == ["over", "near"]
    assert shown(node, namespace="team") == []
    assert len(chosen(node, Choice(text="nobody")).gpus) == 3


values = st.none() | st.integers(0, 4)
containers = st.builds(
    lambda pod, used, limit, threads: Container(
        ContainerId("n", pod, "c", DOMAIN), used=used, limit=limit, overrun=used, threads=threads, sm=threads
    ),
    st.text("ab", max_size=3),
    *(values, values, values),
)


@for_all(
    st.lists(containers, unique_by=lambda c: c.id),
    st.sampled_from(Sort),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_sorting_loses_nobody_and_does_not_depend_on_the_order_before(found, sort, reverse, random):
    mixed = list(found)
    random.shuffle(mixed)
    one, other = (
        chosen(View(0.0, (Gpu(DOMAIN, containers=tuple(given)),)), Choice(sort, reverse)).gpus[0].containers
        for given in (found, mixed)
    )
    assert one == other
    assert sorted(one, key=lambda c: c.id) == sorted(found, key=lambda c: c.id)
