/*
 * Memory limits by (GPU, cgroup directory): nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1.
 *
 * What both backends share: the checks that come before either is asked. The order of the checks is a guess.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"
#include "limits.h"

int limits_lock(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.limits.lock", state_path());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0 && flock(file, LOCK_EX) != 0) {
        close(file);
        return -1;
    }
    return file;
}

bool to_parent(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return false;
    *slash = '\0';
    return true;
}

static nvmlReturn_t limits_call(Call *call, Symbol symbol, nvmlDevice_t device)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    if (code != NVML_SUCCESS)
        return code;
    bool mig = call->mig != NULL || call->gpu->mig_current == 1;
    return mig || call->state->limits == LIMITS_OFF ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static nvmlReturn_t directory(const char *path)
{
    struct stat status;
    if (path == NULL || strlen(path) >= PATH_SIZE)
        return NVML_ERROR_INVALID_ARGUMENT;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    Call call;
    nvmlReturn_t code = limits_call(&call, SYM_nvmlDeviceSetMemoryLimits_v1, device);
    if (code == NVML_SUCCESS && limits == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && !call.state->may_limit)
        code = NVML_ERROR_NO_PERMISSION;
    if (code == NVML_SUCCESS) {
        uint64_t total = call.gpu->has_memory ? call.gpu->memory.total : NO_LIMIT;
        bool hard = limits->hardLimit == NO_LIMIT || limits->hardLimit <= total;
        if (!hard || limits->softLimit > total || limits->softLimit > limits->hardLimit)
            code = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (code == NVML_SUCCESS)
        code = directory(limits->nameSpace);
    if (code == NVML_SUCCESS)
        code = (call.state->limits == LIMITS_DMEM ? dmem_set : misc_set)(
            call.gpu, limits->nameSpace, limits->softLimit, limits->hardLimit);
    return call_end(&call, code);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    Call call;
    nvmlReturn_t code = limits_call(&call, SYM_nvmlDeviceGetMemoryLimits_v1, device);
    if (code == NVML_SUCCESS && limits == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        code = directory(limits->nameSpace);
    if (code == NVML_SUCCESS) {
        nvmlGetMemoryLimits_v1_t found = *limits;
        code = (call.state->limits == LIMITS_DMEM ? dmem_get : misc_get)(call.gpu, limits->nameSpace, &found);
        if (code == NVML_SUCCESS)
            *limits = found;
    }
    return call_end(&call, code);
}
