"""Reads a scenario from YAML, and says of every mistake in which file and place it is.

`simulator/scenarios/mixed.yaml` shows most fields, docs/simulator.md explains them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from simulator.scenario import (
    Claim,
    Container,
    Daemon,
    Gpu,
    Held,
    Load,
    Memory,
    MigDevice,
    MpsNamespace,
    MpsServer,
    Owner,
    Pod,
    Process,
    Scenario,
    ScenarioError,
)

SCENARIOS = Path(__file__).parent / "scenarios"
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def names() -> list[str]:
    """The scenarios that come with podgpu."""
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def load(name_or_path: str) -> Scenario:
    """Read a scenario by its name or from a file. Raises ScenarioError."""
    path = SCENARIOS / f"{name_or_path}.yaml"
    if "/" in name_or_path or not path.exists():
        path = Path(name_or_path)
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ScenarioError(
            f"{name_or_path}: no such scenario or file; podgpu has the scenarios {', '.join(names())}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    return _scenario(path.stem, _Section(str(path), content))


class _Section:
    """A mapping of the file. Each key is asked for by name; what nobody asked for is an error."""

    def __init__(self, place: str, content: Any) -> None:  # noqa: ANN401
        if not isinstance(content, dict):
            raise ScenarioError(f"{place}: should be a mapping")
        self.place = place
        self._content: Mapping[str, Any] = content
        self._asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401
        self._asked.add(key)
        value = self._content.get(key, default)
        if value is None:
            raise ScenarioError(f"{self.place}: {key} is missing")
        return value

    def optional(self, key: str) -> Any:  # noqa: ANN401
        self._asked.add(key)
        return self._content.get(key)

    def bytes(self, key: str, default: str | None = None) -> int:
        return _bytes(self.get(key, default), f"{self.place}: {key}")

    def seconds(self, key: str, default: float) -> float:
        text = str(self.get(key, default))
        if not re.fullmatch(r"\d+(\.\d+)?s?|inf", text):
            raise ScenarioError(f"{self.place}: {key} is a time such as 30s, not {text!r}")
        return float(text.removesuffix("s"))

    def truth(self, key: str) -> bool:
        value = self.get(key, False)
        if not isinstance(value, bool):
            raise ScenarioError(f"{self.place}: {key} is true or false, not {value!r}")
        return value

    def texts(self, key: str) -> Mapping[str, str]:
        value = self.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in (*value, *value.values())):
            raise ScenarioError(f"{self.place}: {key} should be a mapping of texts; put numbers in quotes")
        return value

    def sections(self, key: str) -> Iterator["_Section"]:
        entries = self.get(key, [])
        if not isinstance(entries, list):
            raise ScenarioError(f"{self.place}: {key} should be a list")
        for number, entry in enumerate(entries):
            yield _Section(f"{self.place}: {key}[{number}]", entry)

    def end(self) -> None:
        unknown = sorted(set(self._content) - self._asked)
        if unknown:
            raise ScenarioError(f"{self.place}: nothing is known of {', '.join(map(str, unknown))}")


def _bytes(value: object, place: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB)", str(value))
    if match is None:
        raise ScenarioError(f"{place} is an amount such as 512MiB, not {value!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def _scenario(name: str, section: _Section) -> Scenario:
    gpus = tuple(_gpu(index, entry) for index, entry in enumerate(section.sections("gpus")))
    scenario = Scenario(
        name=name,
        description=str(section.get("description")),
        driver=str(section.get("driver", "580.95.05")),
        cuda=str(section.get("cuda", "13.0")),
        cgroup_driver=str(section.get("cgroup_driver", "systemd")),
        gpus=gpus,
        pods=tuple(pod for entry in section.sections("pods") for pod in _pods(entry, gpus)),
        host=tuple(_process(entry, gpus) for entry in section.sections("host")),
        enforcer=_enforcer(section),
        mps=tuple(_daemon(entry, gpus) for entry in section.sections("mps")),
        pods_sources=tuple(section.get("pods_sources", ["logs"])),
        dmem=section.truth("dmem"),
        memory_limits=_memory_limits(section),
    )
    for source in scenario.pods_sources:
        if source not in ("kubelet", "api", "logs"):
            raise ScenarioError(f"{section.place}: pods_sources are of kubelet, api and logs, not {source!r}")
    _check_limits(scenario, section.place)
    section.end()
    return scenario


def _memory_limits(section: _Section) -> str:
    value = section.get("memory_limits", "off")
    value = "off" if value is False else value  # which is what YAML makes of off
    if value not in ("dmem", "misc", "off"):
        raise ScenarioError(f"{section.place}: memory_limits is dmem, misc or off, not {value!r}")
    return str(value)


def _check_limits(scenario: Scenario, place: str) -> None:
    """Limits need somebody who keeps them."""
    if scenario.memory_limits == "off":
        for pod in scenario.pods:
            if pod.memory_limit is not None or any(part.memory_limit is not None for part in pod.containers):
                raise ScenarioError(f"{place}: {pod.name} has a memory_limit, and memory_limits is off")
        return
    major = scenario.driver.partition(".")[0]
    if not major.isdecimal() or int(major) < 615:
        raise ScenarioError(f"{place}: memory_limits needs driver 615 or newer, not {scenario.driver}")
    if scenario.memory_limits == "dmem" and not scenario.dmem:
        raise ScenarioError(f"{place}: memory_limits is dmem, and the kernel has none: set dmem: true")


def _gpu(index: int, section: _Section) -> Gpu:
    sharing = str(section.get("sharing", "exclusive"))
    if sharing not in ("exclusive", "time-slicing", "mps", "claims"):
        raise ScenarioError(f"{section.place}: sharing is exclusive, time-slicing, mps or claims, not {sharing!r}")
    major, _, minor = str(section.get("compute_capability", "8.0")).partition(".")
    gpu = Gpu(
        index=index,
        name=str(section.get("name", "NVIDIA A100-SXM4-80GB")),
        memory=section.bytes("memory", "80GiB"),
        reserved=section.bytes("reserved", "600MiB"),
        overhead=section.bytes("overhead", "0B"),
        sharing=sharing,
        replicas=int(section.get("replicas", 1)),
        resource=str(section.get("resource", "nvidia.com/gpu")),
        compute_capability=(int(major), int(minor or 0)),
        utilization=int(section.get("utilization", 0)),
        minor=int(section.get("minor", index)),
        ids=str(section.get("ids", "nvidia")),
        mig=tuple(_mig(slot, entry) for slot, entry in enumerate(section.sections("mig"))),
    )
    if gpu.ids not in ("nvidia", "gke"):
        raise ScenarioError(f"{section.place}: ids is nvidia or gke, not {gpu.ids!r}")
    section.end()
    return gpu


def _mig(slot: int, section: _Section) -> MigDevice:
    device = MigDevice(
        gpu_instance=int(section.get("gpu_instance")),
        compute_instance=int(section.get("compute_instance", 0)),
        slot=int(section.get("slot", slot)),
        slices=int(section.get("slices", 1)),
        memory=section.bytes("memory"),
        overhead=section.bytes("overhead", "0B"),
    )
    section.end()
    return device


def _pods(section: _Section, gpus: tuple[Gpu, ...]) -> list[Pod]:
    """One pod, or with `count` so many alike, numbered."""
    count = int(section.get("count", 1))
    pod = Pod(
        namespace=str(section.get("namespace", "default")),
        name=str(section.get("name")),
        qos=str(section.get("qos", "burstable")),
        runtime=str(section.get("runtime", "containerd")),
        containers=tuple(_container(entry, gpus) for entry in section.sections("containers")),
        start=section.seconds("start", 0),
        end=section.seconds("end", float("inf")),
        labels=section.texts("labels"),
        annotations=section.texts("annotations"),
        owner=_owner(section),
        priority_class=str(section.get("priority_class", "")),
        memory_limit=_limit(section),
        gated=bool(section.get("gated", False)),
    )
    section.end()
    return [pod] if count == 1 else [replace(pod, name=f"{pod.name}-{number}") for number in range(count)]


def _enforcer(section: _Section) -> tuple[str, ...] | None:
    flags = section.optional("enforcer")
    if flags is None:
        return None
    if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
        raise ScenarioError(f"{section.place}: enforcer should be a list of flags, such as [--mode=enforce]")
    return tuple(flags)


def _owner(section: _Section) -> Owner | None:
    value = section.optional("owner")
    if value is None:
        return None
    given = _Section(f"{section.place}: owner", value)
    owner = Owner(str(given.get("kind")), str(given.get("name")), str(given.get("api_version", "apps/v1")))
    given.end()
    return owner


def _container(section: _Section, gpus: tuple[Gpu, ...]) -> Container:
    container = Container(
        name=str(section.get("name", "main")),
        holds=tuple(_held(entry, gpus) for entry in section.sections("holds")),
        claims=tuple(_claim(entry, gpus) for entry in section.sections("claims")),
        processes=tuple(_process(entry, gpus) for entry in section.sections("processes")),
        memory_limit=_limit(section),
    )
    section.end()
    return container


def _limit(section: _Section) -> int | None:
    value = section.optional("memory_limit")
    return None if value is None else _bytes(value, f"{section.place}: memory_limit")


def _held(section: _Section, gpus: tuple[Gpu, ...]) -> Held:
    instance = section.optional("gpu_instance")
    held = Held(
        gpu=_index(section, gpus),
        slots=int(section.get("slots", 1)),
        gpu_instance=None if instance is None else int(instance),
        compute_instance=int(section.get("compute_instance", 0)),
    )
    section.end()
    return held


def _claim(section: _Section, gpus: tuple[Gpu, ...]) -> Claim:
    name, device = str(section.get("name")), section.optional("device")
    if device is not None:
        claim = Claim(name, device=str(device))
    else:
        instance = section.optional("gpu_instance")
        claim = Claim(
            name,
            gpu=_index(section, gpus),
            gpu_instance=None if instance is None else int(instance),
            compute_instance=int(section.get("compute_instance", 0)),
        )
        if gpus[claim.gpu].sharing != "claims":
            raise ScenarioError(f"{section.place}: GPU {claim.gpu} is not given out by claims")
    section.end()
    return claim


def _process(section: _Section, gpus: tuple[Gpu, ...]) -> Process:
    gpu = _index(section, gpus)
    pipe = str(section.get("pipe", ""))
    usual = ["compute", "mps"] if gpus[gpu].sharing == "mps" and pipe != "none" else ["compute"]
    instance = section.optional("gpu_instance")
    process = Process(
        command=tuple(str(section.get("command", "python3 train.py")).split()),
        gpu=gpu,
        memory=_memory(section),
        lists=tuple(str(kind) for kind in section.get("lists", usual)),
        gpu_instance=None if instance is None else int(instance),
        compute_instance=int(section.get("compute_instance", 0)),
        start=section.seconds("start", 0),
        end=section.seconds("end", float("inf")),
        sm=_load(section),
        pipe=pipe,
        environ=section.texts("environ"),
        uid=int(section.get("uid", 0)),
    )
    section.end()
    return process


def _daemon(section: _Section, gpus: tuple[Gpu, ...]) -> Daemon:
    devices, limits = section.optional("devices"), section.get("limits", {})
    if not isinstance(limits, dict):
        raise ScenarioError(f"{section.place}: limits should be a mapping from ordinals to amounts")
    daemon = Daemon(
        pipe=str(section.get("pipe")),
        protocol=int(section.get("protocol", 2)),
        devices=None if devices is None else tuple(int(index) for index in devices),
        multiuser=section.truth("multiuser"),
        percentage=_share(section),
        limits={int(key): _bytes(value, f"{section.place}: limits") for key, value in limits.items()},
        servers=tuple(_server(entry) for entry in section.sections("servers")),
        managed=section.truth("managed"),
        restart_every=section.seconds("restart_every", 0.0),
    )
    if daemon.managed and daemon.restart_every:
        raise ScenarioError(f"{section.place}: a managed daemon is the enforcer's to start, and has no restart_every")
    if daemon.protocol not in (2, 3):
        raise ScenarioError(f"{section.place}: protocol is 2 or 3, not {daemon.protocol}")
    if daemon.protocol == 2 and daemon.servers:
        raise ScenarioError(f"{section.place}: only protocol 3 has named servers")
    if daemon.protocol == 3 and (daemon.percentage is not None or daemon.limits):
        raise ScenarioError(f"{section.place}: protocol 3 has a percentage and a limit in each namespace")
    if not set(daemon.devices or ()) <= set(range(len(gpus))):
        raise ScenarioError(f"{section.place}: devices names a GPU that is not there")
    section.end()
    return daemon


def _server(section: _Section) -> MpsServer:
    server = MpsServer(str(section.get("name")), tuple(_namespace(entry) for entry in section.sections("namespaces")))
    section.end()
    return server


def _namespace(section: _Section) -> MpsNamespace:
    limit = section.optional("limit")
    namespace = MpsNamespace(
        str(section.get("name")),
        percentage=_share(section),
        limit=None if limit is None else _bytes(limit, f"{section.place}: limit"),
    )
    section.end()
    return namespace


def _share(section: _Section) -> int | None:
    value = section.optional("percentage")
    return None if value is None else _percent(value, f"{section.place}: percentage")


def _index(section: _Section, gpus: tuple[Gpu, ...]) -> int:
    index = int(section.get("gpu", 0))
    if not 0 <= index < len(gpus):
        raise ScenarioError(f"{section.place}: there is no GPU {index}")
    return index


def _memory(section: _Section) -> Memory | None:
    value = section.get("memory")
    if value == "unknown":
        return None
    if isinstance(value, dict):
        wave = _Section(f"{section.place}: memory", value)
        memory = Memory(wave.bytes("from"), wave.bytes("to"), wave.seconds("period", 60.0))
        wave.end()
        return memory
    constant = _bytes(value, f"{section.place}: memory")
    return Memory(constant, constant)


def _load(section: _Section) -> Load:
    value = section.get("sm", 0)
    if isinstance(value, dict):
        wave = _Section(f"{section.place}: sm", value)
        load = Load(
            _percent(wave.get("from"), f"{wave.place}: from"),
            _percent(wave.get("to"), f"{wave.place}: to"),
            wave.seconds("period", 60.0),
        )
        wave.end()
        return load
    constant = _percent(value, f"{section.place}: sm")
    return Load(constant, constant)


def _percent(value: object, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 100:
        raise ScenarioError(f"{place} is a percentage such as 40, not {value!r}")
    return value
