/*
 * What every call has in common: it is counted, it may be spoilt by a fault, and it needs a device of the newest state.
 *
 * A body starts with one of the call_* functions and returns through call_end, whatever the code, so that the
 * reference to the state is given back.
 */
#ifndef PODGPU_NVML_CALL_H
#define PODGPU_NVML_CALL_H

#include "state.h"

typedef struct {
    const State *state;
    const Gpu *gpu;
    const MigDevice *mig;
    unsigned hidden; /* rows that appear only after this call */
} Call;

typedef Target (*Finder)(const State *state, const void *key);

/* nvmlInit*: allowed before init. */
nvmlReturn_t call_init(Call *call, Symbol symbol);
/* A call without a device. */
nvmlReturn_t call_system(Call *call, Symbol symbol);
/* A call that searches a device: `gpu` stays NULL when there is none. */
nvmlReturn_t call_search(Call *call, Symbol symbol, Finder find, const void *key);
/* A call on a device handle: succeeds only with `gpu` set, and `mig` too for the handle of a MIG device. */
nvmlReturn_t call_device(Call *call, Symbol symbol, nvmlDevice_t device);
nvmlReturn_t call_end(Call *call, nvmlReturn_t code);

/* system.c */
bool library_initialised(void);

/* counters.c */
void counters_open(const char *path);
void counters_add(Symbol symbol, const Gpu *gpu);

/* Answers a string; INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t answer_text(const char *text, char *out, unsigned size);
/* Ends the call with a number; with INVALID_ARGUMENT when there is no place for it. */
nvmlReturn_t answer_number(Call *call, nvmlReturn_t code, unsigned value, unsigned *out);

#endif
