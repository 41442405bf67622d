/*
 * From a problem and its arguments to a launch: a plan out of the thread's cache,
 * the workspace, the device's context and stream. Or, where the flags ask for
 * words, what was chosen and why.
 */
#include "ffi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/extra/c_env_api.h>

#define NUM_PLANS 16 /* of a thread */
#define MAX_PROBLEM 96
#define ALIGNMENT 256

/* A thread keeps the plans of its last problems, so that no lock is taken. */
struct kept {
    uint32_t library_id; /* 0: nothing is kept */
    int32_t device_type, device_id;
    uint32_t size;
    unsigned char problem[MAX_PROBLEM];
    gen_plan plan;
};
static _Thread_local struct kept kept[NUM_PLANS];
static _Thread_local uint64_t hits;

static uint32_t hash(const struct ffi_call *call, const gen_problem *problem)
{
    uint64_t h = call->library_id * 31u + (uint32_t)call->device.device_id;
    const unsigned char *bytes = (const unsigned char *)problem;
    for (uint32_t i = 0; i + 4 <= problem->size; i += 4) {
        uint32_t word;
        memcpy(&word, bytes + i, sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32);
}

/* The plan of a problem on the tensors' device; NULL, and the error. */
static const gen_plan *plan_of(struct ffi_call *call, const gen_problem *problem)
{
    struct kept *k = &kept[hash(call, problem) % NUM_PLANS];
    if (k->library_id == call->library_id && k->size == problem->size &&
        k->device_type == (int32_t)call->device.device_type &&
        k->device_id == call->device.device_id && !memcmp(k->problem, problem, problem->size)) {
        hits++;
        return &k->plan;
    }
    gen_device device;
    gen_plan plan = {.size = sizeof plan};
    if (problem->size > MAX_PROBLEM) {
        ffi_fail(call, "RuntimeError", "the problem has %u bytes; allowed: %d", problem->size,
                 MAX_PROBLEM);
        return NULL;
    }
    if (ffi_device(call, &device) ||
        ffi_status(call, gen_select(call->library, &device, problem, &plan)))
        return NULL;
    *k = (struct kept){.library_id = call->library_id,
                       .device_type = (int32_t)call->device.device_type,
                       .device_id = call->device.device_id,
                       .size = problem->size,
                       .plan = plan};
    memcpy(k->problem, problem, problem->size);
    return &k->plan;
}

/* ---- the workspace --------------------------------------------------------- */

struct workspace {
    void *data, *owned; /* owned: of malloc() */
    TVMFFIObjectHandle tensor;
};

static int given_workspace(struct ffi_call *call, uint64_t bytes, struct workspace *w)
{
    const DLTensor *t = call->workspace;
    const bool on_gpu = call->device.device_type == kDLCUDA;
    const uint64_t item = ((uint64_t)t->dtype.bits * t->dtype.lanes + 7) / 8;
    const uint64_t found = (uint64_t)ffi_elements(t) * item;
    if (on_gpu != (t->device.device_type == kDLCUDA) ||
        (on_gpu && t->device.device_id != call->device.device_id))
        return ffi_fail(call, "ValueError", "workspace is on another device than %s",
                        call->device_from);
    if (found < bytes)
        return ffi_fail(call, "ValueError",
                        "workspace has %" PRIu64 " bytes; %" PRIu64 " are wanted", found, bytes);
    for (int i = t->ndim - 1, contiguous = 1; i >= 0; i--) {
        if (t->shape[i] != 1 && ffi_stride(t, i) != contiguous)
            return ffi_fail(call, "ValueError", "workspace is not contiguous");
        contiguous *= (int)t->shape[i];
    }
    w->data = ffi_data(t);
    return 0;
}

/* From the caller, else from the C library (CPU) or the caller's framework, whose allocators go by
 * the stream, so that the memory may be given back as soon as the launch is on its way. */
static int get_workspace(struct ffi_call *call, uint64_t bytes, struct workspace *w)
{
    if (bytes == 0)
        return 0;
    if (call->workspace)
        return given_workspace(call, bytes, w);
    if (call->device.device_type == kDLCPU) {
        w->owned = w->data = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) & ~(uint64_t)255);
        return w->data ? 0 : ffi_fail(call, "MemoryError", "%" PRIu64 " bytes of workspace", bytes);
    }
    int64_t shape = (int64_t)bytes;
    DLTensor prototype = {.device = call->device, .ndim = 1, .dtype = {kDLUInt, 8, 1}};
    prototype.shape = &shape;
    if (TVMFFIEnvTensorAlloc(&prototype, &w->tensor)) {
        call->failed = true; /* the error is set */
        return -1;
    }
    w->data = ffi_data((const DLTensor *)(const void *)((const TVMFFIObject *)w->tensor + 1));
    return 0;
}

static void put_workspace(struct workspace *w)
{
    free(w->owned);
    if (w->tensor)
        TVMFFIObjectDecRef(w->tensor);
}

/* ---- running --------------------------------------------------------------- */

static int launch(struct ffi_call *call, const gen_plan *plan, const gen_args *args)
{
    struct workspace w = {0};
    struct ffi_context context = {false};
    const bool on_gpu = call->device.device_type == kDLCUDA;
    gen_stream stream = NULL;
    if (on_gpu) {
        if (ffi_enter(call, call->device.device_id, &context))
            return -1;
        stream = TVMFFIEnvGetStream(kDLCUDA, call->device.device_id);
    }
    if (!get_workspace(call, plan->workspace_bytes, &w))
        ffi_status(call, gen_launch(call->library, plan, args, w.data, stream));
    put_workspace(&w);
    ffi_leave(&context);
    return call->failed ? -1 : 0;
}

int ffi_run(struct ffi_call *call, const gen_problem *problem, const gen_args *args)
{
    if (call->failed)
        return -1;
    *call->result = (TVMFFIAny){.type_index = kTVMFFINone};
    if (call->flags & (FFI_SELECT | FFI_EXPLAIN)) {
        gen_device device;
        return ffi_device(call, &device) ? -1 : ffi_tell(call, &device, problem);
    }
    const gen_plan *plan = plan_of(call, problem);
    return plan ? launch(call, plan, args) : -1;
}

int FFI_EXPORT __tvm_ffi_plan_cache_hits(void *handle, const TVMFFIAny *args, int32_t num_args,
                                         TVMFFIAny *result);

/* plan_cache_hits() -> how many calls of this thread found their plan kept */
int __tvm_ffi_plan_cache_hits(void *handle, const TVMFFIAny *args, int32_t num_args,
                              TVMFFIAny *result)
{
    (void)handle, (void)args, (void)num_args;
    *result = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = (int64_t)hits};
    return 0;
}
