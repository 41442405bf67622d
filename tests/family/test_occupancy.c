/* Blocks per SM, against the figures of the CUDA occupancy rules computed by
 * hand. */
#include "test.h"

#include "family/occupancy.h"

struct row {
    uint32_t compute_capability, shared_per_sm; /* KiB */
    uint32_t threads, registers, shared_dynamic, shared_static;
    uint32_t blocks;
    const char *why;
};

static const struct row rows[] = {
    {90, 228, 128, 32, 0, 0, 16, "2048 threads / 128"},
    {90, 228, 256, 32, 0, 0, 8, "2048 threads / 256"},
    {90, 228, 32, 32, 0, 0, 32, "32 blocks"},
    {90, 228, 128, 40, 0, 0, 12, "1280 registers a warp: 51, in fours 48 warps"},
    {90, 228, 64, 40, 0, 0, 24, "the same 48 warps, not 51, in twos"},
    {90, 228, 256, 128, 0, 0, 2, "4096 registers a warp: 16 warps"},
    {90, 228, 256, 255, 0, 0, 1, "8192 registers a warp: 8 warps"},
    {90, 228, 128, 32, 49152, 0, 4, "228 KiB / (48 + 1)"},
    {90, 228, 128, 32, 49152, 8192, 4, "228 KiB / (48 + 8 + 1)"},
    {90, 228, 128, 32, 49152, 8193, 3, "the next 128 bytes more"},
    {90, 228, 128, 32, 232448, 0, 1, "227 KiB + 1"},
    {80, 164, 128, 32, 16384, 0, 9, "164 KiB / 17"},
    {80, 164, 64, 32, 0, 0, 32, "32 blocks"},
    {86, 100, 128, 32, 0, 0, 12, "1536 threads / 128"},
    {86, 100, 32, 32, 0, 0, 16, "16 blocks"},
    {89, 100, 32, 32, 0, 0, 24, "24 blocks"},
    {89, 100, 128, 32, 32768, 0, 3, "100 KiB / 33"},
    {120, 100, 256, 32, 0, 0, 6, "1536 threads / 256"},
    {100, 228, 128, 64, 0, 0, 8, "2048 registers a warp: 32 warps"},
    {90, 228, 1024, 255, 0, 0, 1, "never none"},
    {90, 228, 128, 0, 0, 0, 16, "registers unknown"},
    {90, 0, 128, 32, 49152, 0, 16, "shared memory unknown"},
};

static void blocks_per_sm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        const gen_device device = {.compute_capability = r->compute_capability,
                                   .shared_per_sm = r->shared_per_sm * 1024};
        struct gen__facts variant = {.threads = r->threads,
                                     .registers = r->registers,
                                     .shared_dynamic = r->shared_dynamic,
                                     .shared_static = r->shared_static};
        variant.occupancy = gen__occupancy(&variant);
        const uint32_t blocks = gen__blocks_per_sm(&device, &variant);
        if (blocks != r->blocks)
            fail_msg("row %zu (%s): %u blocks, not %u", i, r->why, blocks, r->blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_per_sm)};
    return cmocka_run_group_tests_name("occupancy", tests, NULL, NULL);
}
