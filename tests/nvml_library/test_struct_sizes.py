"""Our struct layouts against NVIDIA's own header, as the C compiler sees both."""

import importlib.metadata
import subprocess
from pathlib import Path

import pytest

from simulator.nvml import library

STRUCTS = {
    "nvmlPciInfo_t": "busIdLegacy domain bus device pciDeviceId pciSubSystemId busId",
    "nvmlMemory_t": "total free used",
    "nvmlMemory_v2_t": "version total reserved free used",
    "nvmlBAR1Memory_t": "bar1Total bar1Free bar1Used",
    "nvmlConfComputeMemSizeInfo_t": "protectedMemSizeKib unprotectedMemSizeKib",
    "nvmlUtilization_t": "gpu memory",
    "nvmlProcessInfo_v1_t": "pid usedGpuMemory",
    "nvmlProcessInfo_v2_t": "pid usedGpuMemory gpuInstanceId computeInstanceId",
    "nvmlProcessDetail_v1_t": "pid usedGpuMemory gpuInstanceId computeInstanceId usedGpuCcProtectedMemory",
    "nvmlProcessDetailList_v1_t": "version mode numProcArrayEntries procArray",
    "nvmlDeviceAttributes_t": (
        "multiprocessorCount sharedCopyEngineCount sharedDecoderCount sharedEncoderCount sharedJpegCount "
        "sharedOfaCount gpuInstanceSliceCount computeInstanceSliceCount memorySizeMB"
    ),
    "nvmlProcessUtilizationSample_t": "pid timeStamp smUtil memUtil encUtil decUtil",
    "nvmlProcessUtilizationInfo_v1_t": "timeStamp pid smUtil memUtil encUtil decUtil jpgUtil ofaUtil",
    "nvmlProcessesUtilizationInfo_v1_t": "version processSamplesCount lastSeenTimeStamp procUtilArray",
    "nvmlSetMemoryLimits_v1_t": "nameSpace softLimit hardLimit",
    "nvmlGetMemoryLimits_v1_t": "nameSpace softLimit hardLimit currentUsed",
}
CODES = [
    "NVML_SUCCESS",
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INSUFFICIENT_SIZE",
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_OPERATING_SYSTEM",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_UNKNOWN",
]


def nvidia_header() -> Path:
    (header,) = (file for file in importlib.metadata.files("nvidia-nvml-dev") if file.name == "nvml.h")
    return Path(header.locate())


def layout(header: Path, directory: Path, versions: str) -> str:
    prints = []
    for struct, fields in STRUCTS.items():
        prints.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        for field in fields.split():
            sizes = f"offsetof({struct}, {field}), sizeof((({struct} *)0)->{field})"
            prints.append(f'printf("{struct}.{field} %zu %zu\\n", {sizes});')
    prints += [f'printf("{code} %d\\n", (int){code});' for code in CODES]
    prints.append(f'printf("versions %x %x %x\\n", {versions});')
    source = directory / "layout.c"
    body = "\n".join(prints)
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\nint main(void) {{\n{body}\nreturn 0; }}\n'
    )
    program = directory / "layout"
    subprocess.run(["gcc", "-w", "-o", str(program), str(source)], check=True)
    return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def directories(tmp_path):
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    return tmp_path / "ours", tmp_path / "theirs"


def test_our_layouts_are_those_of_nvidias_header(directories):
    ours = layout(
        Path(library.__file__).with_name("api.h"),
        directories[0],
        "VERSION_WORD(nvmlMemory_v2_t, 2), VERSION_WORD(nvmlProcessDetailList_v1_t, 1), "
        "VERSION_WORD(nvmlProcessesUtilizationInfo_v1_t, 1)",
    )
    theirs = layout(
        nvidia_header(),
        directories[1],
        "(unsigned)nvmlMemory_v2, (unsigned)nvmlProcessDetailList_v1, (unsigned)nvmlProcessesUtilizationInfo_v1",
    )
    assert ours == theirs
    assert "nvmlProcessInfo_v1_t 16\n" in ours
    assert "nvmlProcessInfo_v2_t 24\n" in ours
    assert "nvmlProcessDetail_v1_t 32\n" in ours
    assert "versions 2000028 1000018 1000018\n" in ours


def test_every_struct_of_our_header_is_compared():
    header = Path(library.__file__).with_name("api.h").read_text()
    declared = {line.strip("} ;") for line in header.splitlines() if line.startswith("} nvml")}
    assert declared == STRUCTS.keys()
