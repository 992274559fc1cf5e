"""From snapshot to bytes, and what is withheld when the snapshot grows old."""

import gzip

from exporter.accounting import account, opened
from exporter.publication import Publisher
from exporter.web.pages import PageStore
from tests.builders import GIB, gpu, in_pod, lists, names_of, rows, snapshot_of


class Time:
    now = 100.0

    def __call__(self):
        return self.now


def publish(store, *, own=False):
    snapshot = snapshot_of(gpu(lists(rows((11, GIB)))), places={11: in_pod("a")}, names=names_of("a/main"))
    Publisher(store, lifetime=15.0, exporter_metrics=own).publish(snapshot, account(opened(), snapshot))


def test_b103_values_are_withheld_once_the_snapshot_is_too_old():
    time = Time()
    store = PageStore(time)
    assert store.current() is None
    publish(store)
    time.now += 15
    fresh = store.current().text
    assert b"podgpu_container_memory_used_bytes{" in fresh
    time.now += 0.1
    stale = store.current().text
    for family in (b"podgpu_container", b"podgpu_device", b"podgpu_driver", b"podgpu_condition"):
        assert family not in stale
    for family in (b"podgpu_snapshot_timestamp_seconds", b"podgpu_source_up{", b"podgpu_build_info{"):
        assert family in stale
    publish(store)
    assert store.current().text == fresh


def test_compressed_pages_are_the_same_pages():
    store = PageStore()
    publish(store)
    page = store.current()
    assert gzip.decompress(page.text_gzip) == page.text
    assert gzip.decompress(page.openmetrics_gzip) == page.openmetrics
    assert page.openmetrics.endswith(b"# EOF\n")


def test_the_exporters_own_metrics_can_be_left_out():
    store = PageStore()
    publish(store, own=True)
    assert b"\nprocess_resident_memory_bytes " in store.current().text
    publish(store, own=False)
    assert b"\nprocess_" not in store.current().text
