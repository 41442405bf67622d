/*
 * h200.h - the GPU that the families' host tests select for.
 */
#ifndef TEST_FAMILY_H200_H
#define TEST_FAMILY_H200_H

#include "gen.h"

static const gen_device h200 = {
    .size = sizeof(gen_device),
    .backend = GEN_BACKEND_CUDA,
    .compute_capability = 90,
    .num_sms = 132,
    .shared_per_block = 227 * 1024,
    .shared_per_sm = 228 * 1024,
    .l2_bytes = 60u << 20,
    .memory_gbps = 4800,
    .ordinal = -1,
};

#endif /* TEST_FAMILY_H200_H */
