/*
 * The CUDA driver, opened at run time: libcuda.so.1, or what the environment
 * variable GEN_LIBCUDA names. Nothing links against libcuda, and its header is
 * not needed either: the few functions and numbers used are declared here, in
 * terms of the driver's stable binary interface.
 */
#ifndef GEN_DRIVER_H
#define GEN_DRIVER_H

#include "core/status.h"
#include "gen.h"

/* X(function, parameters): the one place that names the driver's functions.
 * Each returns a CUresult. Handles (CUlibrary, CUkernel, CUfunction, CUcontext)
 * are pointers; CUdevice, CUdevice_attribute and CUresult are ints. */
#define GEN__DRIVER_MAP(X)                                                                    \
    X(cuInit, (unsigned flags))                                                               \
    X(cuGetErrorName, (int result, const char **name))                                        \
    X(cuGetErrorString, (int result, const char **text))                                      \
    X(cuDeviceGetCount, (int *count))                                                         \
    X(cuDeviceGet, (int *device, int ordinal))                                                \
    X(cuDeviceGetName, (char *name, int capacity, int device))                                \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))                          \
    X(cuCtxGetCurrent, (void **context))                                                      \
    X(cuCtxGetDevice, (int *device))                                                          \
    X(cuStreamIsCapturing, (gen_stream stream, int *status))                                  \
    X(cuLibraryLoadData,                                                                      \
      (void **library, const void *image, int *jit_options, void **jit_values,                \
       unsigned num_jit_options, int *options, void **values, unsigned num_options))          \
    X(cuLibraryUnload, (void *library))                                                       \
    X(cuLibraryGetKernel, (void **kernel, void *library, const char *symbol))                 \
    X(cuKernelGetFunction, (void **function, void *kernel))                                   \
    X(cuKernelSetAttribute, (int attribute, int value, void *kernel, int device))             \
    X(cuLaunchKernel, (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,     \
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, \
                       gen_stream stream, void **params, void **extra))                       \
    X(cuLaunchKernelEx,                                                                       \
      (const struct gen__launch_config *config, void *function, void **params, void **extra))

/* Used where the driver has them (cuFuncLoad: CUDA 12.4), NULL where not. */
#define GEN__DRIVER_OPTIONAL_MAP(X)                                                         \
    X(cuFuncLoad, (void *function))                                                         \
    X(cuTensorMapEncodeTiled,                                                               \
      (void *map, int type, unsigned rank, void *memory, const uint64_t *extent,            \
       const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, \
       int swizzle, int promotion, int fill))

/* Of enum cudaError_enum. */
enum gen__driver_result {
    GEN__CUDA_NO_DEVICE = 100,
    GEN__CUDA_INVALID_CONTEXT = 201,
    GEN__CUDA_NO_BINARY = 209,
    GEN__CUDA_CAPTURE_IMPLICIT = 906
};

/* Of CUdevice_attribute and CUfunction_attribute. */
enum gen__driver_attribute {
    GEN__DEVICE_NUM_SMS = 16,
    GEN__DEVICE_MEMORY_CLOCK = 36, /* kHz */
    GEN__DEVICE_BUS_WIDTH = 37,    /* bits */
    GEN__DEVICE_L2_BYTES = 38,
    GEN__DEVICE_MAJOR = 75,
    GEN__DEVICE_MINOR = 76,
    GEN__DEVICE_SHARED_PER_SM = 81,
    GEN__DEVICE_SHARED_PER_BLOCK = 97, /* opt-in */
    GEN__KERNEL_MAX_DYNAMIC_SHARED = 8,
    GEN__KERNEL_ANY_CLUSTER = 14 /* of sizes that not every device has room for, too */
};

/* Of CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle,
 * CUtensorMapL2promotion and CUtensorMapFloatOOBfill. */
enum gen__driver_tensor_map {
    GEN__TENSOR_UINT8 = 0,
    GEN__TENSOR_FP16 = 6,
    GEN__TENSOR_BF16 = 9,
    GEN__TENSOR_NOT_INTERLEAVED = 0,
    GEN__TENSOR_SWIZZLE_64 = 2, /* bytes: the width of a box */
    GEN__TENSOR_SWIZZLE_128 = 3,
    GEN__TENSOR_L2_NONE = 0, /* brings what is asked for and no more */
    GEN__TENSOR_ZEROS_OUTSIDE = 0
};

/* CUlaunchAttribute with its number for programmatic stream serialization, and CUlaunchConfig. */
struct gen__launch_attribute {
    int id; /* GEN__LAUNCH_DEPENDENT */
    char pad[4];
    union {
        char bytes[64];
        int allowed;
        uint64_t align; /* the driver's union holds pointers */
    } value;
};
enum { GEN__LAUNCH_DEPENDENT = 6 };

struct gen__launch_config {
    unsigned grid[3], block[3];
    unsigned shared; /* bytes */
    gen_stream stream;
    struct gen__launch_attribute *attributes;
    unsigned num_attributes;
};

struct gen__driver {
#define GEN__DRIVER_MEMBER(function, parameters) int(*function) parameters;
    GEN__DRIVER_MAP(GEN__DRIVER_MEMBER)
    GEN__DRIVER_OPTIONAL_MAP(GEN__DRIVER_MEMBER)
#undef GEN__DRIVER_MEMBER
    void *handle; /* of dlopen() */
};

/* Opens and initializes the driver at the first call that succeeds; later
 * calls return the same table. A failure is not remembered, so a later call
 * tries again. Thread-safe. Errors: NO_DRIVER, NO_DEVICE, DRIVER. */
enum gen_status gen__driver_open(const struct gen__driver **driver);

/* Another function of the driver by its versioned symbol (cuMemAlloc_v2), for
 * programs that need more than the runtime does; NULL if the driver is not
 * open or lacks it. */
void *gen__driver_symbol(const char *symbol);

/* Sets the message "<what>: <call> returned <name> (<number>): <text>" and
 * returns GEN_STATUS_DRIVER. */
enum gen_status gen__driver_fail(const struct gen__driver *driver, int result, const char *call,
                                 const char *what);

/* GEN_OK, or the failure of a call. */
#define GEN__CALL(driver, what, function, ...) \
    gen__driver_status((driver), (driver)->function(__VA_ARGS__), #function, (what))
static inline enum gen_status gen__driver_status(const struct gen__driver *driver, int result,
                                                 const char *call, const char *what)
{
    return result ? gen__driver_fail(driver, result, call, what) : GEN_OK;
}

/* Forgets the driver, so that the next call opens it anew: for tests alone, with
 * no library open and no other thread in the runtime. */
void gen__driver_reset(void);

#endif /* GEN_DRIVER_H */
