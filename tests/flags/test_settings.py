"""Flags, their environment variables, and what a wrong one gets."""

import pytest

from exporter.settings import FLAGS, SettingsError, duration, parser, settings


def test_defaults():
    found = settings([], {})
    assert (found.interval, found.deadline, found.retain) == (5.0, 2.0, 300.0)
    assert found.listen_addresses == (":9836",)
    assert found.telemetry_path == "/metrics"
    assert found.kubelet_socket == ""
    assert found.exporter_metrics


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_is_in_the_help_with_its_environment_variable(flag):
    text = " ".join(parser("podgpu exporter").format_help().split())
    assert f"--{flag.name}" in text
    assert f"[{flag.variable}]" in text


def test_a_flag_wins_over_its_variable_and_the_variable_over_the_default():
    assert settings([], {"PODGPU_INTERVAL": "7s"}).interval == 7.0
    assert settings(["--interval=9s"], {"PODGPU_INTERVAL": "7s"}).interval == 9.0


def test_a_repeatable_flag_and_its_list():
    assert settings(["--web.listen-address=:1", "--web.listen-address=[::1]:2"], {}).listen_addresses == (
        ":1",
        "[::1]:2",
    )
    assert settings([], {"PODGPU_WEB_LISTEN_ADDRESS": ":1, :2"}).listen_addresses == (":1", ":2")


def test_the_nodes_name_is_what_the_downward_api_says_and_never_guessed():
    assert settings([], {}).node_name == settings([], {"PODGPU_NODE_NAME": ""}).node_name == ""
    assert settings([], {"PODGPU_NODE_NAME": "ip-10-0-0-1.eu-west-1.compute.internal"}).node_name.startswith("ip-10")


def test_a_switch():
    assert not settings(["--web.disable-exporter-metrics"], {}).exporter_metrics
    assert not settings([], {"PODGPU_WEB_DISABLE_EXPORTER_METRICS": "true"}).exporter_metrics
    assert settings([], {"PODGPU_WEB_DISABLE_EXPORTER_METRICS": "0"}).exporter_metrics


def test_variables_that_kubernetes_sets_for_a_service_called_podgpu_are_none_of_ours():
    assert settings([], {"PODGPU_PORT": "tcp://10.0.0.1:9836", "PODGPU_SERVICE_HOST": "10.0.0.1"}) == settings([], {})


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--interval=soon"], "--interval"),
        (["--interval=0"], "--interval"),
        (["--interval=5s", "--deadline=3s"], "--deadline"),
        (["--web.telemetry-path=metrics"], "--web.telemetry-path"),
        (["--web.telemetry-path=/-/healthy"], "--web.telemetry-path"),
        (["--web.max-connections=none"], "--web.max-connections"),
        (["--path.procfs=proc"], "--path.procfs"),
        (["--pods.source=crio"], "--pods.source"),
        (["--dra.source=logs"], "--dra.source"),
        (["--node-name=Node_1"], "--node-name"),
        (["--path.serviceaccount=token"], "--path.serviceaccount"),
        (["--kubelet.socket=/" + "x" * 200], "--kubelet.socket"),
        (["--kubelet.pods-socket=pods-api.sock"], "--kubelet.pods-socket"),
        (["--mps.source=v3"], "--mps.source"),
        (["--mps.pipe-directory=/tmp/nvidia-mps", "--mps.pipe-directory=pipe"], "--mps.pipe-directory"),
        (["--path.fractioning-map=map"], "--path.fractioning-map"),
        (["--log.level=loud"], "--log.level"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--interv=5s"], "--interv"),
        (["stray"], "stray"),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_it(arguments, names):
    with pytest.raises(SettingsError) as error:
        settings(arguments, {})
    assert names in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_variable_is_named():
    with pytest.raises(SettingsError, match="PODGPU_INTERVAL"):
        settings([], {"PODGPU_INTERVAL": "x"})


@pytest.mark.parametrize(("text", "seconds"), [("5s", 5), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("2.5", 2.5)])
def test_durations(text, seconds):
    assert duration(text) == seconds
