/*
 * The one table of architectures: what a target can do decides, through
 * family.lua, which variants exist for it.
 */
#ifndef ARCH_H
#define ARCH_H

#include "format/product.h"

#include <stdbool.h>
#include <stddef.h>

struct arch {
    const char *name;   /* "sm_90a", "compute_80" */
    const char *tag;    /* in variant names: "sm90a", "ptx80" */
    const char *option; /* NVRTC's --gpu-architecture; for PTX the machine
                           whose compile stands in for the facts */
    int cc;             /* compute capability, 90 for 9.0 */
    enum gen_pack_target_kind kind;
    int toolkit;          /* least version, 12.8 as 1208 */
    int shared_per_block; /* bytes, opt-in limit of static + dynamic */
    int shared_per_sm;    /* bytes */
    int registers_per_sm;
    int max_threads_per_sm;
    bool cp_async, bulk_copy, cluster, wgmma, tcgen05, fp8;
};

extern const struct arch archs[];
extern const size_t num_archs;

/* Accepts "sm_90a", "sm90a", "90a", "compute_80", "ptx80", "ptx". NULL if unknown. */
const struct arch *arch_find(const char *name);
/* The target whose code a GPU of this compute capability runs best. Never NULL
 * from 80 up. */
const struct arch *arch_for_gpu(int cc);
/* "sm_80, sm_86, ...": for messages. */
const char *arch_names(void);

#endif /* ARCH_H */
