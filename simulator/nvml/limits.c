/*
 * Memory limits by (GPU, cgroup directory): nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1.
 *
 * What is set is kept in "<state file>.limits", so that every process sees it, as with the kernel's own files. An entry
 * also holds the directory's inode: a cgroup that was removed and made again has no limit. The state file gives what a
 * cgroup uses, and limits that were there before anybody set one; an entry that was set goes before those.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"

#define NO_LIMIT UINT64_MAX

typedef struct {
    char uuid[96], path[1024];
    uint64_t inode, soft, hard;
} Entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Entry *entries;
static size_t entry_count, entry_capacity;
static struct stat loaded;

static void side_file(char *out, size_t size, const char *suffix)
{
    snprintf(out, size, "%s.limits%s", state_path(), suffix);
}

static int compare(const void *one, const void *other)
{
    const Entry *a = one, *b = other;
    int by_path = strcmp(a->path, b->path);
    return by_path != 0 ? by_path : strcmp(a->uuid, b->uuid);
}

static void encode(FILE *file, const char *text)
{
    for (; *text; text++) {
        unsigned char letter = (unsigned char)*text;
        fprintf(file, letter <= ' ' || letter == '%' || letter >= 0x7f ? "%%%02X" : "%c", letter);
    }
}

static bool read_entry(char *line, Entry *entry)
{
    char *fields[5];
    char *rest = line;
    for (int i = 0; i < 5; i++) {
        if ((fields[i] = strsep(&rest, " \n")) == NULL)
            return false;
    }
    return percent_decode(fields[0], entry->uuid, sizeof entry->uuid)
        && parse_unsigned(fields[1], UINT64_MAX, &entry->inode) && parse_unsigned(fields[2], UINT64_MAX, &entry->soft)
        && parse_unsigned(fields[3], UINT64_MAX, &entry->hard)
        && percent_decode(fields[4], entry->path, sizeof entry->path);
}

/* Brings the entries up to date with the file; called with the lock held. */
static void refresh(void)
{
    char path[4200];
    struct stat now;
    side_file(path, sizeof path, "");
    if (stat(path, &now) != 0) {
        entry_count = 0;
        memset(&loaded, 0, sizeof loaded);
        return;
    }
    bool same = now.st_ino == loaded.st_ino && now.st_size == loaded.st_size
        && memcmp(&now.st_mtim, &loaded.st_mtim, sizeof now.st_mtim) == 0;
    FILE *file = same ? NULL : fopen(path, "re");
    if (file == NULL)
        return;
    fstat(fileno(file), &loaded);
    entry_count = 0;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        entries = grown(entries, entry_count, &entry_capacity, sizeof *entries);
        if (read_entry(line, &entries[entry_count]))
            entry_count++;
        else
            fprintf(stderr, "simulated NVML: a line of %s makes no sense\n", path);
    }
    free(line);
    fclose(file);
}

static Entry *entry_of(const char *uuid, const char *path)
{
    Entry key;
    snprintf(key.uuid, sizeof key.uuid, "%s", uuid);
    snprintf(key.path, sizeof key.path, "%s", path);
    return entry_count > 0 ? bsearch(&key, entries, entry_count, sizeof *entries, compare) : NULL;
}

static bool write_entries(void)
{
    char path[4200], fresh[4200];
    side_file(path, sizeof path, "");
    side_file(fresh, sizeof fresh, ".new"); /* only the holder of the file lock writes it */
    FILE *file = fopen(fresh, "we");
    if (file == NULL)
        return false;
    qsort(entries, entry_count, sizeof *entries, compare);
    for (size_t i = 0; i < entry_count; i++) {
        const Entry *entry = &entries[i];
        encode(file, entry->uuid);
        fprintf(file, " %llu %llu %llu ", (unsigned long long)entry->inode, (unsigned long long)entry->soft,
                (unsigned long long)entry->hard);
        encode(file, entry->path);
        fputc('\n', file);
    }
    /* The kernel stamps files by its timer tick; two writes within one would look the same to a reader. */
    struct timespec now[2];
    clock_gettime(CLOCK_REALTIME, &now[0]);
    now[1] = now[0];
    bool stamped = fflush(file) == 0 && futimens(fileno(file), now) == 0;
    return fclose(file) == 0 && stamped && rename(fresh, path) == 0;
}

static nvmlReturn_t store(const Gpu *gpu, const char *path, uint64_t inode, uint64_t soft, uint64_t hard)
{
    char lock_path[4200];
    side_file(lock_path, sizeof lock_path, ".lock");
    int file = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || flock(file, LOCK_EX) != 0) {
        if (file >= 0)
            close(file);
        return NVML_ERROR_OPERATING_SYSTEM;
    }
    pthread_mutex_lock(&lock);
    refresh();
    Entry *entry = entry_of(gpu->uuid, path);
    if (entry == NULL) {
        entries = grown(entries, entry_count, &entry_capacity, sizeof *entries);
        entry = &entries[entry_count++];
        snprintf(entry->uuid, sizeof entry->uuid, "%s", gpu->uuid);
        snprintf(entry->path, sizeof entry->path, "%s", path);
    }
    entry->inode = inode;
    entry->soft = soft;
    entry->hard = hard;
    bool written = write_entries();
    memset(&loaded, 0, sizeof loaded); /* the next reader takes what the file now says */
    pthread_mutex_unlock(&lock);
    close(file);
    return written ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

static const Cgroup *cgroup_of(const Gpu *gpu, const char *path)
{
    for (size_t i = 0; i < gpu->cgroup_count; i++) {
        if (strcmp(gpu->cgroups[i].path, path) == 0)
            return &gpu->cgroups[i];
    }
    return NULL;
}

/* The limits of exactly this directory; false when it has none. */
static bool limits_of(const Gpu *gpu, const char *path, uint64_t inode, nvmlGetMemoryLimits_v1_t *out)
{
    const Cgroup *cgroup = cgroup_of(gpu, path);
    bool limited = cgroup != NULL && cgroup->limited;
    out->currentUsed = cgroup != NULL ? cgroup->used : 0;
    if (limited) {
        out->softLimit = cgroup->soft;
        out->hardLimit = cgroup->hard;
    }
    pthread_mutex_lock(&lock);
    refresh();
    const Entry *entry = entry_of(gpu->uuid, path);
    if (entry != NULL && entry->inode == inode) {
        limited = entry->soft != 0 || entry->hard != NO_LIMIT;
        out->softLimit = entry->soft;
        out->hardLimit = entry->hard;
    }
    pthread_mutex_unlock(&lock);
    return limited;
}

static nvmlReturn_t limits_call(Call *call, Symbol symbol, nvmlDevice_t device)
{
    nvmlReturn_t code = call_device(call, symbol, device);
    if (code != NVML_SUCCESS)
        return code;
    bool mig = call->mig != NULL || call->gpu->mig_current == 1;
    return mig || call->state->limits == LIMITS_OFF ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static nvmlReturn_t directory(const char *path, size_t size, struct stat *status)
{
    if (path == NULL || strlen(path) >= size)
        return NVML_ERROR_INVALID_ARGUMENT;
    return stat(path, status) == 0 && S_ISDIR(status->st_mode) ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    Call call;
    struct stat status;
    nvmlReturn_t code = limits_call(&call, SYM_nvmlDeviceSetMemoryLimits_v1, device);
    if (code == NVML_SUCCESS && limits == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS) {
        uint64_t total = call.gpu->has_memory ? call.gpu->memory.total : NO_LIMIT;
        bool hard = limits->hardLimit == NO_LIMIT || limits->hardLimit <= total;
        if (!hard || limits->softLimit > total || limits->softLimit > limits->hardLimit)
            code = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (code == NVML_SUCCESS)
        code = directory(limits->nameSpace, sizeof entries->path, &status);
    if (code == NVML_SUCCESS)
        code = store(call.gpu, limits->nameSpace, status.st_ino, limits->softLimit, limits->hardLimit);
    return call_end(&call, code);
}

/* With the driver's own map the nearest limited ancestor counts, and "no limit" looks like "not supported". */
static nvmlReturn_t nearest(const Call *call, nvmlGetMemoryLimits_v1_t *limits)
{
    char path[sizeof entries->path];
    struct stat status;
    snprintf(path, sizeof path, "%s", limits->nameSpace);
    for (char *slash; (slash = strrchr(path, '/')) != NULL && slash != path;) {
        *slash = '\0';
        if (stat(path, &status) == 0 && limits_of(call->gpu, path, status.st_ino, limits))
            return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    Call call;
    struct stat status;
    nvmlReturn_t code = limits_call(&call, SYM_nvmlDeviceGetMemoryLimits_v1, device);
    if (code == NVML_SUCCESS && limits == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        code = directory(limits->nameSpace, sizeof entries->path, &status);
    if (code == NVML_SUCCESS) {
        nvmlGetMemoryLimits_v1_t found = *limits;
        if (!limits_of(call.gpu, limits->nameSpace, status.st_ino, &found))
            code = call.state->limits == LIMITS_MISC ? nearest(&call, &found) : NVML_ERROR_NOT_FOUND;
        if (code == NVML_SUCCESS)
            *limits = found;
    }
    return call_end(&call, code);
}
