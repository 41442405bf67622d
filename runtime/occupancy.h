/*
 * How many blocks of a variant one SM holds at once: the CUDA occupancy rules
 * from a variant's static facts, without a driver.
 */
#ifndef GEN_OCCUPANCY_H
#define GEN_OCCUPANCY_H

#include "family.h"

/* Resident limits that differ by compute capability. */
struct gen__sm_limits {
    uint32_t threads, blocks;
};

static inline struct gen__sm_limits gen__sm_limits(uint32_t compute_capability)
{
    switch (compute_capability) {
    case 86:
    case 87:
        return (struct gen__sm_limits){1536, 16};
    case 89:
    case 110:
    case 120:
    case 121:
        return (struct gen__sm_limits){1536, 24};
    default: /* 80, 90, 100, 103 */
        return (struct gen__sm_limits){2048, 32};
    }
}

/* At least 1: a variant that does not fit at all is refused before. */
static inline uint32_t gen__blocks_per_sm(const gen_device *device,
                                          const struct gen__facts *variant)
{
    /* Registers are handed out to warps in units of 256, warps to the four
     * quarters of the SM; the driver keeps 1 KiB of shared memory a block and
     * hands out the rest in units of 128 bytes. */
    enum { REGISTERS_PER_SM = 65536, REGISTER_UNIT = 256, RESERVED = 1024, SHARED_UNIT = 128 };

    const struct gen__sm_limits limits = gen__sm_limits(device->compute_capability);
    const uint32_t warps = variant->threads > 32 ? (variant->threads + 31) / 32 : 1;
    uint32_t blocks = limits.blocks;

    const uint32_t by_threads = limits.threads / 32 / warps;
    if (by_threads < blocks)
        blocks = by_threads;

    if (variant->registers) {
        const uint32_t per_warp =
            (variant->registers * 32 + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
        const uint32_t by_registers = REGISTERS_PER_SM / per_warp / 4 * 4 / warps;
        if (by_registers < blocks)
            blocks = by_registers;
    }

    const uint32_t shared =
        (variant->shared_dynamic + variant->shared_static + RESERVED + SHARED_UNIT - 1) /
        SHARED_UNIT * SHARED_UNIT;
    if (device->shared_per_sm) {
        const uint32_t by_shared = device->shared_per_sm / shared;
        if (by_shared < blocks)
            blocks = by_shared;
    }
    return blocks ? blocks : 1;
}

#endif /* GEN_OCCUPANCY_H */
