/* The library's life cycle, versions, error texts, process names; and the stubs of everything unsupported. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "call.h"

/* library.py finds a library that is already built by this text in it. */
__attribute__((used)) static const char build_key[] = "podgpu build " BUILD_KEY;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned users;
static bool ever;

bool library_initialised(void)
{
    return atomic_load(&users) > 0;
}

static nvmlReturn_t initialise(Symbol symbol)
{
    pthread_mutex_lock(&lock);
    if (users == 0) {
        state_watch(getenv("PODGPU_SIM_NVML_STATE"));
        counters_open(getenv("PODGPU_SIM_NVML_COUNTERS"));
    }
    pthread_mutex_unlock(&lock);
    /* Outside the lock: a fault may let this call hang, and it must not take the other threads along. */
    Call call;
    nvmlReturn_t code = call_init(&call, symbol);
    if (code == NVML_SUCCESS) {
        pthread_mutex_lock(&lock);
        users++;
        ever = true;
        pthread_mutex_unlock(&lock);
    }
    return call_end(&call, code);
}

nvmlReturn_t nvmlInit(void)
{
    return initialise(SYM_nvmlInit);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return initialise(SYM_nvmlInit_v2);
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* they only spare work that a simulation does not do */
    return initialise(SYM_nvmlInitWithFlags);
}

nvmlReturn_t nvmlShutdown(void)
{
    Call call;
    nvmlReturn_t code = call_system(&call, SYM_nvmlShutdown);
    if (code == call.state->error)
        code = NVML_SUCCESS; /* giving the library back works without a driver too */
    pthread_mutex_lock(&lock);
    if (code == NVML_SUCCESS && !ever)
        code = NVML_ERROR_UNINITIALIZED;
    if (code == NVML_SUCCESS && users > 0)
        users--;
    pthread_mutex_unlock(&lock);
    return call_end(&call, code);
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    static const char *const texts[] = {
        "success", "library not initialised", "invalid argument", "not supported", "no permission",
        "already initialised", "not found", "insufficient size", "insufficient power", "driver not loaded", "timeout",
        "interrupt trouble", "library not found", "function not found", "corrupted inforom", "GPU is lost",
        "GPU needs a reset", "operating system refused", "driver and library versions differ", "in use",
        "out of memory", "no data", "vGPU without ECC", "insufficient resources", "frequency not supported",
        "version of the argument not known", "deprecated", "not ready", "GPU not found", "invalid state",
        "reset type not supported",
    };
    counters_add(SYM_nvmlErrorString, NULL);
    if (code < 0 || (size_t)code >= sizeof texts / sizeof *texts)
        return "unknown error";
    return texts[code];
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    Call call;
    nvmlReturn_t code = call_system(&call, SYM_nvmlSystemGetDriverVersion);
    if (code == NVML_SUCCESS)
        code = answer_text(call.state->driver_version, version, size);
    return call_end(&call, code);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    Call call;
    nvmlReturn_t code = call_system(&call, SYM_nvmlSystemGetNVMLVersion);
    if (code == NVML_SUCCESS)
        code = answer_text(call.state->nvml_version, version, size);
    return call_end(&call, code);
}

static nvmlReturn_t cuda_version(Symbol symbol, int *version)
{
    Call call;
    nvmlReturn_t code = call_system(&call, symbol);
    if (code == NVML_SUCCESS && version == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *version = call.state->cuda_version;
    return call_end(&call, code);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(SYM_nvmlSystemGetCudaDriverVersion, version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(SYM_nvmlSystemGetCudaDriverVersion_v2, version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    Call call;
    char link[64], target[4096];
    nvmlReturn_t code = call_system(&call, SYM_nvmlSystemGetProcessName);
    if (code == NVML_SUCCESS) {
        snprintf(link, sizeof link, "/proc/%u/exe", pid);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0) {
            code = errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_NOT_FOUND;
        } else {
            target[length] = '\0';
            code = answer_text(target, name, size);
        }
    }
    return call_end(&call, code);
}

static nvmlReturn_t unsupported(Symbol symbol, nvmlDevice_t device)
{
    Call call;
    nvmlReturn_t code = call_device(&call, symbol, device);
    return call_end(&call, code == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : code);
}

/* Further arguments are the caller's business: in the C calling conventions of Linux the caller clears them away. */
#define SYMBOL(name)
#define UNSUPPORTED(name) \
    nvmlReturn_t name(nvmlDevice_t device) \
    { \
        return unsupported(SYM_##name, device); \
    }
#include "symbols.def"
