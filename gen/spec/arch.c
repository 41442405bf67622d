#include "spec/arch.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KIB 1024
#define REGISTERS 65536

/* Shared memory, registers and threads: CUDA C++ Programming Guide, table of
 * technical specifications per compute capability. compute_80 is text for
 * every later GPU, so it gets the least limits among them. */
const struct arch archs[] = {
    {.name = "sm_80",
     .tag = "sm80",
     .option = "sm_80",
     .cc = 80,
     .kind = GEN_PACK_MAJOR,
     .toolkit = 1100,
     .shared_per_block = 163 * KIB,
     .shared_per_sm = 164 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 2048,
     .cp_async = true},
    {.name = "sm_86",
     .tag = "sm86",
     .option = "sm_86",
     .cc = 86,
     .kind = GEN_PACK_MAJOR,
     .toolkit = 1101,
     .shared_per_block = 99 * KIB,
     .shared_per_sm = 100 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 1536,
     .cp_async = true},
    {.name = "sm_89",
     .tag = "sm89",
     .option = "sm_89",
     .cc = 89,
     .kind = GEN_PACK_MAJOR,
     .toolkit = 1108,
     .shared_per_block = 99 * KIB,
     .shared_per_sm = 100 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 1536,
     .cp_async = true,
     .fp8 = true},
    {.name = "sm_90a",
     .tag = "sm90a",
     .option = "sm_90a",
     .cc = 90,
     .kind = GEN_PACK_EXACT,
     .toolkit = 1200,
     .shared_per_block = 227 * KIB,
     .shared_per_sm = 228 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 2048,
     .cp_async = true,
     .bulk_copy = true,
     .cluster = true,
     .wgmma = true,
     .fp8 = true},
    {.name = "sm_100a",
     .tag = "sm100a",
     .option = "sm_100a",
     .cc = 100,
     .kind = GEN_PACK_EXACT,
     .toolkit = 1208,
     .shared_per_block = 227 * KIB,
     .shared_per_sm = 228 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 2048,
     .cp_async = true,
     .bulk_copy = true,
     .cluster = true,
     .tcgen05 = true,
     .fp8 = true},
    {.name = "sm_103a",
     .tag = "sm103a",
     .option = "sm_103a",
     .cc = 103,
     .kind = GEN_PACK_EXACT,
     .toolkit = 1209,
     .shared_per_block = 227 * KIB,
     .shared_per_sm = 228 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 2048,
     .cp_async = true,
     .bulk_copy = true,
     .cluster = true,
     .tcgen05 = true,
     .fp8 = true},
    {.name = "sm_120a",
     .tag = "sm120a",
     .option = "sm_120a",
     .cc = 120,
     .kind = GEN_PACK_EXACT,
     .toolkit = 1208,
     .shared_per_block = 99 * KIB,
     .shared_per_sm = 100 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 1536,
     .cp_async = true,
     .bulk_copy = true,
     .cluster = true,
     .fp8 = true},
    {.name = "compute_80",
     .tag = "ptx80",
     .option = "sm_80",
     .cc = 80,
     .kind = GEN_PACK_PTX,
     .toolkit = 1100,
     .shared_per_block = 99 * KIB,
     .shared_per_sm = 100 * KIB,
     .registers_per_sm = REGISTERS,
     .max_threads_per_sm = 1536,
     .cp_async = true},
};

const size_t num_archs = sizeof archs / sizeof archs[0];

const struct arch *arch_find(const char *name)
{
    for (size_t i = 0; i < num_archs; i++) {
        const struct arch *arch = &archs[i];
        if (strcasecmp(name, arch->name) == 0 || strcasecmp(name, arch->tag) == 0)
            return arch;
        if (arch->kind != GEN_PACK_PTX && strcasecmp(name, arch->tag + 2) == 0)
            return arch;
        if (arch->kind == GEN_PACK_PTX && strcasecmp(name, "ptx") == 0)
            return arch;
    }
    return NULL;
}

const struct arch *arch_for_gpu(int cc)
{
    const struct arch *best = NULL;
    for (size_t i = 0; i < num_archs; i++) {
        const struct arch *arch = &archs[i];
        bool runs = arch->cc == cc;
        if (arch->kind == GEN_PACK_MAJOR)
            runs = arch->cc / 10 == cc / 10 && arch->cc <= cc;
        else if (arch->kind == GEN_PACK_PTX)
            runs = arch->cc <= cc;
        if (!runs)
            continue;
        /* The table is ordered: later machine code is closer to the GPU. */
        if (best == NULL || arch->kind != GEN_PACK_PTX)
            best = arch;
    }
    return best;
}

const char *arch_names(void)
{
    static char names[256];
    if (names[0] == '\0')
        for (size_t i = 0; i < num_archs; i++) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", archs[i].name);
        }
    return names;
}
