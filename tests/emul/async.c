/*
 * What happens by itself once issued: cp.async, bulk copies, arrivals. In eager
 * mode it happens at once; in late mode a load lands when its group is waited
 * for or, where an mbarrier counts its bytes, when no thread can go on otherwise, and
 * a bulk store reads its shared memory when that is waited for.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define MBARRIER_WORD 0x6d62617200000000u
#define MAX_ARRIVALS ((1u << 20) - 1)

/* ---- mbarriers -------------------------------------------------------------- */

const struct mbarrier *emul__mbarrier(const struct block *b, unsigned index)
{
    return (const struct mbarrier *)b->mbarriers.items + index;
}

/* The barrier's word says which it is; what else lies there is no barrier. */
static struct mbarrier *mbarrier_at(const struct block *b, unsigned address, const char *who)
{
    uint64_t word;
    memcpy(&word, emul__memory(b, address, 8, 8, who), 8);
    struct mbarrier *m = (struct mbarrier *)b->mbarriers.items + (uint32_t)word;
    if ((word & ~0xffffffffull) != MBARRIER_WORD || (uint32_t)word >= b->mbarriers.count ||
        m->address != address)
        emul_fault("%s: there is no mbarrier at shared address %#x, or it was overwritten (%#llx)",
                   who, address, (unsigned long long)word);
    return m;
}

static void check_phase(struct block *b, struct mbarrier *m)
{
    if (m->pending || m->tx)
        return;
    m->phase++;
    m->pending = m->expected;
    const unsigned index = (unsigned)(m - (struct mbarrier *)b->mbarriers.items);
    for (unsigned n = 0; n < b->num_threads; n++) {
        struct fiber *f = &b->fiber[emul__nth(b, n)];
        if (f->state == WAITING && f->wait.kind == WAIT_MBARRIER && f->wait.id == index &&
            (m->phase & 1) != f->wait.parity)
            emul__wake(f);
    }
}

static void arrive(struct mbarrier *m, const char *who)
{
    if (!m->pending)
        emul_fault("%s: mbarrier %#x has had all of its %u arrivals in phase %u", who, m->address,
                   m->expected, m->phase);
    m->pending--;
}

void emul_mbarrier_init(unsigned barrier, unsigned arrivals)
{
    struct block *b = emul__block;
    uint64_t word;
    void *at = emul_shared(barrier, 8, 8, "mbarrier.init");
    struct mbarrier *m = b->mbarriers.items;
    size_t i = 0;
    if (!arrivals || arrivals > MAX_ARRIVALS)
        emul_fault("mbarrier.init: %u arrivals; allowed are 1 to %u", arrivals, MAX_ARRIVALS);
    while (i < b->mbarriers.count && m[i].address != barrier)
        i++;
    m = i < b->mbarriers.count ? m + i : emul__list_add(&b->mbarriers, sizeof *m);
    *m = (struct mbarrier){.address = barrier, .expected = arrivals, .pending = arrivals};
    word = MBARRIER_WORD | i;
    memcpy(at, &word, 8);
}

void emul_mbarrier_fence(void)
{
    struct block *b = emul__block;
    for (size_t i = 0; i < b->mbarriers.count; i++)
        ((struct mbarrier *)b->mbarriers.items)[i].fenced = true;
}

void emul_mbarrier_expect(unsigned barrier, unsigned bytes, int arrives, int cluster)
{
    struct block *b = cluster ? emul__owner(&barrier, "mbarrier.arrive.expect_tx") : emul__block;
    struct mbarrier *m = mbarrier_at(b, barrier, "mbarrier.arrive.expect_tx");
    if (bytes > MAX_ARRIVALS)
        emul_fault("mbarrier.arrive.expect_tx: %u bytes; allowed are up to %u", bytes,
                   MAX_ARRIVALS);
    m->tx += (long)bytes;
    if (arrives)
        arrive(m, "mbarrier.arrive.expect_tx");
    check_phase(b, m);
}

static void arrive_at(struct block *b, unsigned barrier)
{
    struct mbarrier *m = mbarrier_at(b, barrier, "mbarrier.arrive");
    arrive(m, "mbarrier.arrive");
    check_phase(b, m);
}

void emul_mbarrier_arrive(unsigned barrier, int cluster)
{
    struct block *b = cluster ? emul__owner(&barrier, "mbarrier.arrive") : emul__block;
    arrive_at(b, barrier);
}

static void complete(struct block *b, unsigned barrier, unsigned bytes)
{
    struct mbarrier *m = mbarrier_at(b, barrier, "a copy's completion");
    m->tx -= (long)bytes;
    check_phase(b, m);
}

void emul_mbarrier_complete(unsigned barrier, unsigned bytes)
{
    struct block *b = emul__owner(&barrier, "st.async");
    complete(b, barrier, bytes);
}

void emul_mbarrier_wait(unsigned barrier, unsigned parity)
{
    struct block *b = emul__block;
    const struct mbarrier *m = mbarrier_at(b, barrier, "mbarrier wait");
    const unsigned index = (unsigned)(m - (const struct mbarrier *)b->mbarriers.items);
    if ((m->phase & 1) == parity)
        emul__sleep(WAIT_MBARRIER, "mbarrier wait", index, parity);
}

int emul_mbarrier_try_wait(unsigned barrier, unsigned parity)
{
    struct block *b = emul__block;
    const struct mbarrier *m = mbarrier_at(b, barrier, "mbarrier.try_wait");
    const unsigned index = (unsigned)(m - (const struct mbarrier *)b->mbarriers.items);
    if ((m->phase & 1) == parity)
        emul__poll("poll", index, parity);
    /* Initialisations meanwhile may have moved the list. */
    return (emul__mbarrier(b, index)->phase & 1) != parity;
}

/* ---- cp.async ---------------------------------------------------------------- */

static void land(const struct block *b, const struct cp_async *c)
{
    uint8_t *to = emul__memory(b, c->shared, c->bytes, c->bytes, "cp.async");
    if (c->given)
        memcpy(to, c->global, c->given);
    memset(to + c->given, 0, c->bytes - c->given);
}

/* All of the thread's copies that `group` and `sequence` are beyond; they were issued in order. */
static void land_until(struct fiber *f, uint64_t group, uint64_t sequence)
{
    struct cp_async *c = f->copies.items;
    size_t n = 0;
    for (; n < f->copies.count && c[n].group < group && c[n].sequence < sequence; n++)
        land(f->block, &c[n]);
    if (n)
        emul__list_cut(&f->copies, 0, n);
}

void emul_cp_async(unsigned shared, const void *global, unsigned bytes, unsigned given)
{
    struct block *b = emul__block;
    struct fiber *f = b->self;
    const struct cp_async c = {shared, bytes, given, global, f->copy_groups, f->copy_sequence++};
    emul_shared(shared, bytes, bytes, "cp.async");
    if (given)
        emul_global(global, bytes, "cp.async");
    if (b->cluster->options.late)
        *(struct cp_async *)emul__list_add(&f->copies, sizeof c) = c;
    else
        land(b, &c);
}

void emul_cp_async_commit(void)
{
    emul__block->self->copy_groups++;
}

void emul_cp_async_wait(unsigned pending)
{
    struct fiber *f = emul__block->self;
    if (f->copy_groups > pending)
        land_until(f, f->copy_groups - pending, UINT64_MAX);
}

void emul_cp_async_arrive(unsigned barrier)
{
    struct fiber *f = emul__block->self;
    mbarrier_at(f->block, barrier, "cp.async.mbarrier.arrive");
    emul__issue(&(struct task){.kind = TASK_CP_ARRIVE,
                               .block = f->block,
                               .fiber = f,
                               .barrier = barrier,
                               .sequence = f->copy_sequence});
}

/* ---- loads whose bytes an mbarrier counts ------------------------------------- */

static void run_task(const struct task *t)
{
    if (t->kind == TASK_CP_ARRIVE) {
        land_until(t->fiber, UINT64_MAX, t->sequence);
        arrive_at(t->block, t->barrier);
        return;
    }
    if (t->kind == TASK_BULK)
        emul__async_write(t->block, t->shared, t->from, t->bytes, "cp.async.bulk");
    else
        emul__land_tensor(t);
    complete(t->block, t->barrier, t->bytes);
}

void emul__issue(const struct task *task)
{
    struct cluster *c = task->block->cluster;
    if (task->kind != TASK_CP_ARRIVE &&
        !mbarrier_at(task->block, task->barrier, "a bulk copy")->fenced)
        emul_fault("a bulk copy with mbarrier %#x, which no fence.mbarrier_init made visible",
                   task->barrier);
    if (c->options.late)
        *(struct task *)emul__list_add(&c->tasks, sizeof *task) = *task;
    else
        run_task(task);
}

void emul__issue_load(struct task *t, unsigned alignment, unsigned blocks, const char *who)
{
    const struct cluster *c = emul__block->cluster;
    if (blocks >> c->size)
        emul_fault("%s: to the blocks %#x of a cluster of %u", who, blocks, c->size);
    if (!blocks) {
        t->block = emul__owner(&t->shared, who);
        if (emul__owner(&t->barrier, who) != t->block)
            emul_fault("%s: to shared memory of one block, with an mbarrier of another", who);
        emul__memory(t->block, t->shared, t->bytes, alignment, who);
        emul__issue(t);
    }
    for (unsigned rank = 0; rank < c->size; rank++) {
        if (!(blocks >> rank & 1))
            continue;
        t->block = emul__peer(rank, who);
        emul__memory(t->block, t->shared, t->bytes, alignment, who);
        emul__issue(t);
    }
}

bool emul__pump(struct cluster *c)
{
    struct task *all = c->tasks.items;
    size_t i = 0;
    if (!c->tasks.count)
        return false;
    if (c->options.random)
        i = emul__random(c) % c->tasks.count;
    else if (c->options.overtaken && c->tasks.count > 1)
        i = 1;
    const struct task t = all[i];
    emul__list_cut(&c->tasks, i, 1);
    run_task(&t);
    return true;
}

void emul_bulk_load(unsigned shared, const void *global, unsigned bytes, unsigned barrier,
                    unsigned blocks)
{
    struct task t = {
        .kind = TASK_BULK, .shared = shared, .from = global, .bytes = bytes, .barrier = barrier};
    emul_global(global, 16, "cp.async.bulk");
    if (!bytes || bytes % 16)
        emul_fault("cp.async.bulk: %u bytes; allowed are multiples of 16", bytes);
    emul__issue_load(&t, 16, blocks, "cp.async.bulk");
}

/* From the block's own shared memory to that of any block of the cluster. In late mode it is read
 * when it lands. */
void emul_bulk_copy(unsigned to, unsigned from, unsigned bytes, unsigned barrier)
{
    struct task t = {.kind = TASK_BULK, .shared = to, .bytes = bytes, .barrier = barrier};
    if (!bytes || bytes % 16)
        emul_fault("cp.async.bulk: %u bytes; allowed are multiples of 16", bytes);
    emul_shared(from, bytes, 16, "cp.async.bulk (from shared memory)");
    t.from = emul__async_read(from, bytes, "cp.async.bulk (from shared memory)");
    emul__issue_load(&t, 16, 0, "cp.async.bulk");
}

/* ---- bulk stores ------------------------------------------------------------------ */

static void read_store(struct bulk_store *s)
{
    if (s->data)
        return;
    s->data = malloc(s->bytes);
    if (!s->data)
        abort();
    memcpy(s->data, emul__async_read(s->shared, s->bytes, "cp.async.bulk (store)"), s->bytes);
}

static void write_store(struct bulk_store *s)
{
    read_store(s);
    memcpy(s->global, s->data, s->bytes);
    free(s->data);
    s->data = NULL;
}

void emul_bulk_store(void *global, unsigned shared, unsigned bytes)
{
    struct block *b = emul__block;
    struct fiber *f = b->self;
    struct bulk_store s = {global, shared, bytes, f->store_groups, NULL};
    emul_shared(shared, bytes, 16, "cp.async.bulk (store)");
    emul_global(global, 16, "cp.async.bulk (store)");
    if (!bytes || bytes % 16)
        emul_fault("cp.async.bulk (store): %u bytes; allowed are multiples of 16", bytes);
    if (b->cluster->options.late)
        *(struct bulk_store *)emul__list_add(&f->stores, sizeof s) = s;
    else
        write_store(&s);
}

void emul_bulk_commit(void)
{
    emul__block->self->store_groups++;
}

void emul_bulk_wait(unsigned pending, int read)
{
    struct fiber *f = emul__block->self;
    struct bulk_store *s = f->stores.items;
    size_t n = 0;
    for (; n < f->stores.count && s[n].group + pending < f->store_groups; n++) {
        if (read)
            read_store(&s[n]);
        else
            write_store(&s[n]);
    }
    if (n && !read)
        emul__list_cut(&f->stores, 0, n);
}

/* ---- a block's begin and end --------------------------------------------------------- */

/* Shared memory is gone when the block is: a store that was not waited for finds poison. */
static void end_stores(struct block *b)
{
    for (unsigned i = 0; i < b->num_threads; i++) {
        struct list *stores = &b->fiber[i].stores;
        for (size_t n = 0; n < stores->count; n++) {
            struct bulk_store *s = (struct bulk_store *)stores->items + n;
            if (!s->data)
                emul__fail(b,
                           "block (%u, %u, %u), thread %u ended while a bulk store had not read "
                           "shared memory: wait for it",
                           b->index.x, b->index.y, b->index.z, i);
            else
                write_store(s);
        }
        stores->count = 0;
    }
}

void emul__block_ends(struct block *b)
{
    const struct task *t = b->cluster->tasks.items;
    size_t copies = 0;
    for (size_t i = 0; i < b->cluster->tasks.count; i++)
        copies += t[i].block == b;
    if (copies)
        emul__fail(b,
                   "block (%u, %u, %u) ended with %zu copies into its shared memory on their way",
                   b->index.x, b->index.y, b->index.z, copies);
    end_stores(b);
    emul__wgmma_ends(b);
}

void emul__async_reset(struct block *b)
{
    b->mbarriers.count = 0;
}

void emul__async_free(struct block *b)
{
    for (unsigned i = 0; i < EMUL_MAX_THREADS; i++) {
        struct bulk_store *s = b->fiber[i].stores.items;
        for (size_t n = 0; n < b->fiber[i].stores.count; n++)
            free(s[n].data);
        emul__list_free(&b->fiber[i].stores);
        emul__list_free(&b->fiber[i].copies);
    }
    emul__list_free(&b->mbarriers);
}
