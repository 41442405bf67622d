/*
 * What the examples share: memory that the kernels reach (of the GPU, or of the host for the CPU
 * backend) by the CUDA runtime, which is linked statically and finds out by itself that there is no
 * driver, and 16-bit numbers.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <attngen/gen.h>

#include <cuda_runtime_api.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The GPU of ordinal 0 where there is one, else the CPU backend. */
static inline gen_device example_device(void)
{
    gen_device device;
    int count = 0;
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 ||
        cudaSetDevice(0) != cudaSuccess || gen_device_query(0, &device) != GEN_OK)
        (void)gen_device_named("cpu", &device);
    return device;
}

static inline int example_has_gpu(const gen_device *device)
{
    return device->backend == GEN_BACKEND_CUDA;
}

static inline void example_need(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, gen_last_error());
    exit(1);
}

/* Zeroed, 256-byte aligned. */
static inline void *example_memory(const gen_device *device, size_t size)
{
    void *memory = NULL;
    size = (size + 255) / 256 * 256 + 256;
    if (example_has_gpu(device))
        example_need(cudaMalloc(&memory, size) == cudaSuccess &&
                         cudaMemset(memory, 0, size) == cudaSuccess,
                     "cudaMalloc");
    else
        example_need((memory = aligned_alloc(256, size)) != NULL && memset(memory, 0, size) != NULL,
                     "aligned_alloc");
    return memory;
}

static inline void example_free(const gen_device *device, void *memory)
{
    if (example_has_gpu(device))
        (void)cudaFree(memory);
    else
        free(memory);
}

/* Both ways, and between host and host for the CPU backend. */
static inline void example_copy(void *to, const void *from, size_t size)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        memcpy(to, from, size);
    else
        example_need(cudaMemcpy(to, from, size, cudaMemcpyDefault) == cudaSuccess, "cudaMemcpy");
}

static inline uint16_t example_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float example_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif /* EXAMPLE_H */
