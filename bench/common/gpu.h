/*
 * gpu.h - a GPU as the bench programs use it: one context (the primary one, or
 * a green context of some SMs), one stream, memory, events, graphs.
 *
 * Calls return GEN_OK or a status with gen_last_error() set, as the runtime's
 * do. Not thread-safe.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include "core/status.h"
#include "cuda/driver.h"
#include "gen.h"

#include <cuda.h>
#include <stdbool.h>

struct gpu_api; /* driver functions beyond the runtime's */

struct gpu {
    const struct gen__driver *driver;
    const struct gpu_api *api;
    gen_device device; /* num_sms: what the context may use */
    CUdevice handle;
    CUcontext context;
    CUgreenCtx green; /* NULL: the primary context */
    CUstream stream;
    CUevent start, stop;
    char class_name[32];     /* "sm90_132sm" */
    char cuda_version[16];   /* what the driver supports, "13.0" */
    char driver_version[32]; /* the kernel module's, "580.82.07"; "-" if unknown */
};

/* Opens CUDA device `ordinal` and makes its context current. sms > 0: a green
 * context of that many SMs (rounded up by the driver to what the architecture
 * allows; device.num_sms says what came of it). Errors: NO_DRIVER, NO_DEVICE,
 * DRIVER, INVALID_ARGUMENT (more SMs than there are). */
enum gen_status gpu_open(struct gpu *gpu, int ordinal, long sms);
void gpu_close(struct gpu *gpu);
/* gen_device_named(), which says what class it took where the name, as "sm_90", leaves that open.
 */
enum gen_status gpu_named(const char *name, gen_device *device);

/* True once a call failed in a way that ruins the context (an illegal address,
 * say): the process can do no more on this GPU. */
bool gpu_is_lost(const struct gpu *gpu);

enum gen_status gpu_alloc(const struct gpu *gpu, uint64_t size, CUdeviceptr *memory);
void gpu_free(const struct gpu *gpu, CUdeviceptr memory);

/* In stream order; upload and download return when done. */
enum gen_status gpu_upload(const struct gpu *gpu, CUdeviceptr to, const void *from, uint64_t size);
enum gen_status gpu_download(const struct gpu *gpu, void *to, CUdeviceptr from, uint64_t size);
enum gen_status gpu_copy(const struct gpu *gpu, CUdeviceptr to, CUdeviceptr from, uint64_t size);
enum gen_status gpu_set(const struct gpu *gpu, CUdeviceptr to, uint8_t byte, uint64_t size);
enum gen_status gpu_sync(const struct gpu *gpu);

/* Device time between two marks on the stream. */
enum gen_status gpu_mark_start(const struct gpu *gpu);
enum gen_status gpu_mark_stop(const struct gpu *gpu);
/* Waits for the stop mark. */
enum gen_status gpu_elapsed_us(const struct gpu *gpu, double *us);

/* What runs on the stream between begin and end becomes a graph. A failure
 * inside still wants end(), with *graph NULL afterwards. */
enum gen_status gpu_capture_begin(const struct gpu *gpu);
enum gen_status gpu_capture_end(const struct gpu *gpu, CUgraphExec *graph);
enum gen_status gpu_graph_launch(const struct gpu *gpu, CUgraphExec graph);
void gpu_graph_free(const struct gpu *gpu, CUgraphExec graph);

/* Another stream or context of the same device, for tests. */
enum gen_status gpu_stream_create(const struct gpu *gpu, CUstream *stream);
void gpu_stream_destroy(const struct gpu *gpu, CUstream stream);
enum gen_status gpu_stream_sync(const struct gpu *gpu, CUstream stream);
enum gen_status gpu_context_create(const struct gpu *gpu, CUcontext *context);
void gpu_context_destroy(const struct gpu *gpu, CUcontext context);
enum gen_status gpu_context_use(const struct gpu *gpu, CUcontext context);

#endif /* BENCH_GPU_H */
