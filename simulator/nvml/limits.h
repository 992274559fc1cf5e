/*
 * The two ways in which a driver keeps memory limits of cgroups, behind the two calls of limits.c.
 *
 * Paths are directories that exist. Both set functions expect limits that make sense, and hold the lock on files that
 * every process of the node shares while they change anything.
 */
#ifndef PODGPU_NVML_LIMITS_H
#define PODGPU_NVML_LIMITS_H

#include "state.h"

#define NO_LIMIT UINT64_MAX
#define PATH_SIZE 1024

/* dmem.c: the kernel's controller, that is the dmem.* files of the cgroups themselves. */
nvmlReturn_t dmem_get(const Gpu *gpu, const char *path, nvmlGetMemoryLimits_v1_t *out);
nvmlReturn_t dmem_set(const Gpu *gpu, const char *path, uint64_t soft, uint64_t hard);

/* misc.c: the driver's own table. */
nvmlReturn_t misc_get(const Gpu *gpu, const char *path, nvmlGetMemoryLimits_v1_t *out);
nvmlReturn_t misc_set(const Gpu *gpu, const char *path, uint64_t soft, uint64_t hard);

/* limits.c */
int limits_lock(void); /* -1: it can't be had; close it to let go */
bool to_parent(char *path); /* false at the top */

#endif
