/*
 * Limits that the kernel keeps: hard is dmem.max, soft is dmem.min, what is charged is dmem.current.
 *
 * The files are the cgroups' own, so whoever reads them sees what was set here and the other way round. As with the
 * kernel, a limit below what is charged is taken without a word and changes nothing. As with the driver, a change of
 * the soft limit is carried up, through all ancestors that have the files; a cgroup that is removed takes nothing back.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limits.h"

typedef struct {
    char key[64];
    size_t length;
} Region;

static Region region_of(const Gpu *gpu)
{
    Region region;
    char bus_id[sizeof gpu->bus_id];
    snprintf(bus_id, sizeof bus_id, "%s", gpu->bus_id);
    for (char *letter = bus_id; *letter; letter++)
        *letter = (char)tolower((unsigned char)*letter);
    snprintf(region.key, sizeof region.key, "nvidia/%s/vidmem ", bus_id);
    region.length = strlen(region.key);
    return region;
}

static bool has(const char *directory, const char *name)
{
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static bool get(const char *directory, const char *name, const Region *region, uint64_t *value)
{
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool found = false;
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    while (!found && (length = getline(&line, &size, file)) > 0) {
        line[length - 1] = line[length - 1] == '\n' ? '\0' : line[length - 1];
        if (strncmp(line, region->key, region->length) != 0)
            continue;
        const char *text = line + region->length;
        *value = NO_LIMIT;
        found = strcmp(text, "max") == 0 || parse_unsigned(text, UINT64_MAX, value);
    }
    free(line);
    fclose(file);
    return found;
}

/* Writes the file anew with one line changed; by rename, so that no reader sees half of it. */
static bool put(const char *directory, const char *name, const Region *region, uint64_t value)
{
    char path[PATH_SIZE + 32], fresh[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(fresh, sizeof fresh, "%s/.%s", directory, name);
    FILE *old = fopen(path, "re");
    FILE *new = old != NULL ? fopen(fresh, "we") : NULL;
    char *line = NULL;
    size_t size = 0;
    while (new != NULL && getline(&line, &size, old) > 0) {
        if (strncmp(line, region->key, region->length) != 0)
            fputs(line, new);
        else if (value == NO_LIMIT)
            fprintf(new, "%smax\n", region->key);
        else
            fprintf(new, "%s%llu\n", region->key, (unsigned long long)value);
    }
    free(line);
    if (old != NULL)
        fclose(old);
    return new != NULL && fclose(new) == 0 && rename(fresh, path) == 0;
}

/* A cgroup without these files counts into the nearest one above that has them. */
nvmlReturn_t dmem_get(const Gpu *gpu, const char *path, nvmlGetMemoryLimits_v1_t *out)
{
    char directory[PATH_SIZE];
    uint64_t soft, hard, used;
    Region region = region_of(gpu);
    snprintf(directory, sizeof directory, "%s", path);
    while (!has(directory, "dmem.max")) {
        if (!to_parent(directory))
            return NVML_ERROR_NOT_SUPPORTED;
    }
    if (!get(directory, "dmem.min", &region, &soft) || !get(directory, "dmem.max", &region, &hard)
        || !get(directory, "dmem.current", &region, &used))
        return NVML_ERROR_NOT_SUPPORTED;
    out->softLimit = soft;
    out->hardLimit = hard;
    out->currentUsed = used;
    return NVML_SUCCESS;
}

static bool carry_up(const char *path, const Region *region, uint64_t before, uint64_t after)
{
    char directory[PATH_SIZE];
    uint64_t sum;
    snprintf(directory, sizeof directory, "%s", path);
    while (to_parent(directory) && get(directory, "dmem.min", region, &sum)) {
        uint64_t rest = sum > before ? sum - before : 0;
        if (!put(directory, "dmem.min", region, rest + after))
            return false;
    }
    return true;
}

static bool change(const char *path, const Region *region, uint64_t soft, uint64_t hard)
{
    uint64_t before, used;
    if (!get(path, "dmem.min", region, &before) || !get(path, "dmem.current", region, &used))
        return false;
    if (soft != before && !(put(path, "dmem.min", region, soft) && carry_up(path, region, before, soft)))
        return false;
    return used > hard || put(path, "dmem.max", region, hard);
}

nvmlReturn_t dmem_set(const Gpu *gpu, const char *path, uint64_t soft, uint64_t hard)
{
    Region region = region_of(gpu);
    if (!has(path, "dmem.max"))
        return NVML_ERROR_NOT_SUPPORTED; /* the root, or a cgroup for which the controller is not enabled */
    int lock = limits_lock();
    if (lock < 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    bool changed = change(path, &region, soft, hard);
    close(lock);
    return changed ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}
