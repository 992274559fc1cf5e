"""The enforcer's flags: its own, and the exporter's where they say the same."""

import pytest

from enforcer.overruns import Window
from enforcer.settings import FLAGS, settings
from exporter import settings as exporter
from exporter.settings import SettingsError


def test_by_default_it_audits_and_owns_nothing():
    found = settings([], {})
    assert (found.mode, found.mps, found.exclusive) == ("audit", "found", False)
    assert (found.state, found.receipts) == ("/run/podgpu/enforcer", "/run/podgpu/receipts")
    assert found.window == Window()
    assert found.node.interval == 2.0
    assert found.node.listen_addresses == (":9837",)


def test_the_node_is_read_as_the_exporter_reads_it():
    arguments = ["--path.procfs=/host/proc", "--node-name=node-1", "--mps.pipe-directory=/a", "--kubelet.resource=x"]
    mine, theirs = settings(arguments, {}).node, exporter.settings(arguments, {})
    differing = {name for name in exporter.Settings.__slots__ if getattr(mine, name) != getattr(theirs, name)}
    assert differing == {"interval", "deadline", "listen_addresses"}


def test_names_are_unique_and_each_is_in_the_help(capsys):
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)
    with pytest.raises(SystemExit):
        settings(["--help"], {})
    text = " ".join(capsys.readouterr().out.split())
    for flag in FLAGS:
        assert f"--{flag.name}" in text
        assert f"[{flag.variable}]" in text


def test_a_flag_that_both_have_has_the_same_variable():
    theirs = {flag.name: flag.variable for flag in exporter.FLAGS}
    assert all(theirs.get(flag.name, flag.variable) == flag.variable for flag in FLAGS)
    assert settings([], {"PODGPU_NODE_NAME": "node-1", "PODGPU_MODE": "enforce"}).node.node_name == "node-1"
    assert settings(["--mode=off"], {"PODGPU_MODE": "enforce"}).mode == "off"


def test_the_window_and_the_tolerance():
    found = settings(["--overrun.window=2/7", "--overrun.tolerance=.1", "--overrun.tolerance-bytes=1Gi"], {})
    assert found.window == Window(2, 7, 0.1, 1 << 30, spacing=1.0)
    assert settings(["--interval=10s"], {}).window.spacing == 5.0
    assert settings(["--overrun.tolerance=0"], {}).window.ratio == 0.0


def test_exclusive_needs_daemons_of_our_own():
    assert settings(["--mps=managed", "--mps.exclusive"], {}).exclusive
    with pytest.raises(SettingsError, match=r"--mps\.exclusive"):
        settings(["--mps.exclusive"], {})


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("--mode=on", "--mode"),
        ("--mps=ours", "--mps"),
        ("--mps.managed-directory=/" + "x" * 40, "--mps.managed-directory"),
        ("--mps.managed-directory=mps", "--mps.managed-directory"),
        ("--path.state=state", "--path.state"),
        ("--overrun.window=6/5", "--overrun.window"),
        ("--overrun.window=0/5", "--overrun.window"),
        ("--overrun.window=3", "--overrun.window"),
        ("--overrun.window=3/61", "--overrun.window"),
        ("--overrun.tolerance=1", "--overrun.tolerance"),
        ("--overrun.tolerance=-0.1", "--overrun.tolerance"),
        ("--overrun.tolerance=nan", "--overrun.tolerance"),
        ("--overrun.tolerance-bytes=64", "--overrun.tolerance-bytes"),
        ("--overrun.tolerance-bytes=much", "--overrun.tolerance-bytes"),
        ("--pods.source=logs", "--pods.source"),
        ("--interval=0", "--interval"),
        ("--retain=5m", "--retain"),
        ("--mps.source=none", "--mps.source"),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(argument, names):
    with pytest.raises(SettingsError) as error:
        settings([argument], {})
    assert names in str(error.value)
    assert "\n" not in str(error.value)
