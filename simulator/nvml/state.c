/*
 * Watches the state file and hands out references to its newest content.
 *
 * The file is known by (inode, modification time, size) and is looked at on every call. Handles are numbers that stand
 * for a UUID for the life of the process, so a GPU that vanishes from the file shifts no other GPU's handle.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

#define HANDLE_BASE ((uintptr_t)0x5e1f0000)
#define HANDLE_STEP ((uintptr_t)64)

typedef struct {
    ino_t inode;
    struct timespec modified;
    off_t size;
    bool exists;
} Signature;

typedef struct {
    char uuid[96];
    bool mig;
} Identity;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char watched[4096];
static Signature current_signature;
static State *current;
static Identity *identities;
static size_t identities_used, identities_capacity;
static FaultLine *fault_lines;

const char *const symbol_names[SYMBOL_COUNT] = {
#define SYMBOL(name) #name,
#define UNSUPPORTED(name) #name,
#include "symbols.def"
#undef SYMBOL
#undef UNSUPPORTED
};

size_t identity_of(const char *uuid, bool mig)
{
    for (size_t i = 0; i < identities_used; i++) {
        if (identities[i].mig == mig && strcmp(identities[i].uuid, uuid) == 0)
            return i;
    }
    identities = grown(identities, identities_used, &identities_capacity, sizeof *identities);
    Identity *identity = &identities[identities_used];
    identity->mig = mig;
    snprintf(identity->uuid, sizeof identity->uuid, "%s", uuid);
    return identities_used++;
}

size_t identity_count(void)
{
    return identities_used;
}

FaultLine *fault_line(const char *text)
{
    for (FaultLine *line = fault_lines; line != NULL; line = line->next) {
        if (strcmp(line->text, text) == 0) {
            line->seen = true;
            return line;
        }
    }
    FaultLine *line = zeroed(sizeof *line);
    line->text = zeroed(strlen(text) + 1);
    strcpy(line->text, text);
    line->seen = true;
    line->next = fault_lines;
    fault_lines = line;
    return line;
}

nvmlDevice_t handle_of(size_t identity)
{
    return (nvmlDevice_t)(HANDLE_BASE + identity * HANDLE_STEP);
}

/* SIZE_MAX for what never was a handle of ours. */
static size_t identity_behind(const void *handle)
{
    uintptr_t value = (uintptr_t)handle;
    if (value < HANDLE_BASE || (value - HANDLE_BASE) % HANDLE_STEP != 0)
        return SIZE_MAX;
    return (value - HANDLE_BASE) / HANDLE_STEP;
}

Target find_handle(const State *state, const void *handle)
{
    size_t identity = identity_behind(handle);
    return identity < state->target_count ? state->targets[identity] : (Target){0};
}

bool handle_was_gpu(nvmlDevice_t handle)
{
    size_t identity = identity_behind(handle);
    pthread_mutex_lock(&lock);
    bool was = identity < identities_used && !identities[identity].mig;
    pthread_mutex_unlock(&lock);
    return was;
}

void state_watch(const char *path)
{
    pthread_mutex_lock(&lock);
    snprintf(watched, sizeof watched, "%s", path ? path : "");
    pthread_mutex_unlock(&lock);
}

const char *state_path(void)
{
    return watched;
}

static Signature signature_of(const struct stat *status)
{
    return (Signature){
        .inode = status->st_ino, .modified = status->st_mtim, .size = status->st_size, .exists = true};
}

static bool same(const Signature *one, const Signature *other)
{
    return one->exists == other->exists && one->inode == other->inode && one->size == other->size
        && one->modified.tv_sec == other->modified.tv_sec && one->modified.tv_nsec == other->modified.tv_nsec;
}

/* The text, ended by a NUL, and the signature of exactly this text; NULL when it can't be read. */
static char *read_file(const char *path, Signature *signature)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0)
        return NULL;
    char *text = NULL;
    if (fstat(file, &status) == 0 && (text = malloc((size_t)status.st_size + 1)) != NULL) {
        size_t length = 0;
        ssize_t got;
        while (length < (size_t)status.st_size
               && (got = read(file, text + length, (size_t)status.st_size - length)) != 0) {
            if (got < 0 && errno != EINTR)
                break;
            length += got > 0 ? (size_t)got : 0;
        }
        text[length] = '\0';
        *signature = signature_of(&status);
    }
    close(file);
    return text;
}

static State *load(void)
{
    State *state = zeroed(sizeof *state);
    atomic_store(&state->references, 1);
    char *text = read_file(watched, &current_signature);
    if (text == NULL) {
        current_signature = (Signature){0};
        state->error = NVML_ERROR_DRIVER_NOT_LOADED;
        return state;
    }
    for (FaultLine *line = fault_lines; line != NULL; line = line->next)
        line->seen = false;
    state_parse(state, text);
    free(text);
    /* A fault that was taken away and comes back starts to count anew. */
    for (FaultLine *line = fault_lines; line != NULL; line = line->next) {
        if (!line->seen)
            atomic_store(&line->calls, 0);
    }
    return state;
}

const State *state_acquire(void)
{
    pthread_mutex_lock(&lock);
    struct stat status;
    Signature now = {0};
    if (stat(watched, &status) == 0)
        now = signature_of(&status);
    if (current == NULL || !same(&now, &current_signature)) {
        State *old = current;
        current = load();
        if (old != NULL)
            state_release(old);
    }
    State *state = current;
    atomic_fetch_add(&state->references, 1);
    pthread_mutex_unlock(&lock);
    return state;
}

void state_release(const State *state)
{
    State *owned = (State *)(uintptr_t)state;
    if (atomic_fetch_sub(&owned->references, 1) == 1)
        state_free(owned);
}
