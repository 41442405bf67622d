/*
 * How many blocks of a variant one SM holds at once: the CUDA occupancy rules
 * from a variant's static facts, without a driver.
 */
#ifndef GEN_OCCUPANCY_H
#define GEN_OCCUPANCY_H

#include "family/family.h"

/* What an SM holds at most, by its kind. */
#define GEN__SM_KINDS 3
static const struct {
    uint32_t threads, blocks;
} gen__sm_limits[GEN__SM_KINDS] = {{2048, 32}, {1536, 16}, {1536, 24}};

/* 80, 90, 100, 103 and what is not known; 86 and 87; 89, 110, 120 and 121. */
static inline uint32_t gen__sm_kind(uint32_t compute_capability)
{
    static const uint8_t kinds[128] = {
        [86] = 1, [87] = 1, [89] = 2, [110] = 2, [120] = 2, [121] = 2};
    return compute_capability < 128 ? kinds[compute_capability] : 0;
}

/* All but what depends on the device's shared memory. The library does this for
 * its variants when it opens, for it is several divisions. */
static inline struct gen__occupancy gen__occupancy(const struct gen__facts *variant)
{
    /* Registers are handed out to warps in units of 256, warps to the four
     * quarters of the SM; the driver keeps 1 KiB of shared memory a block and
     * hands out the rest in units of 128 bytes. */
    enum { REGISTERS_PER_SM = 65536, REGISTER_UNIT = 256, RESERVED = 1024, SHARED_UNIT = 128 };
    const uint32_t warps = variant->threads > 32 ? (variant->threads + 31) / 32 : 1;
    const uint32_t per_warp =
        (variant->registers * 32 + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    struct gen__occupancy occupancy = {
        .shared = (variant->shared_dynamic + variant->shared_static + RESERVED + SHARED_UNIT - 1) /
                  SHARED_UNIT * SHARED_UNIT};
    const uint32_t by_registers =
        per_warp ? REGISTERS_PER_SM / per_warp / 4 * 4 / warps : UINT32_MAX;
    for (int kind = 0; kind < GEN__SM_KINDS; kind++) {
        const uint32_t by_threads = gen__sm_limits[kind].threads / 32 / warps;
        uint32_t blocks = gen__sm_limits[kind].blocks;
        blocks = by_threads < blocks ? by_threads : blocks;
        occupancy.blocks[kind] = (uint8_t)(by_registers < blocks ? by_registers : blocks);
    }
    return occupancy;
}

/* At least 1: a variant that does not fit at all is refused before. */
static inline uint32_t gen__blocks_per_sm(const gen_device *device,
                                          const struct gen__facts *variant)
{
    const uint32_t kind = gen__sm_kind(device->compute_capability);
    const uint32_t shared = variant->occupancy.shared;
    uint32_t blocks = variant->occupancy.blocks[kind];
    /* A division only where shared memory is what is short. */
    if (blocks * shared > device->shared_per_sm && device->shared_per_sm)
        blocks = device->shared_per_sm / shared;
    return blocks ? blocks : 1;
}

#endif /* GEN_OCCUPANCY_H */
