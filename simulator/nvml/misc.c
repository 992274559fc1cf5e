/*
 * Limits that the driver keeps in a table of its own, because the kernel has no controller for device memory.
 *
 * The table is flat. An allocation is charged to the nearest cgroup, upwards from the process's, that has an entry, and
 * to no other; what was allocated before there was an entry is never charged. An entry is made by the first limits that
 * are set, stays when these are taken back (hard NO_LIMIT), and goes with its cgroup.
 *
 * What is set is kept in "<state file>.limits", so that every process sees it. An entry also holds the directory's
 * inode: a cgroup that was removed and made again has none. The state file gives the bytes that the processes of each
 * cgroup hold, and entries that were there before any of these. A guess: when a cgroup below gets an entry, the table
 * here forgets that it had charged that cgroup's bytes to the one above.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "limits.h"

typedef struct {
    char uuid[96], path[PATH_SIZE];
    uint64_t inode, soft, hard;
    uint64_t uncounted; /* bytes that were held before there was an entry */
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
    char *fields[6];
    char *rest = line;
    for (int i = 0; i < 6; i++) {
        if ((fields[i] = strsep(&rest, " \n")) == NULL)
            return false;
    }
    return percent_decode(fields[0], entry->uuid, sizeof entry->uuid)
        && parse_unsigned(fields[1], UINT64_MAX, &entry->inode) && parse_unsigned(fields[2], UINT64_MAX, &entry->soft)
        && parse_unsigned(fields[3], UINT64_MAX, &entry->hard)
        && parse_unsigned(fields[4], UINT64_MAX, &entry->uncounted)
        && percent_decode(fields[5], entry->path, sizeof entry->path);
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
        fprintf(file, " %llu %llu %llu %llu ", (unsigned long long)entry->inode, (unsigned long long)entry->soft,
                (unsigned long long)entry->hard, (unsigned long long)entry->uncounted);
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

/* Where the state or somebody's call gave this very cgroup an entry; called with the lock held. */
static bool find(const Gpu *gpu, const char *path, Entry *out)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return false;
    const Entry *entry = entry_of(gpu->uuid, path);
    if (entry != NULL && entry->inode == status.st_ino) {
        *out = *entry;
        return true;
    }
    for (size_t i = 0; i < gpu->cgroup_count; i++) {
        const Cgroup *cgroup = &gpu->cgroups[i];
        if (cgroup->limited && strcmp(cgroup->path, path) == 0) {
            *out = (Entry){.inode = status.st_ino, .soft = cgroup->soft, .hard = cgroup->hard};
            snprintf(out->path, sizeof out->path, "%s", path);
            return true;
        }
    }
    return false;
}

/* The entry that counts for a cgroup: its own, else the nearest above. */
static bool nearest(const Gpu *gpu, const char *path, Entry *out)
{
    char directory[PATH_SIZE];
    snprintf(directory, sizeof directory, "%s", path);
    do {
        if (find(gpu, directory, out))
            return true;
    } while (to_parent(directory));
    return false;
}

/* The bytes that are held in the cgroups for which the entry of this path counts, or would count if it had one. */
static uint64_t held(const Gpu *gpu, const char *path)
{
    uint64_t sum = 0;
    size_t length = strlen(path);
    for (size_t i = 0; i < gpu->cgroup_count; i++) {
        const Cgroup *cgroup = &gpu->cgroups[i];
        Entry entry;
        bool below = strncmp(cgroup->path, path, length) == 0 && strchr("/", cgroup->path[length]) != NULL;
        if (below && !(nearest(gpu, cgroup->path, &entry) && strlen(entry.path) > length))
            sum += cgroup->used;
    }
    return sum;
}

static uint64_t charged(const Gpu *gpu, const Entry *entry)
{
    uint64_t sum = held(gpu, entry->path);
    return sum > entry->uncounted ? sum - entry->uncounted : 0;
}

nvmlReturn_t misc_get(const Gpu *gpu, const char *path, nvmlGetMemoryLimits_v1_t *out)
{
    Entry entry;
    pthread_mutex_lock(&lock);
    refresh();
    bool found = nearest(gpu, path, &entry);
    if (found) {
        out->softLimit = entry.soft;
        out->hardLimit = entry.hard;
        out->currentUsed = charged(gpu, &entry);
    }
    pthread_mutex_unlock(&lock);
    return found ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED; /* no entry at all looks like no feature at all */
}

/* The root has controllers, but unlike all others no type. */
static bool is_root(const char *path)
{
    char controllers[PATH_SIZE + 32], type[PATH_SIZE + 32];
    snprintf(controllers, sizeof controllers, "%s/cgroup.controllers", path);
    snprintf(type, sizeof type, "%s/cgroup.type", path);
    return access(controllers, F_OK) == 0 && access(type, F_OK) != 0;
}

/* Called with both locks held. */
static nvmlReturn_t change(const Gpu *gpu, const char *path, uint64_t soft, uint64_t hard)
{
    struct stat status;
    Entry fresh;
    if (stat(path, &status) != 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    if (!find(gpu, path, &fresh))
        fresh.uncounted = held(gpu, path);
    else if (charged(gpu, &fresh) > hard)
        return NVML_ERROR_INVALID_ARGUMENT;
    fresh.inode = status.st_ino;
    fresh.soft = soft;
    fresh.hard = hard;
    snprintf(fresh.uuid, sizeof fresh.uuid, "%s", gpu->uuid);
    snprintf(fresh.path, sizeof fresh.path, "%s", path);
    Entry *entry = entry_of(gpu->uuid, path);
    if (entry == NULL) {
        entries = grown(entries, entry_count, &entry_capacity, sizeof *entries);
        entry = &entries[entry_count++];
    }
    *entry = fresh;
    bool written = write_entries();
    memset(&loaded, 0, sizeof loaded); /* the next reader takes what the file now says */
    return written ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}

nvmlReturn_t misc_set(const Gpu *gpu, const char *path, uint64_t soft, uint64_t hard)
{
    if (is_root(path))
        return NVML_ERROR_NOT_SUPPORTED;
    int file = limits_lock();
    if (file < 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    pthread_mutex_lock(&lock);
    refresh();
    nvmlReturn_t code = change(gpu, path, soft, hard);
    pthread_mutex_unlock(&lock);
    close(file);
    return code;
}
