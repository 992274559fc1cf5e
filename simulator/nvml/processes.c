/*
 * Process lists and utilisation.
 *
 * All row layouts are prefixes of one another, so one copy serves every version of the calls.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"

/* The kernel stops here and says so only in its log. */
#define MOST_ROWS 950u
#define FIRST_DRIVER_WITH_MODE_ALL 610

_Static_assert(offsetof(nvmlProcessInfo_v1_t, usedGpuMemory) == offsetof(Row, usedGpuMemory), "v1 is a prefix");
_Static_assert(offsetof(nvmlProcessInfo_v2_t, computeInstanceId) == offsetof(Row, computeInstanceId), "v2 is a prefix");

/* With NVML_MPS_DEVICE_ENUMERATION=1 the library shows locality domains, and these have neither lists nor samples. */
static bool locality_view(void)
{
    const char *value = getenv("NVML_MPS_DEVICE_ENUMERATION");
    return value != NULL && strcmp(value, "1") == 0;
}

static nvmlReturn_t copy_rows(const Call *call, int kind, uint32_t *count, void *out, size_t row_bytes)
{
    const RowList *list = call->mig != NULL ? &call->mig->lists[kind] : &call->gpu->lists[kind];
    size_t visible = list->count > MOST_ROWS ? MOST_ROWS : list->count;
    visible -= call->hidden < visible ? call->hidden : visible;
    size_t capacity = *count;
    *count = (uint32_t)visible;
    if (capacity < visible)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (visible > 0 && out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (size_t i = 0; i < visible; i++)
        memcpy((char *)out + i * row_bytes, &list->rows[i], row_bytes);
    return NVML_SUCCESS;
}

static nvmlReturn_t list_call(Call *call, Symbol symbol, nvmlDevice_t device, int kind)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    if (code != NVML_SUCCESS)
        return code;
    if (locality_view() || (kind == LIST_MPS && call->gpu->major_capability < 7))
        return NVML_ERROR_NOT_SUPPORTED;
    if (call->mig == NULL && call->gpu->mig_current == 1 && !call->state->privileged)
        return NVML_ERROR_NO_PERMISSION;
    return NVML_SUCCESS;
}

static nvmlReturn_t process_list(Symbol symbol, int kind, size_t row_bytes, nvmlDevice_t device, unsigned *count,
                                 void *out)
{
    Call call;
    nvmlReturn_t code = list_call(&call, symbol, device, kind);
    if (code == NVML_SUCCESS && count == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        code = copy_rows(&call, kind, count, out, row_bytes != 0 ? row_bytes : call.state->v3_row_bytes);
    return call_end(&call, code);
}

/* The size of a _v3 row is a property of the driver, so it comes from the state (0 here). */
#define PROCESS_LIST(name, kind, row_bytes) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *out) \
    { \
        return process_list(SYM_##name, kind, row_bytes, device, count, out); \
    }

PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses, LIST_COMPUTE, sizeof(nvmlProcessInfo_v1_t))
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, LIST_COMPUTE, sizeof(nvmlProcessInfo_v2_t))
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, LIST_COMPUTE, 0)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses, LIST_GRAPHICS, sizeof(nvmlProcessInfo_v1_t))
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, LIST_GRAPHICS, sizeof(nvmlProcessInfo_v2_t))
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, LIST_GRAPHICS, 0)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses, LIST_MPS, sizeof(nvmlProcessInfo_v1_t))
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, LIST_MPS, sizeof(nvmlProcessInfo_v2_t))
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, LIST_MPS, 0)

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *list)
{
    Call call;
    nvmlReturn_t code = list_call(&call, SYM_nvmlDeviceGetRunningProcessDetailList, device, LIST_ALL);
    if (code == NVML_SUCCESS && list == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && list->version != VERSION_WORD(nvmlProcessDetailList_v1_t, 1))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && call.gpu->major_capability < 9)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS) {
        bool all = atoi(call.state->driver_version) >= FIRST_DRIVER_WITH_MODE_ALL;
        if (list->mode > (all ? LIST_ALL : LIST_MPS))
            code = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (code == NVML_SUCCESS)
        code = copy_rows(&call, (int)list->mode, &list->numProcArrayEntries, list->procArray, sizeof(Row));
    return call_end(&call, code);
}

/* Utilisation belongs to whole GPUs without MIG. */
static nvmlReturn_t utilization_call(Call *call, Symbol symbol, nvmlDevice_t device)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    if (code == NVML_SUCCESS && (call->mig != NULL || call->gpu->mig_current == 1 || locality_view()))
        code = NVML_ERROR_NOT_SUPPORTED;
    return code;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    Call call;
    nvmlReturn_t code = utilization_call(&call, SYM_nvmlDeviceGetUtilizationRates, device);
    if (code == NVML_SUCCESS && out == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && (call.gpu->gpu_utilization < 0 || call.gpu->memory_utilization < 0))
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS)
        *out = (nvmlUtilization_t){.gpu = (uint32_t)call.gpu->gpu_utilization,
                                   .memory = (uint32_t)call.gpu->memory_utilization};
    return call_end(&call, code);
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Answers whether the sample is newer than `seen` (0: all are), and leaves it in `values` with the time it has now. */
static bool newer_sample(const Sample *sample, uint64_t now, uint64_t seen, nvmlProcessUtilizationInfo_v1_t *values)
{
    *values = sample->values;
    if (sample->relative)
        values->timeStamp = now - sample->values.timeStamp;
    return values->timeStamp > seen || seen == 0;
}

/* How many samples are newer than `seen`, checked against the caller's room; leaves the number in `count`. */
static nvmlReturn_t newer_samples(const Gpu *gpu, uint64_t now, uint64_t seen, const void *out, uint32_t *count)
{
    uint32_t capacity = out != NULL ? *count : 0;
    nvmlProcessUtilizationInfo_v1_t unused;
    *count = 0;
    for (size_t i = 0; i < gpu->sample_count; i++)
        *count += newer_sample(&gpu->samples[i], now, seen, &unused);
    if (*count == 0)
        return NVML_ERROR_NOT_FOUND;
    return capacity < *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned *count,
                                             unsigned long long seen)
{
    Call call;
    nvmlReturn_t code = utilization_call(&call, SYM_nvmlDeviceGetProcessUtilization, device);
    if (code == NVML_SUCCESS && count == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    uint64_t now = now_us();
    if (code == NVML_SUCCESS)
        code = newer_samples(call.gpu, now, seen, out, count);
    for (size_t i = 0; code == NVML_SUCCESS && i < call.gpu->sample_count; i++) {
        nvmlProcessUtilizationInfo_v1_t sample;
        if (!newer_sample(&call.gpu->samples[i], now, seen, &sample))
            continue;
        *out++ = (nvmlProcessUtilizationSample_t){
            .pid = sample.pid,
            .timeStamp = sample.timeStamp,
            .smUtil = sample.smUtil,
            .memUtil = sample.memUtil,
            .encUtil = sample.encUtil,
            .decUtil = sample.decUtil,
        };
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info)
{
    Call call;
    nvmlReturn_t code = utilization_call(&call, SYM_nvmlDeviceGetProcessesUtilizationInfo, device);
    if (code == NVML_SUCCESS && info == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && info->version != VERSION_WORD(nvmlProcessesUtilizationInfo_v1_t, 1))
        code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    uint64_t now = now_us();
    if (code == NVML_SUCCESS)
        code = newer_samples(call.gpu, now, info->lastSeenTimeStamp, info->procUtilArray, &info->processSamplesCount);
    nvmlProcessUtilizationInfo_v1_t *out = code == NVML_SUCCESS ? info->procUtilArray : NULL;
    for (size_t i = 0; out != NULL && i < call.gpu->sample_count; i++) {
        nvmlProcessUtilizationInfo_v1_t sample;
        if (newer_sample(&call.gpu->samples[i], now, info->lastSeenTimeStamp, &sample))
            *out++ = sample;
    }
    return call_end(&call, code);
}
