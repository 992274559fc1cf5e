import pytest

from exporter.caps.contract import read
from exporter.model import PodContainer

PAIR = (PodContainer("trainer"), PodContainer("trainer.x"))
P = "nvidia.com/container.trainer."


@pytest.mark.parametrize(
    ("key", "container", "reason", "says"),
    [
        (f"{P}gpu-mem.limit", "trainer", "unknown_suffix", ".gpu-memory.limit"),
        (f"{P}gpu-memory.limits", "trainer", "unknown_suffix", ".gpu-memory.limit"),
        (f"{P}gpu-memory", "trainer", "unknown_suffix", ".gpu-memory"),
        (f"{P}xyz", "trainer", "unknown_suffix", "known are"),
        (P, "trainer", "unknown_suffix", "known are"),
        ("nvidia.com/container.trainer.x.gpu-mem.limit", "trainer.x", "unknown_suffix", ".gpu-memory.limit"),
        ("nvidia.com/container.worker.gpu-mem.limit", "", "unknown_suffix", ".gpu-memory.limit"),
        ("nvidia.com/container.worker.gpu-memory.limit", "", "unknown_container", "'trainer', 'trainer.x'"),
        ("podgpu.io/container.worker.active-thread-percentage", "", "unknown_container", "'trainer'"),
        ("nvidia.com/container.gpu-memory.limit", "", "unknown_container", "container's name"),
        (
            f"{P}gpu-memory.portion.limit",
            "trainer",
            "wrong_prefix",
            "kai.scheduler/container.trainer.gpu-memory.portion",
        ),
        (f"{P}active-thread-percentage", "trainer", "wrong_prefix", "podgpu.io/container.trainer.active-thread"),
        ("podgpu.io/container.trainer.gpu-memory.limit", "trainer", "wrong_prefix", f"{P}gpu-memory.limit"),
        ("kai.scheduler/container.trainer.gpu-memory.limit", "trainer", "wrong_prefix", f"{P}gpu-memory.limit"),
        ("container.trainer.gpu-memory.limit", "", "wrong_prefix", f"{P}gpu-memory.limit"),
        ("nvidia.com/containers.trainer.gpu-memory.limit", "", "wrong_prefix", f"{P}gpu-memory.limit"),
        ("nvida.com/container.trainer.gpu-memory.limit", "", "wrong_prefix", f"{P}gpu-memory.limit"),
        ("nvidia.com/Container.trainer.gpu-memory.limit", "", "wrong_case", f"{P}gpu-memory.limit"),
        (f"{P}gpu-memory.Limit", "", "wrong_case", f"{P}gpu-memory.limit"),
        ("GPU-Fraction", "", "wrong_case", "write gpu-fraction"),
        ("gpu-memory ", "", "wrong_case", "write gpu-memory"),
        ("podgpu.io/On-Overrun", "", "wrong_case", "write podgpu.io/on-overrun"),
        ("nvidia.com/trainer.gpu-memory.limit", "", "misspelt_key", "not read"),
        ("nvidia.com/gpu.memory", "", "misspelt_key", "gpu-memory"),
        ("nvidia.com/gpu-memory", "", "wrong_prefix", "write gpu-memory"),
        ("kai.scheduler/gpu-fraction", "", "wrong_prefix", "write gpu-fraction"),
        ("run.ai/gpu-fraction", "", "wrong_prefix", "write gpu-fraction"),
        ("gpu-compute-sharing-mode", "", "wrong_prefix", "write kai.scheduler/gpu-compute-sharing-mode"),
        ("on-overrun", "", "wrong_prefix", "write podgpu.io/on-overrun"),
        ("podgpu.com/on-overrun", "", "wrong_prefix", "write podgpu.io/on-overrun"),
        ("gpu-fracton", "", "misspelt_key", "gpu-fraction"),
        ("gpufraction", "", "misspelt_key", "gpu-fraction"),
        ("gpu_fraction", "", "misspelt_key", "gpu-fraction"),
        ("gpu-memroy", "", "misspelt_key", "gpu-memory"),
        ("gpu-memory-limit", "", "misspelt_key", "gpu-memory.limit"),
        ("gpu-memory.request", "", "misspelt_key", ".gpu-memory.request"),
        ("gpu-fraction-container", "", "misspelt_key", "not read"),
        ("gpu-mem", "", "misspelt_key", "not read"),
        ("podgpu.io/on-overun", "", "misspelt_key", "podgpu.io/on-overrun"),
        ("podgpu.io/anything", "", "misspelt_key", "not read"),
    ],
)
def test_a_key_that_nearly_matches_is_an_error_and_never_a_cap(key, container, reason, says):
    caps = read({key: "1Gi"}, PAIR)
    (error,) = caps.errors
    assert (error.container, error.key, error.reason) == (container, key, reason)
    assert error.sentence.startswith(key)
    assert says in error.sentence
    assert not caps.requests


@pytest.mark.parametrize(
    "key",
    [
        "hami.io/vgpu-devices-allocated",
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/bind-phase",
        "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",
        "nvidia.com/use-gputype",
        "nvidia.com/gpu.deploy.client",
        "volcano.sh/gpu-memory",
        "volcano.sh/vgpu-ids-new",
        "volcano.sh/gpu-index",
        "tencent.com/predicate-gpu-idx-0",
        "tencent.com/vcuda-memory",
        "ALIYUN_COM_GPU_MEM_IDX",
        "ALIYUN_COM_GPU_MEM_POD",
        "runai/shared-gpu-configmap",
        "run.ai/reserve_for_gpu_index",
        "kai.scheduler/skip-podgrouper",
        "kai.scheduler/numa-placement-predicted",
        "pod-group-name",
        "kubernetes.io/config.hash",
        "kubernetes.io/config.source",
        "prometheus.io/scrape",
        "checksum/config",
        "container.apparmor.security.beta.kubernetes.io/trainer",
        "cni.projectcalico.org/podIP",
        "kubectl.kubernetes.io/default-container",
        "sidecar.istio.io/status",
        "team",
        "job",
        "gpu-team",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
    ],
)
def test_the_keys_of_others_are_left_alone(key):
    assert read({key: "1"}, PAIR).errors == ()


def test_under_another_prefix_the_usual_one_is_wrong():
    caps = read({f"{P}gpu-memory.limit": "1Gi"}, PAIR, prefix="acme.io/c.")
    assert [(error.reason, error.key) for error in caps.errors] == [("wrong_prefix", f"{P}gpu-memory.limit")]
    assert "acme.io/c.trainer.gpu-memory.limit" in caps.errors[0].sentence
    assert not caps.requests


def test_a_near_miss_leaves_the_right_keys_in_force():
    caps = read({f"{P}gpu-memory.request": "4Gi", f"{P}gpu-mem.limit": "8Gi"}, PAIR)
    assert caps.of("trainer").limit == 4 << 30
    assert [error.reason for error in caps.errors] == ["unknown_suffix"]


def test_sentences_are_short_and_printable_whatever_a_tenant_writes():
    hostile = "\x1b[31m" + "\u202e" * 5000
    caps = read(
        {f"{P}gpu-memory.limit": hostile, f"{P}\x07{'x' * 200}": "1", "nvidia.com/container.é.gpu-memory.limit": "1"},
        PAIR,
    )
    assert len(caps.errors) == 3
    for error in caps.errors:
        assert len(error.sentence) < 1000
        assert error.sentence.isascii()
        assert error.sentence.isprintable()
        assert error.key.isprintable()
        assert error.container in {"", "trainer"}


def test_which_of_too_many_keys_are_compared_does_not_depend_on_their_order():
    keys = [f"gpu-memory-{n:04}" for n in range(400)]
    assert read(dict.fromkeys(keys, "1"), PAIR) == read(dict.fromkeys(reversed(keys), "1"), PAIR)
