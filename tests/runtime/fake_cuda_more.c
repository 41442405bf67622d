/* What the bench programs use of libcuda beyond the runtime: memory, copies,
 * events, streams, graphs, green contexts. Device memory is host memory and
 * everything has happened when its call returns. */
#include "fake_cuda.h"

#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define SM_GRANULARITY 8u

#define ENTER(function)                        \
    do {                                       \
        int fate = fake_cuda_enter(#function); \
        if (fate)                              \
            return (CUresult)fate;             \
    } while (0)

struct CUctx_st {
    unsigned num_sms;
};

struct CUstream_st {
    int capturing;
    struct CUctx_st *context;
};

struct CUevent_st {
    struct timespec at;
};

struct CUgreenCtx_st {
    struct CUctx_st context;
};

struct CUdevResourceDesc_st {
    unsigned num_sms;
};

static struct CUctx_st primary[FAKE_MAX_DEVICES];
static int device_before, none_before; /* the push, of which there is one at a time */
static int graph_object; /* graphs are empty: launches are booked as they are captured */

int fake_cuda_capturing(void *stream)
{
    return stream && ((struct CUstream_st *)stream)->capturing;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    ENTER(cuDriverGetVersion);
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* ---- contexts ---------------------------------------------------------- */

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRetain);
    primary[device].num_sms = (unsigned)fake_cuda_get()->devices[device].num_sms;
    *context = &primary[device];
    return CUDA_SUCCESS;
}

/* Of primary contexts alone. */
EXPORT CUresult cuCtxPushCurrent(CUcontext context)
{
    ENTER(cuCtxPushCurrent);
    device_before = fake_cuda_get()->current_device;
    none_before = fake_cuda_get()->no_context;
    fake_cuda_get()->current_device = (int)(context - primary);
    fake_cuda_get()->no_context = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context)
{
    ENTER(cuCtxPopCurrent);
    *context = &primary[fake_cuda_get()->current_device];
    fake_cuda_get()->current_device = device_before;
    fake_cuda_get()->no_context = none_before;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    ENTER(cuDevicePrimaryCtxRelease);
    (void)device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *params, unsigned flags,
                            CUdevice device)
{
    ENTER(cuCtxCreate);
    (void)params, (void)flags;
    *context = calloc(1, sizeof(**context));
    if (!*context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*context)->num_sms = (unsigned)fake_cuda_get()->devices[device].num_sms;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    ENTER(cuCtxDestroy);
    free(context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER(cuCtxSetCurrent);
    fake_cuda_get()->no_context = context == NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
    ENTER(cuCtxSynchronize);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource,
                                       CUdevResourceType type)
{
    ENTER(cuDeviceGetDevResource);
    memset(resource, 0, sizeof(*resource));
    resource->type = type;
    resource->sm.smCount = (unsigned)fake_cuda_get()->devices[device].num_sms;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *num_groups,
                                            const CUdevResource *input, CUdevResource *remaining,
                                            unsigned flags, unsigned min_count)
{
    ENTER(cuDevSmResourceSplitByCount);
    (void)flags;
    const unsigned count = (min_count + SM_GRANULARITY - 1) / SM_GRANULARITY * SM_GRANULARITY;
    if (count == 0 || count > input->sm.smCount)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    const unsigned most = input->sm.smCount / count;
    if (*num_groups > most)
        *num_groups = most;
    for (unsigned i = 0; result && i < *num_groups; i++) {
        result[i] = *input;
        result[i].sm.smCount = count;
    }
    if (remaining) {
        *remaining = *input;
        remaining->sm.smCount = input->sm.smCount - *num_groups * count;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
                                          unsigned num_resources)
{
    ENTER(cuDevResourceGenerateDesc);
    *desc = calloc(1, sizeof(**desc));
    if (!*desc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < num_resources; i++)
        (*desc)->num_sms += resources[i].sm.smCount;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device,
                                 unsigned flags)
{
    ENTER(cuGreenCtxCreate);
    (void)device, (void)flags;
    *green = calloc(1, sizeof(**green));
    if (!*green)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*green)->context.num_sms = desc->num_sms;
    free(desc);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    ENTER(cuGreenCtxDestroy);
    free(green);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    ENTER(cuCtxFromGreenCtx);
    *context = &green->context;
    return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------ */

EXPORT CUresult cuMemAlloc(CUdeviceptr *memory, size_t size)
{
    ENTER(cuMemAlloc);
    void *at = size ? aligned_alloc(256, (size + 255) / 256 * 256) : NULL;
    if (!at)
        return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    *memory = (CUdeviceptr)(uintptr_t)at;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree(CUdeviceptr memory)
{
    ENTER(cuMemFree);
    free((void *)(uintptr_t)memory);
    return CUDA_SUCCESS;
}

static CUresult copy(void *to, const void *from, size_t size)
{
    memmove(to, from, size);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    ENTER(cuMemcpyHtoDAsync);
    (void)stream;
    return copy((void *)(uintptr_t)to, from, size);
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER(cuMemcpyDtoHAsync);
    (void)stream;
    return copy(to, (const void *)(uintptr_t)from, size);
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER(cuMemcpyDtoDAsync);
    (void)stream;
    return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream stream)
{
    ENTER(cuMemsetD8Async);
    (void)stream;
    memset((void *)(uintptr_t)to, byte, size);
    return CUDA_SUCCESS;
}

/* ---- streams, events, graphs ------------------------------------------- */

static CUresult new_stream(CUstream *stream, struct CUctx_st *context)
{
    *stream = calloc(1, sizeof(**stream));
    if (!*stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*stream)->context = context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(cuStreamCreate);
    (void)flags;
    return new_stream(stream, &primary[0]);
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags,
                                       int priority)
{
    ENTER(cuGreenCtxStreamCreate);
    (void)flags, (void)priority;
    return new_stream(stream, &green->context);
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    ENTER(cuStreamDestroy);
    free(stream);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER(cuStreamSynchronize);
    return stream && stream->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(cuEventCreate);
    (void)flags;
    *event = calloc(1, sizeof(**event));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
    ENTER(cuEventDestroy);
    free(event);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(cuEventRecord);
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    ENTER(cuEventSynchronize);
    (void)event;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent stop)
{
    ENTER(cuEventElapsedTime);
    *ms = (float)((double)(stop->at.tv_sec - start->at.tv_sec) * 1e3 +
                  (double)(stop->at.tv_nsec - start->at.tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    ENTER(cuStreamBeginCapture);
    (void)mode;
    if (!stream || stream->capturing)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->capturing = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    ENTER(cuStreamEndCapture);
    if (!stream || !stream->capturing)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->capturing = 0;
    *graph = (CUgraph)(void *)&graph_object;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    ENTER(cuGraphInstantiate);
    (void)flags;
    *exec = (CUgraphExec)(void *)graph;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    ENTER(cuGraphLaunch);
    (void)stream;
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    ENTER(cuGraphExecDestroy);
    (void)exec;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    ENTER(cuGraphDestroy);
    (void)graph;
    return CUDA_SUCCESS;
}
