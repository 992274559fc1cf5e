/*
 * Counts the calls of each symbol, and of each symbol by GPU, in a file that other processes map or read.
 *
 * The layout is fixed (counters.py reads it): one record per symbol, in the order of symbols.def. Several processes may
 * count into one file; an increment is one atomic addition. Without the environment variable nothing is counted.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"

#define COUNTED_GPUS 64

typedef struct {
    char name[64];
    _Atomic uint64_t total;
    _Atomic uint64_t by_gpu[COUNTED_GPUS]; /* calls on later GPUs are in the total only */
} Record;

static _Atomic(Record *) records;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char mapped_path[4096];

void counters_open(const char *path)
{
    if (path == NULL || *path == '\0') {
        atomic_store(&records, NULL);
        return;
    }
    pthread_mutex_lock(&lock);
    size_t size = SYMBOL_COUNT * sizeof(Record);
    int file = -1;
    Record *map = MAP_FAILED;
    if (atomic_load(&records) != NULL && strcmp(path, mapped_path) == 0) {
        pthread_mutex_unlock(&lock);
        return;
    }
    if ((file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) >= 0 && ftruncate(file, (off_t)size) == 0)
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (map == MAP_FAILED) {
        fprintf(stderr, "simulated NVML: cannot count into %s: %m\n", path);
    } else {
        for (int symbol = 0; symbol < SYMBOL_COUNT; symbol++)
            snprintf(map[symbol].name, sizeof map[symbol].name, "%s", symbol_names[symbol]);
        snprintf(mapped_path, sizeof mapped_path, "%s", path);
        /* An earlier map is left in place: another thread may be counting into it. */
        atomic_store(&records, map);
    }
    pthread_mutex_unlock(&lock);
}

void counters_add(Symbol symbol, const Gpu *gpu)
{
    Record *map = atomic_load(&records);
    if (map == NULL)
        return;
    atomic_fetch_add(&map[symbol].total, 1);
    if (gpu != NULL && gpu->index < COUNTED_GPUS)
        atomic_fetch_add(&map[symbol].by_gpu[gpu->index], 1);
}
