/* Finding devices, and what they are called: GPUs and MIG devices. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "call.h"

/* NVIDIA's vendor number below the device number of an H100. */
#define PCI_DEVICE 0x233010deu

static nvmlReturn_t count(Symbol symbol, unsigned *out)
{
    Call call;
    nvmlReturn_t code = call_system(&call, symbol);
    return answer_number(&call, code, (unsigned)call.state->gpu_count, out);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned *out)
{
    return count(SYM_nvmlDeviceGetCount, out);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out)
{
    return count(SYM_nvmlDeviceGetCount_v2, out);
}

static Target find_index(const State *state, const void *key)
{
    unsigned index = *(const unsigned *)key;
    return index < state->gpu_count ? (Target){.gpu = &state->gpus[index]} : (Target){0};
}

static Target find_uuid(const State *state, const void *key)
{
    const char *uuid = key;
    for (size_t i = 0; uuid != NULL && i < state->gpu_count; i++) {
        const Gpu *gpu = &state->gpus[i];
        if (strcmp(gpu->uuid, uuid) == 0)
            return (Target){.gpu = gpu};
        for (size_t j = 0; gpu->mig_current == 1 && j < gpu->mig_count; j++) {
            const MigDevice *mig = &gpu->migs[j];
            char old[160]; /* how MIG devices were called before R470 */
            snprintf(old, sizeof old, "MIG-%s/%u/%u", gpu->uuid, mig->gi, mig->ci);
            if (strcmp(mig->uuid, uuid) == 0 || strcmp(old, uuid) == 0)
                return (Target){.gpu = gpu, .mig = mig};
        }
    }
    return (Target){0};
}

static Target find_bus(const State *state, const void *key)
{
    unsigned domain, bus, device;
    if (key == NULL || sscanf(key, "%x:%x:%x", &domain, &bus, &device) != 3)
        return (Target){0};
    for (size_t i = 0; i < state->gpu_count; i++) {
        const Gpu *gpu = &state->gpus[i];
        if (gpu->domain == domain && gpu->bus == bus && gpu->device == device)
            return (Target){.gpu = gpu};
    }
    return (Target){0};
}

static nvmlReturn_t search(Symbol symbol, Finder find, const void *key, nvmlReturn_t none, nvmlDevice_t *out)
{
    Call call;
    nvmlReturn_t code = call_search(&call, symbol, find, key);
    if (code == NVML_SUCCESS && (key == NULL || out == NULL))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && call.gpu == NULL)
        code = none;
    if (code == NVML_SUCCESS)
        *out = handle_of(call.mig != NULL ? call.mig->identity : call.gpu->identity);
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return search(SYM_nvmlDeviceGetHandleByIndex, find_index, &index, NVML_ERROR_INVALID_ARGUMENT, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    return search(SYM_nvmlDeviceGetHandleByIndex_v2, find_index, &index, NVML_ERROR_INVALID_ARGUMENT, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return search(SYM_nvmlDeviceGetHandleByUUID, find_uuid, uuid, NVML_ERROR_NOT_FOUND, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
    return search(SYM_nvmlDeviceGetHandleByPciBusId_v2, find_bus, bus, NVML_ERROR_NOT_FOUND, device);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetUUID, device);
    if (code == NVML_SUCCESS)
        code = answer_text(call.mig != NULL ? call.mig->uuid : call.gpu->uuid, uuid, size);
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
    Call call;
    char whole[192];
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetName, device);
    if (code == NVML_SUCCESS) {
        snprintf(whole, sizeof whole, "%s", call.gpu->name);
        if (call.mig != NULL) {
            char part[16] = ""; /* a compute instance that has only some slices of its GPU instance says so */
            if (call.mig->slices < call.mig->instance_slices)
                snprintf(part, sizeof part, "%uc.", call.mig->slices);
            snprintf(whole, sizeof whole, "%s MIG %s%s", call.gpu->name, part, call.mig->profile);
        }
        code = answer_text(whole, name, size);
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetIndex, device);
    unsigned value = code != NVML_SUCCESS ? 0 : call.mig != NULL ? call.mig->slot : call.gpu->index;
    return answer_number(&call, code, value, index);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetMinorNumber, device);
    if (code == NVML_SUCCESS && (call.mig != NULL || call.gpu->minor < 0))
        code = NVML_ERROR_NOT_SUPPORTED;
    return answer_number(&call, code, code == NVML_SUCCESS ? (unsigned)call.gpu->minor : 0, minor);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetPciInfo_v3, device);
    if (code == NVML_SUCCESS && pci == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) {
        const Gpu *gpu = call.gpu;
        *pci = (nvmlPciInfo_t){
            .domain = gpu->domain, .bus = gpu->bus, .device = gpu->device, .pciDeviceId = PCI_DEVICE};
        memcpy(pci->busId, gpu->bus_id, sizeof pci->busId);
        snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->domain & 0xffffu,
                 gpu->bus & 0xffu, gpu->device & 0xffu);
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetCudaComputeCapability, device);
    if (code == NVML_SUCCESS && (major == NULL || minor == NULL))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) {
        *major = (int)call.gpu->major_capability;
        *minor = (int)call.gpu->minor_capability;
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode)
{
    Call call;
    nvmlReturn_t code = call_device(&call, SYM_nvmlDeviceGetPersistenceMode, device);
    return answer_number(&call, code, code == NVML_SUCCESS ? call.gpu->persistence : 0, mode);
}
