/* The common course of a call, and the faults: wrong answers, delays, hangs, lists that grow. */
#include <string.h>
#include <time.h>

#include "call.h"

typedef struct {
    nvmlReturn_t code;
    unsigned delay_ms;
    unsigned grows;
    const FaultLine *hang;
} Effect;

static void pause_for(unsigned milliseconds)
{
    struct timespec left = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0)
        continue;
}

static bool life_cycle(Symbol symbol)
{
    return symbol == SYM_nvmlInit || symbol == SYM_nvmlInit_v2 || symbol == SYM_nvmlInitWithFlags
        || symbol == SYM_nvmlShutdown;
}

/* Every fault that this call is the turn of. Delays add up, the first code counts. */
static Effect faults_of(const Call *call, Symbol symbol)
{
    Effect effect = {0};
    for (size_t i = 0; i < call->state->fault_count; i++) {
        const Fault *fault = &call->state->faults[i];
        if (fault->symbol >= 0 ? fault->symbol != (int)symbol : life_cycle(symbol))
            continue;
        if (fault->gpu >= 0 && (call->gpu == NULL || call->gpu->index != (unsigned)fault->gpu))
            continue;
        unsigned long turn = atomic_fetch_add(&fault->line->calls, 1) + 1;
        if (turn < fault->from || (fault->times > 0 && turn >= fault->from + fault->times))
            continue;
        if (effect.code == NVML_SUCCESS)
            effect.code = fault->code;
        effect.delay_ms += fault->delay_ms;
        effect.grows += fault->grows;
        if (fault->hang && effect.hang == NULL)
            effect.hang = fault->line;
    }
    return effect;
}

static bool holds(const State *state, const FaultLine *hang)
{
    for (size_t i = 0; i < state->fault_count; i++) {
        if (state->faults[i].hang && state->faults[i].line == hang)
            return true;
    }
    return false;
}

/* Waits as the fault says, and then goes on with the state of that later moment. */
static void wait_for(Call *call, const Effect *effect)
{
    state_release(call->state);
    pause_for(effect->delay_ms);
    call->state = state_acquire();
    while (effect->hang != NULL && holds(call->state, effect->hang)) {
        state_release(call->state);
        pause_for(2);
        call->state = state_acquire();
    }
}

static void resolve(Call *call, Finder find, const void *key)
{
    Target target = find != NULL ? find(call->state, key) : (Target){0};
    call->gpu = target.gpu;
    call->mig = target.mig;
}

static nvmlReturn_t begin(Call *call, Symbol symbol, Finder find, const void *key)
{
    *call = (Call){.state = state_acquire()};
    resolve(call, find, key);
    counters_add(symbol, call->gpu);
    if (!library_initialised() && !life_cycle(symbol))
        return NVML_ERROR_UNINITIALIZED;
    if (call->state->fault_count == 0)
        return call->state->error;
    Effect effect = faults_of(call, symbol);
    call->hidden = effect.grows;
    if (effect.delay_ms > 0 || effect.hang != NULL) {
        wait_for(call, &effect);
        resolve(call, find, key);
    }
    return effect.code != NVML_SUCCESS ? effect.code : call->state->error;
}

nvmlReturn_t call_init(Call *call, Symbol symbol)
{
    nvmlReturn_t code = begin(call, symbol, NULL, NULL);
    return code != NVML_SUCCESS ? code : call->state->init_code;
}

nvmlReturn_t call_system(Call *call, Symbol symbol)
{
    return begin(call, symbol, NULL, NULL);
}

nvmlReturn_t call_search(Call *call, Symbol symbol, Finder find, const void *key)
{
    return begin(call, symbol, find, key);
}

nvmlReturn_t call_device(Call *call, Symbol symbol, nvmlDevice_t device)
{
    nvmlReturn_t code = begin(call, symbol, find_handle, device);
    if (code != NVML_SUCCESS || call->gpu != NULL)
        return code;
    return handle_was_gpu(device) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t call_end(Call *call, nvmlReturn_t code)
{
    state_release(call->state);
    return code;
}

nvmlReturn_t answer_text(const char *text, char *out, unsigned size)
{
    size_t needed = strlen(text) + 1;
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (needed > size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, needed);
    return NVML_SUCCESS;
}

nvmlReturn_t answer_number(Call *call, nvmlReturn_t code, unsigned value, unsigned *out)
{
    if (code == NVML_SUCCESS && out == NULL)
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS)
        *out = value;
    return call_end(call, code);
}
