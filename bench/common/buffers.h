/*
 * buffers.h - the tensors of one problem in one block of memory.
 *
 *     [guard][hot tensor][guard] ... [set 0: guard, cold tensor, guard, ...]
 *     [set 1] ...
 *
 * Cold tensors exist once for each set, so that a timing loop can walk through
 * more memory than the L2 holds; hot tensors are shared by the sets. The same
 * layout serves host memory (the reference, the expected result) and device
 * memory, whole or tensor by tensor.
 */
#ifndef BENCH_BUFFERS_H
#define BENCH_BUFFERS_H

#include "family/family.h"
#include "common/gpu.h"
#include "common/util.h"

struct buffers {
    const struct gen__family *family;
    const gen_problem *problem; /* the caller's, kept alive by him */
    struct gen__tensor tensor[GEN__MAX_TENSORS];
    uint64_t bytes[GEN__MAX_TENSORS];  /* of each tensor */
    uint64_t offset[GEN__MAX_TENSORS]; /* hot: in the block; cold: in a set */
    uint32_t num_tensors;
    uint32_t num_sets;
    uint64_t hot_bytes, set_bytes, total_bytes;
    gen_args *args; /* without pointers */
};

#define BUFFERS_DEFAULT_FORM (-1)

/* Bytes that every tensor keeps free before and behind it. */
#define BUFFERS_GUARD 512u
/* What they hold. */
#define BUFFERS_CANARY 0xa5u

/* Lays a problem out. form: index of the family's other forms, or
 * BUFFERS_DEFAULT_FORM; false if this problem has no such form. tight: tensors
 * start at odd multiples of 16 bytes, the least alignment that kernels may
 * count on; else at multiples of 256. */
bool buffers_init(struct buffers *b, const struct gen__family *family, const gen_problem *problem,
                  int form, uint32_t num_sets, bool tight);
/* Before a fill: data that hurts. False if the family has none of this kind. */
bool buffers_set_data(struct buffers *b, enum gen__data kind);
void buffers_free(struct buffers *b);

/* Offset of tensor t of a set in the block; a view's is where it begins. */
uint64_t buffers_at(const struct buffers *b, uint32_t set, uint32_t t);

/* The arguments of a set in a block at `base`; args_size bytes. */
void buffers_args(const struct buffers *b, uint64_t base, uint32_t set, gen_args *args);

/* Controls of the fill. */
struct fill_options {
    uint64_t seed;
    bool padding;    /* every third slot, page or record names nothing */
    bool non_finite; /* a NaN and an infinity in each float32 state, and what the family adds */
    bool poisoned;   /* NaN wherever one head of one request looks, where the family has such */
    bool cycle;      /* repeat the first 262,136 random elements */
    bool ordered;    /* slots and pages in ascending order, as a pool is filled, not shuffled */
};

/* Fills a whole block on the host: canaries, inputs, poison. */
void buffers_fill(const struct buffers *b, const struct fill_options *options, uint8_t *block);

/* The same on the device, for timing: without guards, big tensors by repeating
 * a random piece. */
enum gen_status buffers_fill_device(const struct buffers *b, const struct fill_options *options,
                                    const struct gpu *gpu, CUdeviceptr base);

uint32_t dtype_bytes(enum gen_dtype dtype);
/* Element i of a tensor's bytes as a double. */
double dtype_get(enum gen_dtype dtype, const void *data, uint64_t i);

/* Bytes that the problem updates in place and bytes of memory it touches at
 * all, each counted once: from the family's cost, since a pool may be larger
 * than what a launch reads of it. */
void problem_footprint(const struct gen__family *family, const gen_problem *problem,
                       uint64_t *inplace, uint64_t *touched);

/* Sets that make the touched bytes of all of them exceed 2.2 times `l2_bytes`:
 * at least 2, at most `limit`. */
uint32_t sets_beyond_cache(uint64_t touched, uint64_t l2_bytes, uint32_t limit);

#endif /* BENCH_BUFFERS_H */
