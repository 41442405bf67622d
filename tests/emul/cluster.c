/*
 * Clusters: addresses of other blocks' shared memory, and the barrier of all.
 *
 * Such an address is the one that the place has in its own block, with the
 * block's rank + 1 above it; those of the own block are the plain ones.
 */
#include "internal.h"

#include <string.h>

#define RANK_SHIFT 24
_Static_assert(SHARED_SPACE <= 1u << RANK_SHIFT && EMUL_MAX_CLUSTER < 1u << (32 - RANK_SHIFT),
               "an address has room for a rank");

/* ---- addresses ---------------------------------------------------------------- */

unsigned emul_cluster_rank(void)
{
    return emul__block->cluster_rank;
}

unsigned emul_cluster_size(void)
{
    return emul__block->cluster->size;
}

unsigned emul_cluster_map(unsigned address, unsigned rank)
{
    const unsigned size = emul_cluster_size();
    if (rank >= size)
        emul_fault("mapa: block %u of a cluster of %u", rank, size);
    if (address >= SHARED_SPACE)
        emul_fault("mapa: %#x is no address of the block's own shared memory", address);
    return rank == emul_cluster_rank() ? address : (rank + 1) << RANK_SHIFT | address;
}

/* A block's shared memory is there from its first thread's begin to its last one's end, and what
 * keeps others from it before and after is the kernel's matter. */
struct block *emul__peer(unsigned rank, const char *who)
{
    struct block *b = emul__block->cluster->block[rank];
    if (!b->self)
        emul_fault("%s: shared memory of block (%u, %u, %u) of the cluster, which may not have "
                   "begun: no barrier of the cluster came before",
                   who, b->index.x, b->index.y, b->index.z);
    if (!b->live)
        emul_fault("%s: shared memory of block (%u, %u, %u) of the cluster, which has ended", who,
                   b->index.x, b->index.y, b->index.z);
    return b;
}

struct block *emul__owner(unsigned *address, const char *who)
{
    const unsigned rank = *address >> RANK_SHIFT;
    if (!rank)
        return emul__block;
    if (rank > emul_cluster_size())
        emul_fault("%s: %#x is no shared address of the cluster", who, *address);
    *address &= (1u << RANK_SHIFT) - 1;
    return emul__peer(rank - 1, who);
}

void *emul_cluster_shared(unsigned address, unsigned bytes, unsigned alignment, const char *who)
{
    const struct block *b = emul__owner(&address, who);
    return emul__memory(b, address, bytes, alignment, who);
}

/* ---- the barrier ----------------------------------------------------------------- */

static void check_barrier(struct cluster *c)
{
    if (!c->arrived || c->arrived != c->live)
        return;
    c->arrived = 0;
    c->phase++;
    for (unsigned i = 0; i < c->size; i++) {
        struct block *b = emul__nth_block(c, i);
        for (unsigned n = 0; n < b->num_threads; n++) {
            struct fiber *f = &b->fiber[emul__nth(b, n)];
            if (f->state == WAITING && f->wait.kind == WAIT_CLUSTER)
                emul__wake(f);
        }
    }
}

static void run_nothing(unsigned warp, unsigned lanes, void *const *payload)
{
    (void)warp, (void)lanes, (void)payload;
}

void emul_cluster_arrive(int aligned)
{
    static const struct meeting_kind kind = {"barrier.cluster.arrive.aligned", run_nothing};
    struct cluster *c = emul__block->cluster;
    struct fiber *self = emul__block->self;
    if (aligned)
        emul__meet(FULL_MASK, &kind, NULL);
    if (self->cluster_arrived)
        emul_fault("barrier.cluster.arrive: the thread has arrived and not waited since");
    self->cluster_arrived = true;
    self->cluster_phase = c->phase;
    c->arrived++;
    check_barrier(c);
}

void emul_cluster_wait(int aligned)
{
    static const struct meeting_kind kind = {"barrier.cluster.wait.aligned", run_nothing};
    const struct cluster *c = emul__block->cluster;
    struct fiber *self = emul__block->self;
    if (aligned)
        emul__meet(FULL_MASK, &kind, NULL);
    if (!self->cluster_arrived)
        emul_fault("barrier.cluster.wait: the thread has not arrived");
    if (self->cluster_phase == c->phase)
        emul__sleep(WAIT_CLUSTER, "barrier.cluster.wait", 0, 0);
    self->cluster_arrived = false;
}

/* No barrier waits for a thread that ended, whether it had arrived or not. */
void emul__cluster_thread_ends(struct cluster *c, struct fiber *fiber)
{
    c->live--;
    if (fiber->cluster_arrived && fiber->cluster_phase == c->phase)
        c->arrived--;
    check_barrier(c);
}
