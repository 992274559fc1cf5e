"""The exporter's flags: one table from which parsing, environment variables, --help and the documentation derive.

A flag wins over its environment variable, the variable over the default. A value that makes no sense is an error in
one line that names the flag and says what it takes.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

ENV_PREFIX = "PODGPU_"
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


class SettingsError(Exception):
    """A flag or environment variable that can't be used, in one line."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the exporter was asked to do. Durations in seconds."""

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


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `parse` turns its text into a value or raises ValueError with what it takes."""

    name: str
    default: str
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = str
    repeatable: bool = False
    switch: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it. A repeatable one takes a comma-separated list."""
        return ENV_PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def attribute(self) -> str:
        """The name under which argparse keeps it."""
        return re.sub(r"[.-]", "_", self.name)


def duration(text: str) -> float:
    """Seconds from text such as 5s, 500ms, 2m or 2.5."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text)
    if match is None or float(match[1]) == 0:
        raise ValueError("takes a duration such as 5s, 500ms or 1m")
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}[match[2]]


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("takes a whole number above 0")
    return int(text)


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("takes an absolute path")
    return text


def _socket(text: str) -> str:
    if not text.startswith("/") or len(os.fsencode(text)) > 107:
        raise ValueError("takes an absolute path of at most 107 bytes, as the kernel has it for sockets")
    return text


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


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"takes one of {', '.join(words)}")
        return text

    return parse


def _switch(text: str) -> bool:
    if text.lower() in ("1", "true", "yes"):
        return True
    if text.lower() in ("", "0", "false", "no"):
        return False
    raise ValueError("takes true or false")


FLAGS: tuple[Flag, ...] = (
    Flag("interval", "5s", "time from one sampling cycle to the next", "DURATION", duration),
    Flag(
        "deadline",
        "",
        "how long a cycle waits for the driver, and then for /proc, before it goes on without them; "
        "default: 0.4 of the interval",
        "DURATION",
        duration,
    ),
    Flag(
        "retain",
        "5m",
        "how long the counters of a container that is gone stay on the page, so that their last value is scraped",
        "DURATION",
        duration,
    ),
    Flag(
        "web.listen-address",
        ":9836",
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
    Flag("web.max-connections", "100", "connections held at once; further ones are refused", "N", _count),
    Flag(
        "web.disable-exporter-metrics",
        "",
        "leave out the metrics of the exporter's own process (process_*)",
        parse=_switch,
        switch=True,
    ),
    Flag("path.procfs", "/proc", "procfs of the host's pid namespace", "DIR", _path),
    Flag("path.sysfs", "/sys", "sysfs of the host, with the cgroups of all pods in fs/cgroup", "DIR", _path),
    Flag("path.logs", "/var/log", "the node's log directory, whose containers/ and pods/ name the pods", "DIR", _path),
    Flag(
        "kubelet.socket",
        "",
        "socket of the kubelet's PodResources API (mount its directory, not the socket); "
        "default: where the kubelet, k0s or microk8s keep it",
        "SOCKET",
        _socket,
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
        _socket,
    ),
    Flag(
        "pods.source",
        "auto",
        "where this node's pods come from: kubelet (its Pods API), api (a watch of the API server), logs (the log "
        "links, which tell names only), none, or auto: the first of these that there is",
        "SOURCE",
        _one_of("auto", "kubelet", "api", "logs", "none"),
    ),
    Flag(
        "dra.source",
        "auto",
        "where the devices of claims (dynamic resource allocation) are looked up, on a node that has claims: auto, "
        "which is the API server if a service account is mounted, or none",
        "SOURCE",
        _one_of("auto", "none"),
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
        _path,
    ),
    Flag(
        "pods.label",
        "",
        "label of pods to show in podgpu_pod_labels, such as app.kubernetes.io/name",
        "KEY",
        repeatable=True,
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
        _path,
    ),
    Flag(
        "mps.source",
        "auto",
        "whether MPS control daemons are asked for servers, clients, shares and limits: auto, which is wherever there "
        "is one, or none",
        "SOURCE",
        _one_of("auto", "none"),
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
        _path,
    ),
    Flag("log.level", "info", "debug, info, warning or error", "LEVEL", _one_of("debug", "info", "warning", "error")),
    Flag("log.format", "logfmt", "logfmt or json", "FORMAT", _one_of("logfmt", "json")),
)


class _Parser(argparse.ArgumentParser):
    """argparse, with errors as one line and no guessing of shortened flags."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {self.prog} --help)")


def parser(
    prog: str, description: str = "Serves GPU memory per container of this node to Prometheus."
) -> argparse.ArgumentParser:
    """The parser of the exporter's flags; its --help names every flag's environment variable."""
    found = _Parser(
        prog=prog,
        description=description,
        epilog="Every flag can be set by the environment variable named with it; a flag given wins.",
        allow_abbrev=False,
    )
    for flag in FLAGS:
        shown = f"{flag.help} (default: {flag.default})" if flag.default else flag.help
        text = f"{shown} [{flag.variable}]".replace("%", "%%")
        if flag.switch:
            found.add_argument(f"--{flag.name}", dest=flag.attribute, action="store_const", const="true", help=text)
        elif flag.repeatable:
            found.add_argument(
                f"--{flag.name}", dest=flag.attribute, action="append", metavar=flag.metavar, help=f"{text}; repeatable"
            )
        else:
            found.add_argument(f"--{flag.name}", dest=flag.attribute, metavar=flag.metavar, help=text)
    return found


def settings(arguments: Sequence[str], environment: Mapping[str, str], *, prog: str = "podgpu exporter") -> Settings:
    """The settings that flags and environment give.

    Raises SettingsError, in one line, for an unknown flag or a value that can't be used.
    """
    return settings_of(parser(prog).parse_args(list(arguments)), environment)


def settings_of(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Settings:
    """The settings that parsed flags and environment give. Raises SettingsError."""
    given = vars(parsed)
    values = {flag.attribute: _value(flag, given[flag.attribute], environment) for flag in FLAGS}
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


def _value(flag: Flag, given: str | list[str] | None, environment: Mapping[str, str]) -> Any:  # noqa: ANN401
    """One flag's value, by its own type."""
    origin = f"--{flag.name}"
    if given is None and flag.variable in environment:
        given, origin = environment[flag.variable], flag.variable
    if given is None:
        given = flag.default
    if flag.repeatable:
        parts = given.split(",") if isinstance(given, str) else given
        return tuple(part.strip() for part in parts if part.strip())
    try:
        return flag.parse(str(given)) if given or flag.switch else ""
    except ValueError as error:
        raise SettingsError(f"{origin}: {error}, not {given!r}") from None
