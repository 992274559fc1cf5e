from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.caps.policy import Policy, Rule
from exporter.caps.policy_file import ConfigFileError, read_policy
from exporter.caps.requests import Reaction, Share

GIB = 1 << 30


def read(directory: Path, text: str) -> Policy:
    origin = directory / "caps.yaml"
    origin.write_text(text, encoding="utf-8")
    return read_policy(origin)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "defaults:\n", "defaults: {memory: }\n", "namespaces: {}\n"])
def test_a_file_that_sets_nothing_sets_nothing(tmp_path, text):
    policy = read(tmp_path, text)
    assert (policy.defaults, dict(policy.namespaces)) == (Rule(), {})


def test_a_namespace_has_what_it_does_not_set_from_the_defaults(tmp_path):
    policy = read(
        tmp_path,
        "defaults:\n"
        "  memory: {default: 8Gi, ceiling: 0.5}\n"
        "  active_thread_percentage: {default: 25, ceiling: 50}\n"
        "  on_overrun: {default: freeze, harshest: terminate}\n"
        "namespaces:\n"
        "  research:\n"
        "    memory: {ceiling: 1}\n"
        "    on_overrun: {harshest: evict}\n"
        "  trusted:\n"
        "    memory: {default: none, ceiling: none}\n"
        "    active_thread_percentage: {ceiling: none}\n"
        "  1234:\n",
    )
    half, whole = Share(Fraction(1, 2)), Share(Fraction(1))
    assert policy.defaults == Rule(8 * GIB, half, 25, 50, Reaction.FREEZE, Reaction.TERMINATE)
    assert policy.rule("research") == Rule(8 * GIB, whole, 25, 50, Reaction.FREEZE, Reaction.EVICT)
    assert policy.rule("trusted") == Rule(None, None, 25, None, Reaction.FREEZE, Reaction.TERMINATE)
    assert policy.rule("1234") == policy.rule("elsewhere") == policy.defaults


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("default: {}\n", 1, "default", "unknown key; known here: defaults, namespaces"),
        ("defaults:\n  memory:\n    limit: 8Gi\n", 3, "defaults.memory.limit", "unknown key"),
        ("defaults:\n  memory: 8Gi\n", 2, "defaults.memory", "must be a mapping"),
        ("defaults:\n  memory:\n    ceiling: 8\n", 3, "defaults.memory.ceiling", "8Gi"),
        ("defaults:\n  memory:\n    ceiling: 8589934592\n", 3, "defaults.memory.ceiling", "no unit"),
        ("defaults:\n  memory:\n    ceiling: 8GB\n", 3, "defaults.memory.ceiling", "write 8Gi"),
        ("defaults:\n  memory:\n    ceiling: 1.5\n", 3, "defaults.memory.ceiling", "no unit"),
        ("defaults:\n  memory:\n    ceiling: 0\n", 3, "defaults.memory.ceiling", "no unit"),
        ("defaults:\n  memory:\n    ceiling:\n", 3, "defaults.memory.ceiling", "has no value"),
        ("defaults:\n  memory:\n    ceiling: [1]\n", 3, "defaults.memory.ceiling", "must be one value"),
        (
            "defaults:\n  memory:\n    default: 9Gi\n    ceiling: 8Gi\n",
            3,
            "defaults.memory.default",
            "above the ceiling 8Gi",
        ),
        ("defaults:\n  memory: {default: 0.5, ceiling: 0.4}\n", 2, "defaults.memory.default", "above the ceiling 0.4"),
        (
            "defaults:\n  memory: {default: 9Gi}\nnamespaces:\n  a:\n    memory: {ceiling: 8Gi}\n",
            5,
            "namespaces.a.memory.ceiling",
            "the default 9Gi is above the ceiling 8Gi",
        ),
        ("defaults:\n  active_thread_percentage: {default: 101}\n", 2, "percentage.default", "from 1 to 100"),
        ("defaults:\n  active_thread_percentage: {default: 60, ceiling: 50}\n", 2, "percentage.default", "above"),
        ("defaults:\n  on_overrun: {default: kill}\n", 2, "on_overrun.default", "warn, freeze, terminate, evict"),
        (
            "defaults:\n  on_overrun: {default: evict, harshest: warn}\n",
            2,
            "on_overrun.default",
            "above the harshest warn",
        ),
        ("namespaces:\n  Team_A: {}\n", 2, "namespaces.Team_A", "no name of a namespace"),
        ("namespaces:\n  a: {}\n  a: {}\n", 3, "namespaces.a", "given twice"),
        ("namespaces: [a]\n", 1, "namespaces", "must be a mapping"),
        ("defaults: {\n", 2, "", "is not valid YAML"),
    ],
)
def test_a_complaint_names_file_line_and_key(tmp_path, text, line, key, says):
    with pytest.raises(ConfigFileError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'caps.yaml'}:{line}: ")
    assert key in message
    assert says in message
    assert "\n" not in message


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigFileError, match="cannot be read: No such file"):
        read_policy(tmp_path / "caps.yaml")


@given(st.text("defaultsnmrycigho_v: {}[]0158GiM.%\n-&*!|", max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_policy_or_a_complaint_in_one_line(tmp_path, text):
    complaint = ""
    try:
        read(tmp_path, text)
    except ConfigFileError as error:
        complaint = str(error)
    assert complaint == "" or complaint.startswith(f"{tmp_path / 'caps.yaml'}:")
    assert "\n" not in complaint
