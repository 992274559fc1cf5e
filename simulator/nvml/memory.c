/* How much memory a device has and how much of it is taken. */
#include "call.h"

/* A GPU under MIG tells its totals only to a caller with the MIG monitor capability; a MIG device always does. */
static nvmlReturn_t memory_call(Call *call, Symbol symbol, nvmlDevice_t device, Memory *memory)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    if (code != NVML_SUCCESS)
        return code;
    if (call->mig == NULL && call->gpu->mig_current == 1 && !call->state->privileged)
        return NVML_ERROR_NO_PERMISSION;
    if (!call->gpu->has_memory)
        return NVML_ERROR_NOT_SUPPORTED;
    *memory = call->mig != NULL ? call->mig->memory : call->gpu->memory;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    Call call;
    Memory memory;
    nvmlReturn_t code = memory_call(&call, SYM_nvmlDeviceGetMemoryInfo, device, &memory);
    if (code == NVML_SUCCESS && out == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) /* the first version knows no reserved memory: it counts as used */
        *out = (nvmlMemory_t){.total = memory.total, .free = memory.free, .used = memory.total - memory.free};
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    Call call;
    Memory memory;
    nvmlReturn_t code = memory_call(&call, SYM_nvmlDeviceGetMemoryInfo_v2, device, &memory);
    if (code == NVML_SUCCESS && out == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && out->version != VERSION_WORD(nvmlMemory_v2_t, 2))
        code = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (code == NVML_SUCCESS) {
        out->total = memory.total;
        out->reserved = memory.reserved;
        out->free = memory.free;
        out->used = memory.used;
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    Call call;
    Memory memory;
    nvmlReturn_t code = memory_call(&call, SYM_nvmlDeviceGetBAR1MemoryInfo, device, &memory);
    if (code == NVML_SUCCESS && out == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) /* a window as large as the memory, with next to nothing mapped */
        *out = (nvmlBAR1Memory_t){.bar1Total = memory.total, .bar1Free = memory.total, .bar1Used = 0};
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device, nvmlConfComputeMemSizeInfo_t *out)
{
    Call call;
    Memory memory;
    nvmlReturn_t code = memory_call(&call, SYM_nvmlDeviceGetConfComputeMemSizeInfo, device, &memory);
    if (code == NVML_SUCCESS && out == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && call.gpu->confidential == VALUE_UNKNOWN)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS) {
        out->protectedMemSizeKib = call.gpu->confidential >> 10;
        out->unprotectedMemSizeKib = (memory.total - call.gpu->confidential) >> 10;
    }
    return call_end(&call, code);
}
