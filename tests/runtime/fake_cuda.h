/*
 * A libcuda for tests: a shared object with the driver's functions that the
 * runtime and its bindings use, to be named by GEN_LIBCUDA. It keeps books, can
 * fail any call, and runs nothing: a launch is a line in a log. The bench
 * programs' is tests/gpu/sim_cuda.c, which computes.
 *
 * An image is a fatbin header (16 bytes) and, where the test made it, the text
 * "FAKE <compute capability> <symbol>"; compute capability 0 runs anywhere, 90
 * on sm_90 alone. Any other image has every symbol and runs anywhere.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include "cuda/driver.h"

#include <stddef.h>
#include <stdint.h>

#define FAKE_MAX_DEVICES 4
#define FAKE_MAX_LAUNCHES 256
#define FAKE_PARAMS 256

struct fake_device {
    char name[64];
    int major, minor, num_sms;
    int shared_per_block, shared_per_sm, l2_bytes;
    int memory_clock, bus_width; /* kHz, bits */
};

/* What cuDeviceGetAttribute() gives; NULL for what no caller asks for. */
static inline const int *fake_device_attribute(const struct fake_device *device, int attribute)
{
    switch (attribute) {
    case GEN__DEVICE_NUM_SMS:
        return &device->num_sms;
    case GEN__DEVICE_MEMORY_CLOCK:
        return &device->memory_clock;
    case GEN__DEVICE_BUS_WIDTH:
        return &device->bus_width;
    case GEN__DEVICE_L2_BYTES:
        return &device->l2_bytes;
    case GEN__DEVICE_MAJOR:
        return &device->major;
    case GEN__DEVICE_MINOR:
        return &device->minor;
    case GEN__DEVICE_SHARED_PER_SM:
        return &device->shared_per_sm;
    case GEN__DEVICE_SHARED_PER_BLOCK:
        return &device->shared_per_block;
    default:
        return NULL;
    }
}

/* What cuTensorMapEncodeTiled() writes here instead of the driver's secrets. */
struct fake_tensor_map {
    uint64_t memory, extent[4], strides[3];
    uint32_t box[4], steps[4];
    int8_t type, rank, interleave, swizzle, promotion, fill;
};

struct fake_launch {
    const char *symbol;
    unsigned grid[3], threads, shared;
    int dependent; /* a programmatic dependent launch */
    void *stream;
    unsigned char params[FAKE_PARAMS]; /* the first copy_params bytes of the first parameter */
};

struct fake_cuda {
    int num_devices;
    struct fake_device devices[FAKE_MAX_DEVICES];

    /* What the calling threads find. */
    int no_context;     /* cuCtxGetCurrent() gives NULL */
    int current_device; /* of the context there is */
    int capturing;      /* every stream, besides those that began a capture */

    /* The fail_at-th call (1: the next) of fail_function from now on returns
     * fail_result, later ones work again. fail_at 0: never. */
    char fail_function[64];
    int fail_at, fail_result;

    unsigned copy_params; /* bytes, at most FAKE_PARAMS */

    /* Books. The log holds the first FAKE_MAX_LAUNCHES launches. */
    unsigned long num_calls; /* of any function */
    unsigned long num_launches, num_loads, num_unloads, num_attributes, num_func_loads;
    unsigned long num_clusters; /* times that a kernel was allowed clusters of any size */
    struct fake_launch launches[FAKE_MAX_LAUNCHES];
};

/* The one control block of the shared object: two devices, an H200 and an
 * A100, and nothing that fails. Change it while no call is under way. */
struct fake_cuda *fake_cuda_get(void);

/* Sets everything back. */
void fake_cuda_reset(void);

/* How often a function was called since the last reset. */
unsigned long fake_cuda_calls(const char *function);

#endif /* FAKE_CUDA_H */
