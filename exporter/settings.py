"""The exporter's flags, and those that it shares with other commands because they say the same of a node.

What a flag is, and which of flag, variable and default wins, is in `exporter.flags`.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter import flags
from exporter.flags import Flag, SettingsError, duration, one_of, path, socket, switch

__all__ = ["FLAGS", "Flag", "Settings", "SettingsError", "duration", "parser", "settings", "settings_of"]

# Not taken from podresources, which loads gRPC: --help and a wrong flag do without.
DEFAULT_PODS_SOCKET = "/var/lib/kubelet/pods-api/pods-api.sock"
DEFAULT_PIPE_DIRECTORIES = (
    "/run/nvidia/mps/*/pipe",  # NVIDIA's device plugin, by resource
    "/run/nvidia/mps/*/*/pipe",  # whose names hold a slash: nvidia.com/gpu.shared
    "/var/lib/kubelet/plugins/gpu.nvidia.com/mps/*/pipe",  # NVIDIA's driver for resource claims, by claim
    "/tmp/nvidia-mps",  # noqa: S108 - the daemon's own default, which GKE keeps
    "/run/nvidia-mps",  # protocol 3's default; gpu-fractioning
    "/run/mps-ecs",  # AWS
    "/run/podgpu/mps",  # podgpu's own: protocol 3
    "/run/podgpu/mps/[0-9]*",  # protocol 2, by GPU
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the exporter was asked to do, or how another command is to read the node. Durations in seconds."""

    interval: float
    deadline: float
    retain: float
    listen_addresses: tuple[str, ...]
    telemetry_path: str
    web_config_file: str
    max_connections: int
    exporter_metrics: bool
    procfs: str
    sysfs: str
    logs: str
    kubelet_socket: str
    kubelet_resources: frozenset[str]
    kubelet_reservation_namespaces: frozenset[str]
    kubelet_pods_socket: str
    pods_source: str
    dra_source: str
    node_name: str
    service_account: str
    pod_labels: tuple[str, ...]
    annotation_prefix: str
    policy_file: str
    mps_source: str
    mps_directories: tuple[str, ...]
    mps_control: str
    fractioning_map: str
    log_level: str
    log_format: str


def _node_name(text: str) -> str:
    if len(text) > 253 or not re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", text):
        raise ValueError("takes the name of a Kubernetes node")
    return text


def _url_path(text: str) -> str:
    if not re.fullmatch(r"/[A-Za-z0-9._~/-]+", text) or text.startswith("/-/"):
        raise ValueError("takes a path such as /metrics, other than / and those below /-/")
    return text


def _annotation_prefix(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,62}", text, re.ASCII):
        raise ValueError("takes the beginning of annotation keys, such as nvidia.com/container.")
    return text


def web_flags(port: int) -> tuple[Flag, ...]:
    """How a command serves its metrics, by default on this port."""
    return (
        Flag(
            "web.listen-address",
            f":{port}",
            "address to listen on, as :PORT, HOST:PORT or [IPv6]:PORT; port 0 takes a free one",
            "ADDRESS",
            repeatable=True,
        ),
        Flag("web.telemetry-path", "/metrics", "path of the metrics page", "PATH", _url_path),
        Flag(
            "web.config.file",
            "",
            "file that turns on TLS, client certificates and basic authentication, "
            "in the format of Prometheus' exporter-toolkit",
            "FILE",
        ),
        Flag("web.max-connections", "100", "connections held at once; further ones are refused", "N", flags.count),
        Flag(
            "web.disable-exporter-metrics",
            "",
            "leave out the metrics of this program's own process (process_*)",
            parse=switch,
            switch=True,
        ),
    )


NODE_FLAGS: tuple[Flag, ...] = (  # where the things of a node are, and which of them are asked
    Flag("path.procfs", "/proc", "procfs of the host's pid namespace", "DIR", path),
    Flag("path.sysfs", "/sys", "sysfs of the host, with the cgroups of all pods in fs/cgroup", "DIR", path),
    Flag("path.logs", "/var/log", "the node's log directory, whose containers/ and pods/ name the pods", "DIR", path),
    Flag(
        "kubelet.socket",
        "",
        "socket of the kubelet's PodResources API (mount its directory, not the socket); "
        "default: where the kubelet, k0s or microk8s keep it",
        "SOCKET",
        socket,
    ),
    Flag(
        "kubelet.resource",
        "",
        "further resource name whose devices are GPUs, for ids that podgpu can't read by their shape",
        "NAME",
        repeatable=True,
    ),
    Flag(
        "kubelet.reservation-namespace",
        "kai-resource-reservation,runai-reservation",
        "namespace whose pods only hold GPUs for a scheduler and never use them",
        "NAMESPACE",
        repeatable=True,
    ),
    Flag(
        "kubelet.pods-socket",
        DEFAULT_PODS_SOCKET,
        "socket of the kubelet's Pods API, which Kubernetes has from 1.37 on (mount its directory, not the socket)",
        "SOCKET",
        socket,
    ),
    Flag(
        "pods.source",
        "auto",
        "where this node's pods come from: kubelet (its Pods API), api (a watch of the API server), logs (the log "
        "links, which tell names only), none, or auto: the first of these that there is",
        "SOURCE",
        one_of("auto", "kubelet", "api", "logs", "none"),
    ),
    Flag(
        "dra.source",
        "auto",
        "where the devices of claims (dynamic resource allocation) are looked up, on a node that has claims: auto, "
        "which is the API server if a service account is mounted, or none",
        "SOURCE",
        one_of("auto", "none"),
    ),
    Flag(
        "node-name",
        "",
        "the node's name in Kubernetes, from the downward API (spec.nodeName); needed to ask the API server for the "
        "node's pods, or for the devices of claims",
        "NAME",
        _node_name,
    ),
    Flag(
        "path.serviceaccount",
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "the mounted service account, with token and ca.crt for the API server",
        "DIR",
        path,
    ),
    Flag(
        "caps.annotation-prefix",
        "nvidia.com/container.",
        "beginning of the per-container annotations that ask for GPU memory and compute",
        "PREFIX",
        _annotation_prefix,
    ),
    Flag(
        "caps.policy-file",
        "",
        "file with the cluster's defaults and ceilings for caps, see docs/policy.md",
        "FILE",
        path,
    ),
    Flag(
        "mps.pipe-directory",
        ",".join(DEFAULT_PIPE_DIRECTORIES),
        "pipe directory of MPS control daemons, by the path that it has here; *, ? and [] match within one name",
        "PATTERN",
        repeatable=True,
    ),
    Flag(
        "mps.control",
        "nvidia-cuda-mps-control",
        "the command that talks to MPS control daemons; a container has it with NVIDIA_DRIVER_CAPABILITIES=compute",
        "COMMAND",
    ),
    Flag(
        "path.fractioning-map",
        "/var/run/gpu-fractioning/map",
        "where NVIDIA's gpu-fractioning keeps what it gave to containers",
        "DIR",
        path,
    ),
)
LOG_FLAGS: tuple[Flag, ...] = (
    Flag("log.level", "info", "debug, info, warning or error", "LEVEL", one_of("debug", "info", "warning", "error")),
    Flag("log.format", "logfmt", "logfmt or json", "FORMAT", one_of("logfmt", "json")),
)
DEADLINE_FLAG = Flag(
    "deadline",
    "",
    "how long a cycle waits for the driver, and then for /proc, before it goes on without them; "
    "default: 0.4 of the interval",
    "DURATION",
    duration,
)
EXPORTER_FLAGS: tuple[Flag, ...] = (  # that no other command has, or not with this meaning
    Flag("interval", "5s", "time from one sampling cycle to the next", "DURATION", duration),
    Flag(
        "retain",
        "5m",
        "how long the counters of a container that is gone stay on the page, so that their last value is scraped",
        "DURATION",
        duration,
    ),
    Flag(
        "pods.label",
        "",
        "label of pods to show in podgpu_pod_labels, such as app.kubernetes.io/name",
        "KEY",
        repeatable=True,
    ),
    Flag(
        "mps.source",
        "auto",
        "whether MPS control daemons are asked for servers, clients, shares and limits: auto, which is wherever there "
        "is one, or none",
        "SOURCE",
        one_of("auto", "none"),
    ),
)
FLAGS: tuple[Flag, ...] = (*EXPORTER_FLAGS, DEADLINE_FLAG, *web_flags(9836), *NODE_FLAGS, *LOG_FLAGS)


def parser(
    prog: str, description: str = "Serves GPU memory per container of this node to Prometheus."
) -> argparse.ArgumentParser:
    """The parser of the exporter's flags."""
    return flags.parser(prog, description, FLAGS)


def settings(arguments: Sequence[str], environment: Mapping[str, str], *, prog: str = "podgpu exporter") -> Settings:
    """The settings that flags and environment give.

    Raises SettingsError, in one line, for an unknown flag or a value that can't be used.
    """
    return settings_of(parser(prog).parse_args(list(arguments)), environment)


def settings_of(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings that parsed flags and environment give. Raises SettingsError."""
    return settings_from(flags.values_of(parsed, FLAGS, environment))


def settings_from(values: Mapping[str, Any]) -> Settings:
    """The settings from the value of each flag, by its attribute. Raises SettingsError."""
    deadline = values["deadline"] or 0.4 * values["interval"]
    for directory in values["mps_pipe_directory"]:
        if not directory.startswith("/"):
            raise SettingsError(f"--mps.pipe-directory: takes an absolute path or pattern, not {directory!r}")
    if 2 * deadline > values["interval"]:
        raise SettingsError("--deadline: takes at most half of --interval, since a cycle may wait twice")
    return Settings(
        interval=values["interval"],
        deadline=deadline,
        retain=values["retain"],
        listen_addresses=values["web_listen_address"],
        telemetry_path=values["web_telemetry_path"],
        web_config_file=values["web_config_file"],
        max_connections=values["web_max_connections"],
        exporter_metrics=not values["web_disable_exporter_metrics"],
        procfs=values["path_procfs"],
        sysfs=values["path_sysfs"],
        logs=values["path_logs"],
        kubelet_socket=values["kubelet_socket"],
        kubelet_resources=frozenset(values["kubelet_resource"]),
        kubelet_reservation_namespaces=frozenset(values["kubelet_reservation_namespace"]),
        kubelet_pods_socket=values["kubelet_pods_socket"],
        pods_source=values["pods_source"],
        dra_source=values["dra_source"],
        node_name=values["node_name"],
        service_account=values["path_serviceaccount"],
        pod_labels=values["pods_label"],
        annotation_prefix=values["caps_annotation_prefix"],
        policy_file=values["caps_policy_file"],
        mps_source=values["mps_source"],
        mps_directories=values["mps_pipe_directory"],
        mps_control=values["mps_control"],
        fractioning_map=values["path_fractioning_map"],
        log_level=values["log_level"],
        log_format=values["log_format"],
    )
