"""Scenario files: what they may say, and what a mistake in one gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.allocation import advertised, handed_out
from simulator.scenario import Load, Memory, ScenarioError
from simulator.scenario_file import load, names

MIB = 1 << 20
_WITH_SM = "description: x\ngpus: [{{}}]\npods: [{{name: p, containers: [{{processes: [{{memory: 1GiB, sm: {}}}]}}]}}]"


@pytest.mark.parametrize("name", names())
def test_every_scenario_loads_and_can_be_handed_out(name):
    loaded = load(name)
    assert loaded.description
    ids = [device for by_resource in handed_out(loaded).values() for found in by_resource.values() for device in found]
    assert len(ids) == len(set(ids))
    assert set(ids) <= {device for found in advertised(loaded).values() for device in found}


def test_a_scenario_is_the_same_each_time():
    assert load("mixed") == load("mixed")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- 1", "should be a mapping"),
        ("description: x\ngpus: [{memroy: 1GiB}]", "memroy"),
        ("description: x\ngpus: [{memory: 80G}]", "memory"),
        ("description: x\ngpus: [{sharing: magic}]", "magic"),
        ("description: x\npods: [{name: p, containers: [{processes: [{gpu: 3, memory: 1GiB}]}]}]", "no GPU 3"),
        (_WITH_SM.format("101"), "sm is a percentage such as 40, not 101"),
        (_WITH_SM.format("half"), "percentage"),
        (_WITH_SM.format("{from: 0, to: 200}"), "sm: to is a percentage"),
        (_WITH_SM.format("{from: 0, to: 20, perod: 3s}"), "perod"),
        (
            "description: x\ngpus: [{}]\npods: [{name: p, containers: [{claims: [{name: c}]}]}]",
            "not given out by claims",
        ),
        ("description: x\npods: [{name: p, containers: [{claims: [{name: c, device: d, gpu: 0}]}]}]", "gpu"),
        ("description: x\nmemory_limits: kernel", "dmem, misc or off, not 'kernel'"),
        ("description: x\ndmem: 1", "dmem is true or false"),
        ("description: x\ndriver: 615.71.09\nmemory_limits: dmem", "set dmem: true"),
        ("description: x\ndriver: 580.95.05\nmemory_limits: misc", "needs driver 615"),
        ("description: x\nmemory_limits: off\npods: [{name: p, memory_limit: 1GiB}]", "p has a memory_limit"),
        ("description: x\npods: [{name: p, containers: [{memory_limit: 0B}]}]", "p has a memory_limit"),
        ("description: x\npods: [{name: p, memory_limit: 1G}]", "memory_limit is an amount"),
        ("gpus: []", "description is missing"),
        ("a: [", "not YAML"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_place(tmp_path, text, says):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as error:
        load(str(path))
    assert says in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_more_slots_than_there_are(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: x\ngpus: [{}]\npods: [{name: p, containers: [{holds: [{gpu: 0, slots: 2}]}]}]")
    with pytest.raises(ScenarioError, match="2 slots"):
        handed_out(load(str(path)))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ScenarioError, match="exclusive, gke, hostile, kai"):
        load("nosuch")


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(1, 100), st.floats(0, 1e6))
def test_memory_moves_between_its_bounds_in_whole_mebibytes(least, more, period, seconds):
    memory = Memory(least * MIB, (least + more) * MIB, period)
    value = memory.at(seconds)
    assert least * MIB <= value <= (least + more) * MIB
    assert value % MIB == 0
    assert memory.at(0) == least * MIB


@given(st.integers(0, 100), st.integers(0, 100), st.floats(1, 100), st.floats(0, 1e6))
def test_a_load_moves_between_its_bounds(one, other, period, seconds):
    moving = Load(one, other, period)
    assert min(one, other) <= moving.at(seconds) <= max(one, other)
    assert moving.at(0) == one
    assert moving.at(period / 2) == other


def test_a_process_without_sm_is_idle(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: x\ngpus: [{}]\nhost: [{memory: 1GiB}, {memory: 1GiB, sm: 7}]")
    assert [process.sm.at(9) for process in load(str(path)).host] == [0, 7]
