/* MIG: the mode of a GPU, its MIG devices by slot, and what each of them is. */
#include "call.h"

#define MIG_SLOTS 7u

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetMigMode, device);
    if (code == NVML_SUCCESS && (call.mig != NULL || current == NULL || pending == NULL))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && call.gpu->mig_current < 0)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS) {
        *current = (unsigned)call.gpu->mig_current;
        *pending = (unsigned)call.gpu->mig_pending;
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetMaxMigDeviceCount, device);
    if (code == NVML_SUCCESS && call.mig != NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    return answer_number(&call, code, code == NVML_SUCCESS && call.gpu->mig_current == 1 ? MIG_SLOTS : 0, count);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned slot, nvmlDevice_t *mig)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetMigDeviceHandleByIndex, device);
    if (code == NVML_SUCCESS && (call.mig != NULL || mig == NULL || slot >= MIG_SLOTS))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && call.gpu->mig_current < 0)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS) {
        code = NVML_ERROR_NOT_FOUND;
        for (size_t i = 0; call.gpu->mig_current == 1 && i < call.gpu->mig_count; i++) {
            if (call.gpu->migs[i].slot == slot) {
                *mig = handle_of(call.gpu->migs[i].identity);
                code = NVML_SUCCESS;
            }
        }
    }
    return call_end(&call, code);
}

/* A call that only a MIG device answers. */
static nvmlReturn_t mig_call(Call *call, Symbol symbol, nvmlDevice_t device)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    return code == NVML_SUCCESS && call->mig == NULL ? NVML_ERROR_INVALID_ARGUMENT : code;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
    Call call;
    nvmlReturn_t code = mig_call(&call, SYM_nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig);
    if (code == NVML_SUCCESS && device == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *device = handle_of(call.gpu->identity);
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *answer)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceIsMigDeviceHandle, device);
    return answer_number(&call, code, call.mig != NULL, answer);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    Call call;
    nvmlReturn_t code = mig_call(&call, SYM_nvmlDeviceGetGpuInstanceId, device);
    return answer_number(&call, code, code == NVML_SUCCESS ? call.mig->gi : 0, id);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    Call call;
    nvmlReturn_t code = mig_call(&call, SYM_nvmlDeviceGetComputeInstanceId, device);
    return answer_number(&call, code, code == NVML_SUCCESS ? call.mig->ci : 0, id);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    Call call;
    nvmlReturn_t code = mig_call(&call, SYM_nvmlDeviceGetAttributes_v2, device);
    if (code == NVML_SUCCESS && attributes == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) {
        *attributes = (nvmlDeviceAttributes_t){
            .multiprocessorCount = call.mig->multiprocessors,
            .sharedCopyEngineCount = call.mig->instance_slices,
            .gpuInstanceSliceCount = call.mig->instance_slices,
            .computeInstanceSliceCount = call.mig->slices,
            .memorySizeMB = call.mig->memory.total >> 20,
        };
    }
    return call_end(&call, code);
}
