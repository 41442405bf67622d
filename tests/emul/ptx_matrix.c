/* PTX: tensor cores. */
#include "ptx.h"

#include <stdio.h>
#include <string.h>

static bool starts(const struct ptx_instruction *i, const char *name)
{
    return strncmp(i->name, name, strlen(name)) == 0;
}

/* ---- a warp's ------------------------------------------------------------------- */

static void run_ldmatrix(struct ptx_frame *f, const struct ptx_instruction *i)
{
    unsigned r[4];
    emul_ldmatrix(r, (int)i->lanes, ptx_address(f, &i->arg[1]), i->flags);
    for (unsigned n = 0; n < i->lanes; n++)
        ptx_set(f, &i->arg[0], n, r[n]);
}

static void run_stmatrix(struct ptx_frame *f, const struct ptx_instruction *i)
{
    unsigned r[4];
    for (unsigned n = 0; n < i->lanes; n++)
        r[n] = (unsigned)ptx_get(f, &i->arg[1], n);
    emul_stmatrix(r, (int)i->lanes, ptx_address(f, &i->arg[0]), i->flags);
}

static bool prepare_ldmatrix(struct ptx_instruction *i)
{
    const bool load = i->token[0][0] == 'l';
    i->lanes = ptx_has(i, "x4") ? 4 : ptx_has(i, "x2") ? 2 : 1;
    i->flags = ptx_has(i, "trans");
    i->run = load ? run_ldmatrix : run_stmatrix;
    return ptx_has(i, "m8n8") && ptx_has(i, "b16") && i->num_args == 2 && i->arg[load].memory &&
           i->arg[!load].count == i->lanes;
}

static void run_mma(struct ptx_frame *f, const struct ptx_instruction *i)
{
    float d[4];
    unsigned a[4];
    for (unsigned n = 0; n < 4; n++) {
        const uint32_t c = (uint32_t)ptx_get(f, &i->arg[3], n);
        memcpy(&d[n], &c, sizeof c);
        a[n] = (unsigned)ptx_get(f, &i->arg[1], n);
    }
    emul_mma(d, a, (unsigned)ptx_get(f, &i->arg[2], 0), (unsigned)ptx_get(f, &i->arg[2], 1),
             i->flags);
    for (unsigned n = 0; n < 4; n++) {
        uint32_t bits;
        memcpy(&bits, &d[n], sizeof bits);
        ptx_set(f, &i->arg[0], n, bits);
    }
}

static bool prepare_mma(struct ptx_instruction *i)
{
    const bool bf16 = ptx_has(i, "bf16");
    i->run = run_mma;
    i->flags = bf16;
    return starts(i, bf16 ? "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                          : "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") &&
           i->num_args == 4 && i->arg[0].count == 4 && i->arg[1].count == 4 &&
           i->arg[2].count == 2 && i->arg[3].count == 4;
}

/* ---- a warp group's ----------------------------------------------------------------- */

static void run_fence(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_wgmma_fence();
}

static void run_commit(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_wgmma_commit();
}

static void run_wait(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_wgmma_wait((unsigned)ptx_get(f, &i->arg[0], 0));
}

/* The registers of the accumulator, which the engine takes as an array. */
static float *accumulator(const struct ptx_frame *f, const struct ptx_arg *arg)
{
    float *first = ptx_operand(f, arg, 0).to;
    for (unsigned n = 0; n < arg->count; n++)
        if (ptx_operand(f, arg, n).to != first + n)
            emul_fault("wgmma: the accumulators are not one array's elements in order");
    return first;
}

static void run_wgmma(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const bool in_registers = i->arg[1].vector;
    /* Behind d, a, b, scale-d: signs of a and b, then, of 16 bits, which of those in shared memory
     * are MN-major. */
    const bool of_16_bits = i->flags / 4 < EMUL_E4M3;
    const struct ptx_arg *last = &i->arg[i->num_args - 1];
    struct emul_product p = {.d = accumulator(f, &i->arg[0]), .columns = (int)i->lanes};
    unsigned a[4];
    for (unsigned n = 0; n < 4 && in_registers; n++)
        a[n] = (unsigned)ptx_get(f, &i->arg[1], n);
    p.a_registers = in_registers ? a : NULL;
    p.a = in_registers ? 0 : ptx_get(f, &i->arg[1], 0);
    p.b = ptx_get(f, &i->arg[2], 0);
    p.accumulate = ptx_get(f, &i->arg[3], 0) != 0;
    p.b_mn = of_16_bits && ptx_get(f, last, 0) != 0;
    p.a_type = (enum emul_type)(i->flags / 4);
    p.b_type = (enum emul_type)(i->flags % 4);
    if (ptx_get(f, &i->arg[4], 0) != 1 || ptx_get(f, &i->arg[5], 0) != 1 ||
        (of_16_bits && !in_registers && ptx_get(f, &i->arg[6], 0) != 0))
        emul_fault("%s: negated operands and an MN-major a are not emulated", i->name);
    emul_wgmma(&p);
}

/* Of enum emul_type; -1: another. */
static int type_of(const char *name)
{
    static const char *const names[] = {"f16", "bf16", "e4m3", "e5m2"};
    for (int n = 0; n < 4; n++)
        if (strcmp(name, names[n]) == 0)
            return n;
    return -1;
}

static bool prepare_wgmma(struct ptx_instruction *i)
{
    unsigned columns = 0, depth = 0;
    int behind = 0;
    if (starts(i, "wgmma.fence.sync.aligned"))
        i->run = run_fence;
    else if (starts(i, "wgmma.commit_group.sync.aligned"))
        i->run = run_commit;
    else if (starts(i, "wgmma.wait_group.sync.aligned"))
        i->run = i->num_args == 1 ? run_wait : NULL;
    if (i->run || !starts(i, "wgmma.mma_async.sync.aligned.") || i->num_tokens != 8)
        return i->run != NULL;
    i->run = run_wgmma;
    const int a = type_of(i->token[6]), b = type_of(i->token[7]);
    if (sscanf(i->token[4], "m64n%uk%u%n", &columns, &depth, &behind) != 2 || i->token[4][behind] ||
        a < 0 || b < 0)
        return false;
    const bool of_16_bits = a < EMUL_E4M3;
    i->flags = 4 * a + b;
    i->lanes = columns;
    return strcmp(i->token[5], "f32") == 0 && (of_16_bits ? a == b : b >= EMUL_E4M3) &&
           depth == (of_16_bits ? 16u : 32u) && i->arg[0].count == columns / 2 &&
           i->num_args == (!of_16_bits        ? 6u
                           : i->arg[1].vector ? 7u
                                              : 8u) &&
           i->arg[1].count == (i->arg[1].vector ? 4u : 1u);
}

bool ptx_prepare_matrix(struct ptx_instruction *i)
{
    if (starts(i, "ldmatrix.") || starts(i, "stmatrix."))
        return prepare_ldmatrix(i);
    if (starts(i, "mma."))
        return prepare_mma(i);
    return starts(i, "wgmma.") && prepare_wgmma(i);
}
