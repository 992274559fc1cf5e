"""The policy file as a source: read again when it changes, and a failure while it can't be used."""

import os

import pytest

from exporter.caps.policy import Policy
from exporter.clock import Clock
from exporter.errors import Reason
from exporter.sources.policy import PolicyFile

GIB = 1 << 30


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.yaml"


@pytest.fixture
def source(path):
    return PolicyFile(path, clock=Clock())


def test_a_policy_is_read_and_read_again_when_it_changes(path, source):
    path.write_text("defaults: {memory: {default: 4Gi}}\n")
    assert source.read().value.defaults.memory_default == 4 * GIB
    assert source.read().value is source.read().value
    path.write_text("defaults: {memory: {default: 16Gi}}\n")
    assert source.read().value.defaults.memory_default == 16 * GIB


def test_a_mounted_configmap_changes_by_a_link(tmp_path, source, path):
    for number in (1, 2):
        (tmp_path / f"v{number}").write_text(f"defaults: {{memory: {{default: {number}Gi}}}}\n")
    path.symlink_to("v1")
    assert source.read().value.defaults.memory_default == GIB
    (tmp_path / "new").symlink_to("v2")
    os.replace(tmp_path / "new", path)
    assert source.read().value.defaults.memory_default == 2 * GIB


def test_a_file_that_cant_be_used_is_a_failure_until_it_can(path, source):
    assert source.read().failure.reason is Reason.MISSING
    path.write_text("defaults: {memory: {default: much}}\n")
    failure = source.read().failure
    assert failure.reason is Reason.MALFORMED
    assert str(path) in failure.detail
    assert source.read().failure == failure
    path.write_text("defaults: {}\n")
    assert source.read().value == Policy()
