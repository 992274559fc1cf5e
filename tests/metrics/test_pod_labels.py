"""Pod labels as metric labels: an allow-list, deterministic and without collisions."""

import re

from hypothesis import given
from hypothesis import strategies as st

from exporter.metrics.podlabels import PodLabels, label_names


def test_names_are_made_fit_and_stay_readable():
    assert label_names(["app.kubernetes.io/name", "team"]) == {
        "app.kubernetes.io/name": "label_app_kubernetes_io_name",
        "team": "label_team",
    }


def test_keys_that_come_to_one_name_all_get_a_hash_of_their_own():
    names = label_names(["a.b", "a-b", "c"])
    assert names["c"] == "label_c"
    assert names["a.b"] != names["a-b"]
    assert all(re.fullmatch(r"label_a_b_[0-9a-f]{8}", names[key]) for key in ("a.b", "a-b"))


def test_a_pod_without_a_label_has_an_empty_value():
    shown = PodLabels(["team", "app"])
    assert shown.family.labels == ("namespace", "pod", "label_app", "label_team")
    assert shown.values("ns", "p", {"team": "x", "secret": "y"}) == ("ns", "p", "", "x")


@given(st.lists(st.text(alphabet="ab./-_0", min_size=1, max_size=4), unique=True))
def test_every_key_has_one_valid_name_of_its_own_in_any_order(keys):
    names = label_names(keys)
    assert len(set(names.values())) == len(keys)
    assert all(re.fullmatch(r"label_[a-zA-Z0-9_]+", name) for name in names.values())
    assert names == label_names(sorted(keys, reverse=True))
