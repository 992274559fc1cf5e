/*
 * The node as the state file describes it: parsed once per change of the file, immutable afterwards.
 *
 * A caller holds a reference while it answers, so a change of the file never pulls memory from under another thread.
 * Rows are grouped by GPU, list and MIG device while parsing: no call scans rows that are not its own.
 */
#ifndef PODGPU_NVML_STATE_H
#define PODGPU_NVML_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api.h"

typedef enum {
#define SYMBOL(name) SYM_##name,
#define UNSUPPORTED(name) SYM_##name,
#include "symbols.def"
#undef SYMBOL
#undef UNSUPPORTED
    SYMBOL_COUNT
} Symbol;

extern const char *const symbol_names[SYMBOL_COUNT];

enum { LIST_COMPUTE, LIST_GRAPHICS, LIST_MPS, LIST_ALL, LIST_COUNT };

typedef enum { LIMITS_OFF, LIMITS_DMEM, LIMITS_MISC } LimitsBackend;

typedef struct {
    uint64_t total, reserved, used, free;
} Memory;

typedef nvmlProcessDetail_v1_t Row;

typedef struct {
    Row *rows;
    size_t count, capacity;
} RowList;

typedef struct {
    uint32_t gi, slices;
    char profile[32];
    Memory memory;
} GpuInstance;

typedef struct {
    uint32_t gi, ci, slot, slices, multiprocessors;
    char uuid[96];
    size_t identity;
    Memory memory; /* the whole GPU instance's: compute instances have none of their own */
    uint32_t instance_slices;
    char profile[32];
    RowList lists[LIST_COUNT];
} MigDevice;

/* As if the driver's ring never stopped: the time of a `relative` sample is its age in microseconds at each call. */
typedef struct {
    nvmlProcessUtilizationInfo_v1_t values;
    bool relative;
} Sample;

/* `used` is what the processes of this very cgroup hold; `limited`: it has an entry in the driver's table. */
typedef struct {
    char path[1024];
    bool limited;
    uint64_t soft, hard, used;
} Cgroup;

typedef struct {
    unsigned index;
    char uuid[96], name[96], bus_id[32];
    size_t identity;
    uint32_t domain, bus, device;
    int minor;      /* -1: not told */
    uint32_t major_capability, minor_capability;
    uint32_t compute_mode, persistence;
    int mig_current, mig_pending; /* -1: no MIG */
    int gpu_utilization, memory_utilization; /* -1: not supported */
    uint64_t confidential; /* VALUE_UNKNOWN: not supported */
    bool has_memory;
    Memory memory;
    GpuInstance *instances;
    size_t instance_count, instance_capacity;
    MigDevice *migs;
    size_t mig_count, mig_capacity;
    RowList lists[LIST_COUNT];
    Sample *samples;
    size_t sample_count, sample_capacity;
    Cgroup *cgroups;
    size_t cgroup_count, cgroup_capacity;
} Gpu;

/* A fault line that was seen at least once; lives as long as the process, so that its count outlives a re-read. */
typedef struct FaultLine {
    char *text;
    atomic_ulong calls;
    bool seen;
    struct FaultLine *next;
} FaultLine;

typedef struct {
    int symbol; /* -1: every call but the life cycle */
    int gpu;    /* -1: any, and calls without a GPU */
    unsigned long from, times;
    nvmlReturn_t code;
    unsigned delay_ms;
    bool hang;
    unsigned grows;
    FaultLine *line;
} Fault;

typedef struct {
    const Gpu *gpu;
    const MigDevice *mig; /* NULL for the GPU itself */
} Target;

typedef struct {
    atomic_int references;
    nvmlReturn_t error; /* what every call answers when the file is missing or makes no sense */
    char driver_version[80], nvml_version[80];
    int cuda_version;
    nvmlReturn_t init_code;
    size_t v3_row_bytes;
    bool privileged;
    LimitsBackend limits;
    bool may_limit;
    Gpu *gpus;
    size_t gpu_count, gpu_capacity;
    Fault *faults;
    size_t fault_count, fault_capacity;
    Target *targets; /* by identity; those that this state does not have are empty */
    size_t target_count;
} State;

/* state.c */
void state_watch(const char *path);
const char *state_path(void);
const State *state_acquire(void);
void state_release(const State *state);
nvmlDevice_t handle_of(size_t identity);
Target find_handle(const State *state, const void *handle);
bool handle_was_gpu(nvmlDevice_t handle);

/* parse.c; called with the state lock held */
void state_parse(State *state, char *text);
void state_free(State *state);
size_t identity_of(const char *uuid, bool mig);
size_t identity_count(void);
FaultLine *fault_line(const char *text);

/* text.c */
bool parse_unsigned(const char *text, uint64_t maximum, uint64_t *value);
bool percent_decode(const char *text, char *out, size_t size);
void *zeroed(size_t size);
/* The array with room for one more element than `count`. */
void *grown(void *array, size_t count, size_t *capacity, size_t size);

#endif
