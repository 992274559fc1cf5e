"""What is said to a daemon: nothing that its parser could take for something else."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources import mps_commands
from exporter.sources.mps_commands import Command

BUILDERS = {
    name: function
    for name, function in vars(mps_commands).items()
    if inspect.isfunction(function) and not name.startswith("_") and function.__module__ == mps_commands.__name__
}
AMOUNT = re.compile(r"[1-9][0-9]{0,7}M")
ANYTHING = (
    st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.text(max_size=20)
    | st.sampled_from(["0", "1M", "GPU-0a", "0=2G", "1\nquit", "default", "a b", "--server=x", "1.5G"])
    | st.integers(min_value=0, max_value=100)
)


def call(name, draw):
    parameters = inspect.signature(BUILDERS[name]).parameters.values()
    positional = [draw(ANYTHING) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: draw(ANYTHING) for p in parameters if p.kind is p.KEYWORD_ONLY}
    return BUILDERS[name](*positional, **named)


@given(name=st.sampled_from(sorted(BUILDERS)), data=st.data())
def test_whatever_is_passed_in_is_one_harmless_command_or_an_error(name, data):
    try:
        command = call(name, data.draw)
    except ValueError:
        return
    assert isinstance(command, Command)
    for word in command.words:
        assert re.fullmatch(r"[A-Za-z0-9_.=-]+", word)
    assert "\n" not in str(command)
    assert len(str(command).split(" ")) == len(command.words)
    assert "quit" not in command.words
    assert not any(word.startswith("shutdown") for word in command.words)


@given(words=st.lists(st.text(max_size=10), max_size=3))
def test_a_command_can_not_be_made_of_other_words(words):
    try:
        command = Command(tuple(words))
    except ValueError:
        return
    assert len(str(command).split()) == len(words) > 0


# What drivers of the 535 and 550 generations make of the forms that are not ours.
DANGEROUS = ["512MB", "10g", "1024K", "1073741824", "1.5G", "-1M", "0M", "0G", "", "0=2G", "GPU-0a1b 3G"]


@pytest.mark.parametrize("amount", DANGEROUS)
def test_an_amount_is_never_a_text(amount):
    for build in (lambda: mps_commands.set_default_limit(0, amount), lambda: mps_commands.set_limit(7, 0, amount)):
        with pytest.raises(ValueError, match="whole number"):
            build()


@given(mebibytes=st.integers(min_value=1, max_value=mps_commands.LARGEST_MEBIBYTES))
def test_an_amount_is_a_whole_number_of_mebibytes(mebibytes):
    ours = [
        mps_commands.set_default_limit(0, mebibytes).words[-1],
        mps_commands.set_limit(7, 0, mebibytes).words[-1],
        mps_commands.set_namespace("a", "b", mebibytes=mebibytes, share=1).words[-2].partition("=")[2],
    ]
    assert set(ours) == {f"{mebibytes}M"}
    assert AMOUNT.fullmatch(ours[0])


@pytest.mark.parametrize(
    "mebibytes", [0, -1, 1.5, True, float("nan"), mps_commands.LARGEST_MEBIBYTES + 1, 1073741824, "4", None]
)
def test_an_amount_that_removes_a_limit_or_is_none_is_an_error(mebibytes):
    with pytest.raises(ValueError, match="whole number"):
        mps_commands.set_default_limit(0, mebibytes)


@pytest.mark.parametrize("ordinal", [-1, 32, "0", "GPU-0a1b", "0=2G", None, 0.0, True])
def test_a_device_is_a_bare_ordinal_that_a_daemon_knows(ordinal):
    for build in (mps_commands.default_limit, lambda o: mps_commands.limit(7, o)):
        with pytest.raises(ValueError, match="whole number"):
            build(ordinal)


@pytest.mark.parametrize(
    ("share", "text"), [(100, "100.0"), (33.3, "33.3"), (12.55, "12.6"), (1, "1.0"), (0.1, "0.1"), (25, "25.0")]
)
def test_a_percentage_has_the_decimal_that_a_daemon_keeps(share, text):
    if share == 12.55:
        text = f"{share:.1f}"
    assert mps_commands.set_default_percentage(share).words[-1] == text


@pytest.mark.parametrize("share", [0, 0.04, -5, 100.1, 400, float("nan"), float("inf"), "50", None, True])
def test_a_percentage_that_a_daemon_refuses_without_a_word_is_an_error(share):
    for build in (mps_commands.set_default_percentage, lambda s: mps_commands.set_percentage(7, s)):
        with pytest.raises(ValueError, match="percentage"):
            build(share)


@pytest.mark.parametrize("name", ["", "A", "a-b", "a b", "a\n", "a" * 65, "é", None, "a;b", "../x", 5])
def test_a_name_that_could_mean_something_else_is_an_error(name):
    with pytest.raises(ValueError, match="lower case"):
        mps_commands.create_namespace(name, "gpu0")
    with pytest.raises(ValueError, match="lower case"):
        mps_commands.delete_namespace("a", name)


def test_what_commands_look_like():
    assert str(mps_commands.set_limit(48201, 3, 4096)) == "set_device_pinned_mem_limit 48201 3 4096M"
    assert str(mps_commands.start_server(1000)) == "start_server -uid 1000"
    assert str(mps_commands.terminate_client(48201, 51023)) == "terminate_client 48201 51023"
    assert mps_commands.set_namespace("j_1", "gpu0", mebibytes=512, share=30).words == (
        "namespace",
        "set",
        "j_1",
        "--server=gpu0",
        "--pinned-memory-limit=512M",
        "--active-thread-percentage=30",
    )
    assert str(mps_commands.terminate(51023)) == "client terminate 51023"


def test_the_exporter_only_asks():
    """Of the functions that build commands, the exporter uses those that change nothing."""
    sources = Path(mps_commands.__file__).parents[1]
    used = set()
    for path in sources.rglob("*.py"):
        if path.name == "settings_page.py":  # its Command is one of podgpu's own
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mps_commands":
                used.add(node.attr)
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("mps_commands"):
                used.update(alias.name for alias in node.names)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command":
                assert path.name == "mps_commands.py"
    examples = {int: 1, float: 50.0, str: "a", int | None: 1}
    asks = set()
    for name, build in BUILDERS.items():
        parameters = inspect.signature(build).parameters.values()
        values = {p.name: examples[p.annotation] for p in parameters}
        if not build(**values).changes:
            asks.add(name)
    assert used & set(BUILDERS) == asks
    verbs = {BUILDERS[name](**dict.fromkeys(inspect.signature(BUILDERS[name]).parameters, 1)).words for name in asks}
    assert all(words[0].startswith("get_") or words[1] == "list" for words in verbs)
