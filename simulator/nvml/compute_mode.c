/*
 * The compute mode: who may make contexts on a GPU.
 *
 * The state gives the mode that a GPU has at first. One that a program sets is kept beside the state, in
 * "<state file>.compute_mode.<uuid>", so that every process sees it.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "call.h"

#define EXCLUSIVE_THREAD 1 /* no driver of today has it */
#define MODES 4

static bool side_file(char *out, size_t size, const Gpu *gpu, const char *suffix)
{
    int length = snprintf(out, size, "%s.compute_mode.%s%s", state_path(), gpu->uuid, suffix);
    return strchr(gpu->uuid, '/') == NULL && length > 0 && (size_t)length < size;
}

static unsigned current(const Gpu *gpu)
{
    char path[4200];
    unsigned mode = gpu->compute_mode;
    FILE *file = side_file(path, sizeof path, gpu, "") ? fopen(path, "re") : NULL;
    if (file != NULL) {
        if (fscanf(file, "%u", &mode) != 1)
            mode = gpu->compute_mode;
        fclose(file);
    }
    return mode;
}

static bool keep(const Gpu *gpu, unsigned mode)
{
    char path[4200], fresh[4200];
    if (!side_file(path, sizeof path, gpu, "") || !side_file(fresh, sizeof fresh, gpu, ".new"))
        return false;
    FILE *file = fopen(fresh, "we");
    if (file == NULL)
        return false;
    bool written = fprintf(file, "%u\n", mode) > 0;
    return fclose(file) == 0 && written && rename(fresh, path) == 0;
}

/* Under MIG the mode belongs to the MIG devices, and only they answer. */
static nvmlReturn_t mode_call(Call *call, Symbol symbol, nvmlDevice_t device)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    bool whole = code == NVML_SUCCESS && call->mig == NULL && call->gpu->mig_current == 1;
    return whole ? NVML_ERROR_NOT_SUPPORTED : code;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode)
{
    Call call;
    nvmlReturn_t code = mode_call(&call, SYM_nvmlDeviceGetComputeMode, device);
    return answer_number(&call, code, code == NVML_SUCCESS ? current(call.gpu) : 0, mode);
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode)
{
    Call call;
    nvmlReturn_t code = mode_call(&call, SYM_nvmlDeviceSetComputeMode, device);
    if (code == NVML_SUCCESS && mode >= MODES)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && (call.mig != NULL || mode == EXCLUSIVE_THREAD))
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS && !call.state->may_limit)
        code = NVML_ERROR_NO_PERMISSION;
    if (code == NVML_SUCCESS && !keep(call.gpu, mode))
        code = NVML_ERROR_UNKNOWN;
    return call_end(&call, code);
}
