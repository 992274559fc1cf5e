/*
 * The text of the state file -> State. The format is described at the top of state.py.
 *
 * Any line that makes no sense spoils the whole state (every call answers UNKNOWN) and is named on standard error:
 * a simulation that silently leaves something out would let a test pass for the wrong reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define MAX_FIELDS 24

typedef struct {
    State *state;
    const char *line_text;
    char *fields[MAX_FIELDS];
    size_t count;
} Line;

static bool number(const Line *line, size_t field, uint64_t maximum, uint64_t *value)
{
    return parse_unsigned(line->fields[field], maximum, value);
}

static bool word(const Line *line, size_t field, uint32_t *value)
{
    uint64_t wide;
    if (!number(line, field, UINT32_MAX, &wide))
        return false;
    *value = (uint32_t)wide;
    return true;
}

static bool absent(const Line *line, size_t field)
{
    return strcmp(line->fields[field], "-") == 0;
}

/* A small number, or -1 for "-". */
static bool optional(const Line *line, size_t field, int *value)
{
    uint64_t wide = 0;
    *value = -1;
    if (absent(line, field))
        return true;
    if (!number(line, field, INT32_MAX, &wide))
        return false;
    *value = (int)wide;
    return true;
}

static bool memory(const Line *line, size_t field, Memory *memory)
{
    return number(line, field, UINT64_MAX, &memory->total) && number(line, field + 1, UINT64_MAX, &memory->reserved)
        && number(line, field + 2, UINT64_MAX, &memory->used) && number(line, field + 3, UINT64_MAX, &memory->free);
}

static Gpu *gpu_at(const Line *line, size_t field)
{
    uint64_t index;
    if (!number(line, field, UINT32_MAX, &index) || index >= line->state->gpu_count)
        return NULL;
    return &line->state->gpus[index];
}

static void add_row(RowList *list, const Row *row)
{
    list->rows = grown(list->rows, list->count, &list->capacity, sizeof *list->rows);
    list->rows[list->count++] = *row;
}

static bool read_driver(const Line *line)
{
    State *state = line->state;
    uint32_t cuda, code, bytes, privileged, may_limit;
    if (!percent_decode(line->fields[1], state->driver_version, sizeof state->driver_version)
        || !percent_decode(line->fields[2], state->nvml_version, sizeof state->nvml_version)
        || !word(line, 3, &cuda) || !word(line, 4, &code) || !word(line, 5, &bytes) || !word(line, 6, &privileged)
        || !word(line, 8, &may_limit))
        return false;
    static const char *const backends[] = {"off", "dmem", "misc"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(line->fields[7], backends[i]) != 0)
            continue;
        state->limits = (LimitsBackend)i;
        state->may_limit = may_limit != 0;
        state->cuda_version = (int)cuda;
        state->init_code = (nvmlReturn_t)code;
        state->v3_row_bytes = bytes;
        state->privileged = privileged != 0;
        return bytes == sizeof(nvmlProcessInfo_v2_t) || bytes == sizeof(nvmlProcessDetail_v1_t);
    }
    return false;
}

static bool read_gpu(const Line *line)
{
    State *state = line->state;
    state->gpus = grown(state->gpus, state->gpu_count, &state->gpu_capacity, sizeof *state->gpus);
    Gpu *gpu = &state->gpus[state->gpu_count];
    memset(gpu, 0, sizeof *gpu);
    gpu->index = (unsigned)state->gpu_count++;
    gpu->confidential = VALUE_UNKNOWN;
    gpu->has_memory = !absent(line, 14);
    if (!percent_decode(line->fields[1], gpu->uuid, sizeof gpu->uuid)
        || !percent_decode(line->fields[2], gpu->name, sizeof gpu->name) || !optional(line, 3, &gpu->minor)
        || !percent_decode(line->fields[4], gpu->bus_id, sizeof gpu->bus_id)
        || sscanf(gpu->bus_id, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->device) != 3
        || !word(line, 5, &gpu->major_capability) || !word(line, 6, &gpu->minor_capability)
        || !word(line, 7, &gpu->compute_mode) || !word(line, 8, &gpu->persistence)
        || !optional(line, 9, &gpu->mig_current) || !optional(line, 10, &gpu->mig_pending)
        || !optional(line, 11, &gpu->gpu_utilization) || !optional(line, 12, &gpu->memory_utilization)
        || !(absent(line, 13) || number(line, 13, UINT64_MAX, &gpu->confidential)))
        return false;
    gpu->identity = identity_of(gpu->uuid, false);
    return !gpu->has_memory || memory(line, 14, &gpu->memory);
}

static bool read_instance(const Line *line)
{
    Gpu *gpu = gpu_at(line, 1);
    if (gpu == NULL)
        return false;
    gpu->instances = grown(gpu->instances, gpu->instance_count, &gpu->instance_capacity, sizeof *gpu->instances);
    GpuInstance *instance = &gpu->instances[gpu->instance_count++];
    return word(line, 2, &instance->gi) && percent_decode(line->fields[3], instance->profile, sizeof instance->profile)
        && word(line, 4, &instance->slices) && memory(line, 5, &instance->memory);
}

static bool read_mig(const Line *line)
{
    Gpu *gpu = gpu_at(line, 1);
    if (gpu == NULL)
        return false;
    gpu->migs = grown(gpu->migs, gpu->mig_count, &gpu->mig_capacity, sizeof *gpu->migs);
    MigDevice *mig = &gpu->migs[gpu->mig_count++];
    memset(mig, 0, sizeof *mig);
    if (!word(line, 2, &mig->gi) || !word(line, 3, &mig->ci) || !word(line, 4, &mig->slot)
        || !percent_decode(line->fields[5], mig->uuid, sizeof mig->uuid) || !word(line, 6, &mig->slices)
        || !word(line, 7, &mig->multiprocessors))
        return false;
    mig->identity = identity_of(mig->uuid, true);
    for (size_t i = 0; i < gpu->instance_count; i++) {
        if (gpu->instances[i].gi != mig->gi)
            continue;
        mig->memory = gpu->instances[i].memory;
        mig->instance_slices = gpu->instances[i].slices;
        memcpy(mig->profile, gpu->instances[i].profile, sizeof mig->profile);
        return true;
    }
    return false;
}

static bool read_row(const Line *line)
{
    static const char *const names[] = {"compute", "graphics", "mps"};
    Gpu *gpu = gpu_at(line, 1);
    Row row;
    memset(&row, 0, sizeof row); /* the padding travels to the caller */
    row.gpuInstanceId = row.computeInstanceId = INSTANCE_NONE;
    row.usedGpuMemory = row.usedGpuCcProtectedMemory = VALUE_UNKNOWN;
    if (gpu == NULL || !word(line, 3, &row.pid)
        || !(absent(line, 4) || number(line, 4, UINT64_MAX, &row.usedGpuMemory))
        || !(absent(line, 5) || word(line, 5, &row.gpuInstanceId))
        || !(absent(line, 6) || word(line, 6, &row.computeInstanceId))
        || !(absent(line, 7) || number(line, 7, UINT64_MAX, &row.usedGpuCcProtectedMemory)))
        return false;
    for (int list = LIST_COMPUTE; list <= LIST_MPS; list++) {
        if (strcmp(line->fields[2], names[list]) == 0) {
            add_row(&gpu->lists[list], &row);
            return true;
        }
    }
    return false;
}

static bool read_sample(const Line *line)
{
    Gpu *gpu = gpu_at(line, 1);
    if (gpu == NULL)
        return false;
    gpu->samples = grown(gpu->samples, gpu->sample_count, &gpu->sample_capacity, sizeof *gpu->samples);
    Sample *sample = &gpu->samples[gpu->sample_count++];
    memset(sample, 0, sizeof *sample);
    sample->relative = line->fields[3][0] == '-';
    nvmlProcessUtilizationInfo_v1_t *values = &sample->values;
    return word(line, 2, &values->pid)
        && parse_unsigned(line->fields[3] + sample->relative, UINT64_MAX, &values->timeStamp)
        && word(line, 4, &values->smUtil) && word(line, 5, &values->memUtil) && word(line, 6, &values->encUtil)
        && word(line, 7, &values->decUtil) && word(line, 8, &values->jpgUtil) && word(line, 9, &values->ofaUtil);
}

static bool read_cgroup(const Line *line)
{
    Gpu *gpu = gpu_at(line, 1);
    if (gpu == NULL)
        return false;
    gpu->cgroups = grown(gpu->cgroups, gpu->cgroup_count, &gpu->cgroup_capacity, sizeof *gpu->cgroups);
    Cgroup *cgroup = &gpu->cgroups[gpu->cgroup_count++];
    memset(cgroup, 0, sizeof *cgroup);
    cgroup->limited = !absent(line, 2);
    return (!cgroup->limited
            || (number(line, 2, UINT64_MAX, &cgroup->soft) && number(line, 3, UINT64_MAX, &cgroup->hard)))
        && number(line, 4, UINT64_MAX, &cgroup->used)
        && percent_decode(line->fields[5], cgroup->path, sizeof cgroup->path);
}

static bool read_fault(const Line *line)
{
    State *state = line->state;
    Fault fault = {.symbol = -1, .gpu = -1};
    uint32_t code, delay, hang, grows, from, times;
    uint64_t gpu;
    if (strcmp(line->fields[1], "*") != 0) {
        for (int symbol = 0; symbol < SYMBOL_COUNT && fault.symbol < 0; symbol++) {
            if (strcmp(line->fields[1], symbol_names[symbol]) == 0)
                fault.symbol = symbol;
        }
        if (fault.symbol < 0)
            return false;
    }
    if (strcmp(line->fields[2], "*") != 0) {
        if (!number(line, 2, INT32_MAX, &gpu))
            return false;
        fault.gpu = (int)gpu;
    }
    if (!word(line, 3, &from) || !word(line, 4, &times) || !word(line, 5, &code) || !word(line, 6, &delay)
        || !word(line, 7, &hang) || !word(line, 8, &grows))
        return false;
    fault.from = from;
    fault.times = times;
    fault.code = (nvmlReturn_t)code;
    fault.delay_ms = delay;
    fault.hang = hang != 0;
    fault.grows = grows;
    fault.line = fault_line(line->line_text);
    state->faults = grown(state->faults, state->fault_count, &state->fault_capacity, sizeof *state->faults);
    state->faults[state->fault_count++] = fault;
    return true;
}

/* Adds a row, or folds it into one of the same process: summed over instances, or the highest of several lists. */
static void merge_row(RowList *list, const Row *row, bool sum)
{
    for (size_t i = 0; i < list->count; i++) {
        Row *same = &list->rows[i];
        bool instance = same->gpuInstanceId == row->gpuInstanceId && same->computeInstanceId == row->computeInstanceId;
        if (same->pid != row->pid || (!sum && !instance))
            continue;
        bool unknown = same->usedGpuMemory == VALUE_UNKNOWN || row->usedGpuMemory == VALUE_UNKNOWN;
        if (sum && !unknown)
            same->usedGpuMemory += row->usedGpuMemory;
        else if (sum || row->usedGpuMemory > same->usedGpuMemory)
            same->usedGpuMemory = unknown ? VALUE_UNKNOWN : row->usedGpuMemory;
        same->gpuInstanceId = row->gpuInstanceId; /* the driver leaves the ids of the last instance */
        same->computeInstanceId = row->computeInstanceId;
        return;
    }
    add_row(list, row);
}

static void merge_all(RowList lists[LIST_COUNT])
{
    for (int list = LIST_COMPUTE; list <= LIST_MPS; list++) {
        for (size_t i = 0; i < lists[list].count; i++)
            merge_row(&lists[LIST_ALL], &lists[list].rows[i], false);
    }
}

/* Under MIG each instance has lists of its own, and the GPU's list has one row per process. */
static void split_by_instance(Gpu *gpu)
{
    for (int list = LIST_COMPUTE; list <= LIST_MPS; list++) {
        RowList merged = {0};
        for (size_t i = 0; i < gpu->lists[list].count; i++) {
            const Row *row = &gpu->lists[list].rows[i];
            merge_row(&merged, row, true);
            for (size_t j = 0; j < gpu->mig_count; j++) {
                MigDevice *mig = &gpu->migs[j];
                bool everywhere = row->computeInstanceId == INSTANCE_NONE;
                if (row->gpuInstanceId == mig->gi && (everywhere || row->computeInstanceId == mig->ci))
                    add_row(&mig->lists[list], row);
            }
        }
        free(gpu->lists[list].rows);
        gpu->lists[list] = merged;
    }
    for (size_t j = 0; j < gpu->mig_count; j++)
        merge_all(gpu->migs[j].lists);
}

static void index_targets(State *state)
{
    state->target_count = identity_count();
    state->targets = zeroed((state->target_count + 1) * sizeof *state->targets);
    for (size_t i = 0; i < state->gpu_count; i++) {
        Gpu *gpu = &state->gpus[i];
        state->targets[gpu->identity] = (Target){.gpu = gpu};
        for (size_t j = 0; gpu->mig_current == 1 && j < gpu->mig_count; j++)
            state->targets[gpu->migs[j].identity] = (Target){.gpu = gpu, .mig = &gpu->migs[j]};
    }
}

static const struct {
    const char *kind;
    size_t fields;
    bool (*read)(const Line *line);
} readers[] = {
    {"driver", 9, read_driver}, {"gpu", 18, read_gpu},       {"instance", 9, read_instance}, {"mig", 8, read_mig},
    {"row", 8, read_row},       {"sample", 10, read_sample}, {"cgroup", 6, read_cgroup},     {"fault", 9, read_fault},
};

static bool read_line(State *state, char *text)
{
    char whole[512]; /* faults are kept by their text; the longest other line needs no copy */
    snprintf(whole, sizeof whole, "%s", text);
    Line line = {.state = state, .line_text = whole};
    char *rest = text;
    for (char *field; (field = strsep(&rest, " ")) != NULL;) {
        if (line.count == MAX_FIELDS)
            return false;
        line.fields[line.count++] = field;
    }
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (strcmp(line.fields[0], readers[i].kind) == 0)
            return line.count == readers[i].fields && readers[i].read(&line);
    }
    return false;
}

void state_parse(State *state, char *text)
{
    size_t number = 0;
    bool driver = false;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        if (*line == '\0' && rest == NULL)
            break;
        driver = driver || strncmp(line, "driver ", 7) == 0;
        bool good = number == 1 ? strcmp(line, "podgpu-nvml 1") == 0 : read_line(state, line);
        if (!good) {
            fprintf(stderr, "simulated NVML: line %zu of the state file makes no sense\n", number);
            state->error = NVML_ERROR_UNKNOWN;
            return;
        }
    }
    if (!driver) {
        fputs("simulated NVML: the state file has no driver line\n", stderr);
        state->error = NVML_ERROR_UNKNOWN;
        return;
    }
    for (size_t i = 0; i < state->gpu_count; i++) {
        if (state->gpus[i].mig_current == 1)
            split_by_instance(&state->gpus[i]);
        merge_all(state->gpus[i].lists);
    }
    index_targets(state);
}

void state_free(State *state)
{
    for (size_t i = 0; i < state->gpu_count; i++) {
        Gpu *gpu = &state->gpus[i];
        for (int list = 0; list < LIST_COUNT; list++) {
            free(gpu->lists[list].rows);
            for (size_t j = 0; j < gpu->mig_count; j++)
                free(gpu->migs[j].lists[list].rows);
        }
        free(gpu->instances);
        free(gpu->migs);
        free(gpu->samples);
        free(gpu->cgroups);
    }
    free(state->gpus);
    free(state->faults);
    free(state->targets);
    free(state);
}
