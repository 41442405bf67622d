/*
 * The schedule of templates/mla_decode/schedule.cuh for one thread: what each part
 * of a grid has of which request, which slots of the workspace that fills, and
 * what mla_merge gets. Written after the words of mla_decode/args.h; where
 * they leave a choice, as the device code makes it.
 */
#ifndef TEST_FAMILY_MLA_SCHEDULE_H
#define TEST_FAMILY_MLA_SCHEDULE_H

#include "families/mla_decode/api.h"

#include <stdbool.h>
#include <stdint.h>

/* Before block `block` of request `request`. */
struct schedule_cut {
    int request, block;
};

struct schedule_piece {
    int request, first, last; /* blocks */
    int slot;                 /* -1: the whole request */
};

static inline int schedule_length(const struct gen_mla_schedule *s, const int32_t *kv_len, int b)
{
    const int length = kv_len[b] < 0 ? 0 : kv_len[b];
    return length < s->max_kv_len ? length : s->max_kv_len;
}

/* An empty request has a block, too. */
static inline int schedule_blocks(const struct gen_mla_schedule *s, const int32_t *kv_len, int b)
{
    const int length = schedule_length(s, kv_len, b);
    return length > 0 ? (length + MLA_BLOCK - 1) / MLA_BLOCK : 1;
}

static inline int schedule_chunks(const struct gen_mla_schedule *s, int blocks)
{
    return s->chunk ? (blocks + s->chunk - 1) / s->chunk : 1;
}

static inline int64_t schedule_cost(const struct gen_mla_schedule *s, const int32_t *kv_len, int b)
{
    const int blocks = schedule_blocks(s, kv_len, b);
    return blocks + (int64_t)s->visit * schedule_chunks(s, blocks);
}

static inline int64_t schedule_total(const struct gen_mla_schedule *s, const int32_t *kv_len)
{
    int64_t total = 0;
    for (int b = 0; b < s->batch; b++)
        total += schedule_cost(s, kv_len, b);
    return total;
}

/* Where the k-th of num_parts equal lengths of the line begins, moved as allowed. */
static inline struct schedule_cut schedule_cut_at(const struct gen_mla_schedule *s,
                                                  const int32_t *kv_len, int k)
{
    int64_t x = schedule_total(s, kv_len) * k / s->num_parts;
    for (int b = 0; b < s->batch; b++) {
        const int blocks = schedule_blocks(s, kv_len, b);
        const int64_t cost = schedule_cost(s, kv_len, b);
        if (x >= cost) {
            x -= cost;
            continue;
        }
        const int block = (int)(x * blocks / cost);
        if (s->chunk)
            return (struct schedule_cut){b, block / s->chunk * s->chunk};
        if (block <= s->snap && block <= blocks - block)
            return (struct schedule_cut){b, 0};
        if (blocks - block <= s->snap)
            return (struct schedule_cut){b + 1, 0};
        return (struct schedule_cut){b, block};
    }
    return (struct schedule_cut){s->batch, 0};
}

/* The next piece of part p from *next on; false behind the last. */
static inline bool schedule_step(const struct gen_mla_schedule *s, const int32_t *kv_len, int p,
                                 struct schedule_cut *next, struct schedule_piece *piece)
{
    const struct schedule_cut end = schedule_cut_at(s, kv_len, p + 1);
    if (next->request > end.request || (next->request == end.request && next->block >= end.block))
        return false;
    const int blocks = schedule_blocks(s, kv_len, next->request);
    *piece = (struct schedule_piece){next->request, next->block,
                                     next->request == end.request ? end.block : blocks, -1};
    if (s->chunk && piece->last > piece->first + s->chunk)
        piece->last = piece->first + s->chunk;
    if (piece->first > 0 || piece->last < blocks)
        piece->slot = s->chunk ? piece->request * s->max_chunks + piece->first / s->chunk
                               : 2 * p + (piece->first == 0);
    *next = piece->last == blocks ? (struct schedule_cut){piece->request + 1, 0}
                                  : (struct schedule_cut){piece->request, piece->last};
    return true;
}

/* The part has nothing, inside of a request: its slot 2 p says so. */
static inline bool schedule_empty(const struct gen_mla_schedule *s, const int32_t *kv_len, int p)
{
    const struct schedule_cut a = schedule_cut_at(s, kv_len, p);
    const struct schedule_cut b = schedule_cut_at(s, kv_len, p + 1);
    return !s->chunk && a.request == b.request && a.block == b.block && a.block > 0;
}

/* What part p says of the requests that begin in it. */
static inline void schedule_tell(const struct gen_mla_schedule *s, const int32_t *kv_len, int p,
                                 struct gen_mla_record *records)
{
    const struct schedule_cut begin = schedule_cut_at(s, kv_len, p);
    const struct schedule_cut end = schedule_cut_at(s, kv_len, p + 1);
    const int first = begin.request + (begin.block > 0);
    const bool unended = !s->chunk && end.block > 0 && end.request >= first;
    struct gen_mla_record cut = {-1, 0, 0, 0};
    if (unended) {
        cut = (struct gen_mla_record){end.request, 2 * p + 1, 1, 0};
        for (int q = p + 1; q < s->num_parts; q++) {
            const struct schedule_cut inside = schedule_cut_at(s, kv_len, q);
            cut.num_pieces += inside.request == end.request && inside.block > 0;
        }
    }
    if (!s->by_request) {
        records[p] = cut;
        return;
    }
    for (int b = first; b < s->batch && b < end.request + (end.block > 0); b++) {
        const int blocks = schedule_blocks(s, kv_len, b);
        records[b] =
            s->chunk ? (struct gen_mla_record){b, b * s->max_chunks, schedule_chunks(s, blocks), 0}
            : unended && b == end.request ? cut
                                          : (struct gen_mla_record){b, 0, 1, 0};
    }
}

/* Slot of piece i of a record. */
static inline int schedule_slot(const struct gen_mla_schedule *s,
                                const struct gen_mla_record *record, int i)
{
    return record->first_slot + (s->chunk ? i : i ? 2 * i - 1 : 0);
}

#endif /* TEST_FAMILY_MLA_SCHEDULE_H */
