/*
 * The binary interface that this library shares with its callers: return codes and struct layouts.
 *
 * Written from the documented layouts; the struct-size test compares every size and offset with NVIDIA's own header.
 * Names of the types are NVML's, so that a declaration here can be read beside its documentation.
 */
#ifndef PODGPU_NVML_API_H
#define PODGPU_NVML_API_H

#include <stddef.h>
#include <stdint.h>

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

/* "The driver does not tell" in a 64-bit and in a 32-bit field. */
#define VALUE_UNKNOWN UINT64_MAX
#define INSTANCE_NONE UINT32_MAX

/* A version word holds the struct's size and its version, so that a newer library can serve an older caller. */
#define VERSION_WORD(type, version) ((uint32_t)(sizeof(type) | ((uint32_t)(version) << 24)))

typedef struct {
    char busIdLegacy[16];
    uint32_t domain;
    uint32_t bus;
    uint32_t device;
    uint32_t pciDeviceId;
    uint32_t pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    uint64_t total;
    uint64_t free;
    uint64_t used;
} nvmlMemory_t;

typedef struct {
    uint32_t version;
    uint64_t total;
    uint64_t reserved;
    uint64_t free;
    uint64_t used;
} nvmlMemory_v2_t;

typedef struct {
    uint64_t bar1Total;
    uint64_t bar1Free;
    uint64_t bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
    uint64_t protectedMemSizeKib;
    uint64_t unprotectedMemSizeKib;
} nvmlConfComputeMemSizeInfo_t;

typedef struct {
    uint32_t gpu;
    uint32_t memory;
} nvmlUtilization_t;

typedef struct {
    uint32_t pid;
    uint64_t usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    uint32_t pid;
    uint64_t usedGpuMemory;
    uint32_t gpuInstanceId;
    uint32_t computeInstanceId;
} nvmlProcessInfo_v2_t;

/* Also the layout of the _v3 rows of the first 535 drivers, before the last field moved to the detail list. */
typedef struct {
    uint32_t pid;
    uint64_t usedGpuMemory;
    uint32_t gpuInstanceId;
    uint32_t computeInstanceId;
    uint64_t usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
    uint32_t version;
    uint32_t mode;
    uint32_t numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
    uint32_t multiprocessorCount;
    uint32_t sharedCopyEngineCount;
    uint32_t sharedDecoderCount;
    uint32_t sharedEncoderCount;
    uint32_t sharedJpegCount;
    uint32_t sharedOfaCount;
    uint32_t gpuInstanceSliceCount;
    uint32_t computeInstanceSliceCount;
    uint64_t memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    uint32_t pid;
    uint64_t timeStamp;
    uint32_t smUtil;
    uint32_t memUtil;
    uint32_t encUtil;
    uint32_t decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    uint64_t timeStamp;
    uint32_t pid;
    uint32_t smUtil;
    uint32_t memUtil;
    uint32_t encUtil;
    uint32_t decUtil;
    uint32_t jpgUtil;
    uint32_t ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
    uint32_t version;
    uint32_t processSamplesCount;
    uint64_t lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

typedef struct {
    const char *nameSpace;
    uint64_t softLimit;
    uint64_t hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    const char *nameSpace;
    uint64_t softLimit;
    uint64_t hardLimit;
    uint64_t currentUsed;
} nvmlGetMemoryLimits_v1_t;

#endif
