/*
 * What the engine's files share: the blocks that are running, their fibers and
 * what they wait for.
 */
#ifndef EMUL_INTERNAL_H
#define EMUL_INTERNAL_H

#include "engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WARP 32
#define MAX_WARPS (EMUL_MAX_THREADS / WARP)
#define NUM_BARRIERS 16
/* 18 bits, what a wgmma descriptor can say. */
#define SHARED_SPACE (256u * 1024u)
#define FULL_MASK 0xffffffffu

enum state { READY, WAITING, SPINNING, DONE };
enum wait_kind { WAIT_NONE, WAIT_MEETING, WAIT_BARRIER, WAIT_MBARRIER, WAIT_CLUSTER };

/* What a fiber that cannot go on waits for. */
struct wait {
    enum wait_kind kind;
    const char *who;
    unsigned id;     /* mask, barrier's number, or index of the mbarrier */
    unsigned parity; /* of an mbarrier */
};

/* A copy by cp.async on its way. */
struct cp_async {
    unsigned shared, bytes, given;
    const void *global;
    uint64_t group, sequence;
};

/* A bulk store on its way. `data` once the shared memory was read. */
struct bulk_store {
    void *global;
    unsigned shared, bytes;
    uint64_t group;
    uint8_t *data;
};

/* A growing list of any of these. */
struct list {
    void *items;
    size_t count, capacity, size;
};

struct block;
struct fiber {
    struct block *block;
    struct emul_thread where;
    unsigned number; /* within the block */
    void *sp;
    enum state state;
    struct wait wait;
    int result; /* of a vote, set by who releases */
    /* Came to the cluster's barrier in this phase, and has not waited since. */
    bool cluster_arrived;
    unsigned cluster_phase;
    struct list copies, stores;
    uint64_t copy_groups, copy_sequence, store_groups;
};

struct meeting {
    unsigned mask, arrived; /* mask 0: free */
    const struct meeting_kind *kind;
    void *payload[WARP];
};

/* An operation that lanes of a warp do together. The last one to come runs it. */
struct meeting_kind {
    const char *name;
    void (*run)(unsigned warp, unsigned lanes, void *const *payload);
};

struct barrier {
    unsigned expected, arrived, count, ands, ors;
};

struct mbarrier {
    unsigned address, expected, pending;
    long tx;
    unsigned phase;
    bool fenced; /* the async proxy may see it */
};

/* What happens by itself once it is issued. */
enum task_kind { TASK_BULK, TASK_TENSOR, TASK_CP_ARRIVE };
struct task {
    enum task_kind kind;
    struct block *block; /* whose shared memory it is about */
    struct fiber *fiber;
    unsigned shared, bytes, barrier;
    const void *from; /* global memory, or the tensor map */
    int at[5];
    unsigned rank;
    uint64_t sequence;
};

struct wgmma_state;

struct options {
    bool late, overtaken, random, reverse, ahead;
    uint64_t seed;
};

/* A run of shared memory: addresses [address, address + bytes). */
struct segment {
    unsigned address, bytes;
    uint8_t *host;
};

struct block {
    struct cluster *cluster;
    const struct emul_kernel *kernel; /* a copy of its own, for the shared memory */
    struct emul_dim index;
    unsigned cluster_rank;
    unsigned num_threads, num_warps, live;
    unsigned live_lanes[MAX_WARPS];
    struct fiber fiber[EMUL_MAX_THREADS];
    struct fiber *self; /* who runs, or ran last; NULL: none yet */
    struct meeting meeting[MAX_WARPS][WARP];
    struct barrier barrier[NUM_BARRIERS];
    struct list mbarriers;
    struct segment segment[3]; /* static, static, dynamic */
    uint8_t *view;             /* shared memory as the async proxy sees it, by address */
    struct wgmma_state *wgmma; /* one a warp */
};

/* Blocks that run at the same time, most often one. */
struct cluster {
    const struct emul_launch *launch;
    struct options options;
    struct emul_dim dim;
    unsigned size, live; /* blocks, threads of all of them */
    struct block *block[EMUL_MAX_CLUSTER];
    void *main_sp;
    /* A ring of threads, numbered through: block x EMUL_MAX_THREADS + thread. */
    unsigned ready[EMUL_MAX_CLUSTER * EMUL_MAX_THREADS];
    unsigned ready_mask, ready_first, ready_count;
    unsigned spin_rounds;
    unsigned rank[EMUL_MAX_CLUSTER * MAX_WARPS];
    unsigned arrived, phase; /* of its barrier */
    struct list tasks;
    uint64_t random;
    bool failed;
    char *message;
    size_t capacity;
};

/* The one that the thread which runs is of. */
extern _Thread_local struct block *emul__block;

/* launch.c */
void *emul__list_add(struct list *list, size_t size); /* zeroed; aborts without memory */
void emul__list_cut(struct list *list, size_t first, size_t count);
void emul__list_free(struct list *list);

/* fiber.c */
void *emul__stack(unsigned block, unsigned number); /* the top of a fiber's stack */
void *emul__fiber_new(void *top, void (*entry)(void));
void emul__switch(void **save, void *load);
void emul__enter(void **save, void *load); /* the same, from what runs a cluster */

/* launch.c */
/* Ends the launch once the block's threads are out of the way; emul_fault() ends it at once. */
void emul__fail(struct block *block, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* scheduler.c */
void emul__turns_reset(struct cluster *cluster);
void emul__wake(struct fiber *fiber);
struct fiber *emul__next(struct cluster *cluster); /* NULL: none can go on */
void emul__leave(struct block *block);             /* the fiber that runs goes, others go on */
unsigned emul__nth(const struct block *block, unsigned n);
struct block *emul__nth_block(const struct cluster *cluster, unsigned n);
void emul__sleep(enum wait_kind kind, const char *who, unsigned id, unsigned parity);
void emul__poll(const char *who, unsigned id, unsigned parity); /* an mbarrier, while others run */
uint64_t emul__random(struct cluster *cluster);

/* sync.c */
void emul__meet(unsigned mask, const struct meeting_kind *kind, void *payload);
void emul__thread_ends(struct block *block, struct fiber *fiber);
unsigned emul__lane(void);
unsigned emul__warp(void);

/* cluster.c */
/* The block that an address of shared memory is of, and its address there. */
struct block *emul__owner(unsigned *address, const char *who);
struct block *emul__peer(unsigned rank, const char *who); /* faults unless it is running */
void emul__cluster_thread_ends(struct cluster *cluster, struct fiber *fiber);

/* cta_images.c: a kernel as if compiled `number` times, each with shared memory of its own; NULL
 * with a message. */
const struct emul_kernel *emul__copy(const struct emul_kernel *kernel, unsigned number,
                                     char *message, size_t capacity);

/* shared.c */
bool emul__shared_open(struct block *block);
void emul__shared_poison(struct block *block);
void *emul__memory(const struct block *block, unsigned address, unsigned bytes, unsigned alignment,
                   const char *who);
/* For the async proxy: a write goes to both views; a read faults where a thread's write was not
 * followed by a proxy fence. */
void emul__async_write(struct block *block, unsigned address, const void *data, unsigned bytes,
                       const char *who);
const void *emul__async_read(unsigned address, unsigned bytes, const char *who);

/* async.c */
bool emul__pump(struct cluster *cluster);
void emul__block_ends(struct block *block);
void emul__async_reset(struct block *block);
void emul__async_free(struct block *block);
const struct mbarrier *emul__mbarrier(const struct block *block, unsigned index);
void emul__land_tensor(const struct task *task);
/* Runs it now or lets it lie, as the mode says; one for each block of a multicast. */
void emul__issue(const struct task *task);
void emul__issue_load(struct task *task, unsigned alignment, unsigned blocks, const char *who);

/* wgmma.c */
void emul__wgmma_open(struct block *block);
void emul__wgmma_ends(struct block *block);
void emul__wgmma_free(struct block *block);

/* matrix.c */
float emul__element(unsigned short bits, bool is_bf16);

#endif
