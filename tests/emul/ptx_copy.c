/* PTX: asynchronous copies and mbarriers. */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

enum { SRC_SIZE = 1, READ = 2, EXPECT = 4, ARRIVE = 8, CLUSTER = 16 };

static bool starts(const struct ptx_instruction *i, const char *name)
{
    return strncmp(i->name, name, strlen(name)) == 0;
}

/* ---- cp.async ----------------------------------------------------------------- */

static void run_cp_async(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const unsigned bytes = (unsigned)ptx_get(f, &i->arg[2], 0);
    const unsigned given = i->flags & SRC_SIZE ? (unsigned)ptx_get(f, &i->arg[3], 0) : bytes;
    const bool whole = ptx_has(i, "cg");
    if ((bytes != 16 && (whole || (bytes != 4 && bytes != 8))) || given > bytes)
        emul_fault("%s: %u of %u bytes; allowed are 16 (.ca: 4, 8 or 16) and no more of them",
                   i->name, given, bytes);
    emul_cp_async(ptx_address(f, &i->arg[0]), ptx_pointer(f, &i->arg[1]), bytes, given);
}

static void run_cp_commit(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_cp_async_commit();
}

static void run_cp_wait(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_cp_async_wait((unsigned)ptx_get(f, &i->arg[0], 0));
}

static void run_cp_wait_all(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_cp_async_commit();
    emul_cp_async_wait(0);
}

static void run_cp_arrive(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_cp_async_arrive(ptx_address(f, &i->arg[0]));
}

/* With cache hints there is one argument more, and one more for the blocks of a multicast. */
static unsigned num_plain_args(const struct ptx_instruction *i)
{
    return i->num_args - ptx_has(i, "L2::cache_hint") - ptx_has(i, "multicast::cluster");
}

/* Those blocks, where the argument is the n-th; 0 without. */
static unsigned multicast(const struct ptx_frame *f, const struct ptx_instruction *i, unsigned n)
{
    if (!ptx_has(i, "multicast::cluster"))
        return 0;
    const unsigned blocks = (unsigned)ptx_get(f, &i->arg[n], 0) & 0xffff;
    if (!blocks)
        emul_fault("%s: to no block", i->name);
    return blocks;
}

static bool prepare_cp_async(struct ptx_instruction *i)
{
    const unsigned n = num_plain_args(i);
    if (starts(i, "cp.async.commit_group"))
        i->run = run_cp_commit;
    else if (starts(i, "cp.async.wait_group"))
        i->run = run_cp_wait;
    else if (starts(i, "cp.async.wait_all"))
        i->run = run_cp_wait_all;
    else if (starts(i, "cp.async.mbarrier.arrive.noinc"))
        i->run = run_cp_arrive;
    else if ((ptx_has(i, "ca") || ptx_has(i, "cg")) && (n == 3 || n == 4) && i->arg[0].memory &&
             i->arg[1].memory)
        i->run = run_cp_async;
    i->flags = n == 4 ? SRC_SIZE : 0;
    return i->run != NULL;
}

/* ---- bulk ------------------------------------------------------------------------ */

static void run_bulk_load(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_bulk_load(ptx_address(f, &i->arg[0]), ptx_pointer(f, &i->arg[1]),
                   (unsigned)ptx_get(f, &i->arg[2], 0), ptx_address(f, &i->arg[3]),
                   multicast(f, i, 4));
}

static void run_bulk_copy(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_bulk_copy(ptx_address(f, &i->arg[0]), ptx_address(f, &i->arg[1]),
                   (unsigned)ptx_get(f, &i->arg[2], 0), ptx_address(f, &i->arg[3]));
}

static void run_bulk_store(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_bulk_store(ptx_pointer(f, &i->arg[0]), ptx_address(f, &i->arg[1]),
                    (unsigned)ptx_get(f, &i->arg[2], 0));
}

/* A hint: nothing moves, but the address must be one that a load could have. */
static void run_bulk_prefetch(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const unsigned bytes = (unsigned)ptx_get(f, &i->arg[1], 0);
    const volatile unsigned char *from =
        emul_global(ptx_pointer(f, &i->arg[0]), 16, "cp.async.bulk.prefetch");
    if (!bytes || bytes % 16)
        emul_fault("cp.async.bulk.prefetch: %u bytes; allowed are multiples of 16", bytes);
    for (unsigned n = 0; n < bytes; n += 16)
        (void)from[n];
}

static void run_bulk_commit(struct ptx_frame *f, const struct ptx_instruction *i)
{
    (void)f, (void)i;
    emul_bulk_commit();
}

static void run_bulk_wait(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_bulk_wait((unsigned)ptx_get(f, &i->arg[0], 0), i->flags);
}

static void run_tensor_load(struct ptx_frame *f, const struct ptx_instruction *i)
{
    int at[5];
    for (unsigned n = 0; n < i->lanes; n++)
        at[n] = (int)ptx_get(f, &i->arg[1], n + 1);
    emul_tensor_load(ptx_address(f, &i->arg[0]), ptx_pointer(f, &i->arg[1]), at, i->lanes,
                     ptx_address(f, &i->arg[2]), multicast(f, i, 3));
}

static void run_tensor_check(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_tensor_check(ptx_pointer(f, &i->arg[0]), i->lanes);
}

static unsigned rank_of(const struct ptx_instruction *i)
{
    for (unsigned n = 0; n < i->num_tokens; n++)
        if (strlen(i->token[n]) == 2 && i->token[n][1] == 'd')
            return (unsigned)(i->token[n][0] - '0');
    return 0;
}

static bool prepare_tensor(struct ptx_instruction *i)
{
    const bool prefetch = ptx_has(i, "prefetch");
    const struct ptx_arg *map = &i->arg[prefetch ? 0 : 1];
    i->lanes = rank_of(i);
    i->run = prefetch ? run_tensor_check : run_tensor_load;
    return i->lanes >= 1 && i->lanes <= 5 && map->memory && map->count == i->lanes + 1 &&
           num_plain_args(i) == (prefetch ? 1 : 3) &&
           (prefetch || ptx_has(i, "mbarrier::complete_tx::bytes")) && ptx_has(i, "global") &&
           !ptx_has(i, "im2col");
}

static bool prepare_bulk(struct ptx_instruction *i)
{
    i->flags = ptx_has(i, "read");
    if (starts(i, "cp.async.bulk.commit_group"))
        i->run = run_bulk_commit;
    else if (starts(i, "cp.async.bulk.wait_group"))
        i->run = run_bulk_wait;
    else if (ptx_has(i, "tensor"))
        return prepare_tensor(i);
    else if (starts(i, "cp.async.bulk.prefetch.L2.global"))
        i->run = num_plain_args(i) == 2 ? run_bulk_prefetch : NULL;
    else if (starts(i, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes") ||
             starts(i, "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"))
        i->run = num_plain_args(i) == 4 ? run_bulk_load : NULL;
    else if (starts(i, "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"))
        i->run = num_plain_args(i) == 4 ? run_bulk_copy : NULL;
    else if (starts(i, "cp.async.bulk.global.shared::cta.bulk_group"))
        i->run = num_plain_args(i) == 3 ? run_bulk_store : NULL;
    return i->run != NULL;
}

/* ---- mbarriers ---------------------------------------------------------------------- */

static void run_init(struct ptx_frame *f, const struct ptx_instruction *i)
{
    emul_mbarrier_init(ptx_address(f, &i->arg[0]), (unsigned)ptx_get(f, &i->arg[1], 0));
}

static void run_arrive(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const unsigned barrier = ptx_address(f, &i->arg[i->lanes]);
    if (i->flags & EXPECT)
        emul_mbarrier_expect(barrier, (unsigned)ptx_get(f, &i->arg[i->lanes + 1], 0),
                             i->flags & ARRIVE, i->flags & CLUSTER);
    else
        emul_mbarrier_arrive(barrier, i->flags & CLUSTER);
}

static void run_wait(struct ptx_frame *f, const struct ptx_instruction *i)
{
    const unsigned barrier = ptx_address(f, &i->arg[1]);
    const unsigned parity = (unsigned)ptx_get(f, &i->arg[2], 0);
    const struct ptx_instruction *next = i + 1;
    const bool last = f->next == f->code->instructions.count;
    int done = 1;
    /* Followed by a branch back to itself it waits; the report of a block that is stuck can tell
     * more of that than of polling. */
    if (!last && next->label[0] && next->target == f->next - 1 && next->guard_not)
        emul_mbarrier_wait(barrier, parity);
    else
        done = emul_mbarrier_try_wait(barrier, parity);
    ptx_set(f, &i->arg[0], 0, done != 0);
}

static bool prepare_mbarrier(struct ptx_instruction *i)
{
    const bool arrives = ptx_has(i, "arrive");
    if (starts(i, "mbarrier.init") && i->num_args == 2) {
        i->run = run_init;
    } else if (arrives || starts(i, "mbarrier.expect_tx")) {
        i->run = run_arrive;
        i->flags = (arrives ? ARRIVE : 0) | (ptx_has(i, "expect_tx") ? EXPECT : 0) |
                   (ptx_has(i, "shared::cluster") ? CLUSTER : 0);
        i->lanes = arrives; /* the state stands before the address */
        return i->num_args == i->lanes + (i->flags & EXPECT ? 2u : 1u) && i->arg[i->lanes].memory &&
               !ptx_has(i, "noComplete");
    } else if ((starts(i, "mbarrier.try_wait") || starts(i, "mbarrier.test_wait")) &&
               ptx_has(i, "parity") && i->num_args >= 3) {
        i->run = run_wait;
    }
    return i->run != NULL;
}

bool ptx_prepare_copy(struct ptx_instruction *i)
{
    if (starts(i, "cp.async.bulk."))
        return prepare_bulk(i);
    if (starts(i, "cp.async."))
        return prepare_cp_async(i);
    return starts(i, "mbarrier.") && prepare_mbarrier(i);
}
