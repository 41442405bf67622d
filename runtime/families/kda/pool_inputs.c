/*
 * Forms with states in pools, for the verifier: slots in no order, room between them, null ones,
 * forks of a prefix, and checkpoints as a list or in regular distances.
 */
#include "families/kda/pools.h"

#include <string.h>

enum { NULL_SLOT = 1 /* slot 0 */, GAP = 64 /* elements between slots */, EVERY = 2 };

/* Of a state that goes nowhere, or comes from nowhere. */
static int32_t no_slot(int64_t i, int32_t num_slots)
{
    const int32_t none[] = {-1, NULL_SLOT - 1, num_slots, INT32_MAX, INT32_MIN};
    return none[i % (int64_t)(sizeof none / sizeof *none)];
}

static int64_t most_chunks(const int32_t *dims)
{
    return gen__kda_chunks(dims[KDA_SEQ_LEN]);
}

/* Slots of states: as many again as there are sequences, and the null one. */
static void pools_form(const int32_t *dims, bool in_place, const struct gen__kda_pool_places *at,
                       struct gen_kda_pools *p, struct gen__tensor *t)
{
    const int64_t batch = dims[KDA_BATCH], state = gen__kda_state_size(dims);
    p->num_slots = (int32_t)(2 * batch + 1);
    p->null_slot = NULL_SLOT;
    p->stride_in = state + GAP;
    p->stride_out = in_place ? p->stride_in : state + INT64_C(2) * GAP;
    t[at->initial].count = (uint64_t)(p->num_slots * p->stride_in);
    t[at->final].count = (uint64_t)(p->num_slots * p->stride_out);
    t[at->first + GEN__KDA_POOL_SLOTS_IN].count = t[at->first + GEN__KDA_POOL_SLOTS_OUT].count =
        (uint64_t)batch;
    t[at->first + GEN__KDA_POOL_HAS_INITIAL].count = (uint64_t)batch;
    if (!in_place)
        return;
    t[at->initial].role = GEN__INOUT;
    t[at->initial].tolerance = t[at->final].tolerance;
    t[at->final].count = 0;
    t[at->final].view_of = at->initial + 1;
}

/* Entries of a list: behind each chunk, before the first one, one that is none and one too far. */
static int64_t entries(const int32_t *dims)
{
    return dims[KDA_BATCH] * (most_chunks(dims) + 3);
}

static void checkpoint_form(const int32_t *dims, bool list, const struct gen__kda_pool_places *at,
                            struct gen_kda_pools *p, struct gen__tensor *t)
{
    const int64_t batch = dims[KDA_BATCH], columns = most_chunks(dims) / EVERY + 1;
    const int64_t count = list ? entries(dims) : batch * columns;
    p->null_slot = NULL_SLOT;
    p->ckpt_state_stride = gen__kda_state_size(dims) + GAP;
    p->num_ckpt_slots = (int32_t)(count + 1);
    t[at->first + GEN__KDA_POOL_CKPT_POOL].count =
        (uint64_t)(p->num_ckpt_slots * p->ckpt_state_stride);
    t[at->first + GEN__KDA_POOL_CKPT_SLOT].count = (uint64_t)count;
    if (list) {
        p->num_ckpts = (int32_t)count;
        t[at->first + GEN__KDA_POOL_CKPT_BEGIN].count = (uint64_t)(batch + 1);
        t[at->first + GEN__KDA_POOL_CKPT_TOKEN].count = (uint64_t)count;
    } else {
        p->ckpt_every = EVERY;
        p->ckpt_stride = (int32_t)columns;
    }
}

void gen__kda_pool_form(const int32_t *dims, enum gen__kda_pool_form form,
                        const struct gen__kda_pool_places *at, struct gen_kda_pools *p,
                        struct gen__tensor *t)
{
    if (form != GEN__KDA_POOL_REGULAR)
        pools_form(dims, form == GEN__KDA_POOL_IN_PLACE, at, p, t);
    if (form != GEN__KDA_POOL_SLOTS)
        checkpoint_form(dims, form != GEN__KDA_POOL_REGULAR, at, p, t);
}

/* ---- what stands in them ----------------------------------------------- */

/* Final states go to odd slots from the last one down; initial ones come from even ones, of every
 * third sequence from that of the one before, or in place from odd ones, too. */
static void fill_slots(const int32_t *dims, const struct gen__kda_pool_places *at,
                       const struct gen_kda_pools *p, bool in_place, void *const *data)
{
    int32_t *const in = data[at->first + GEN__KDA_POOL_SLOTS_IN],
                   *const out = data[at->first + GEN__KDA_POOL_SLOTS_OUT];
    uint8_t *const has = data[at->first + GEN__KDA_POOL_HAS_INITIAL];
    const int32_t batch = dims[KDA_BATCH];
    for (int32_t n = 0; in && out && has && n < batch; n++) {
        out[n] = 2 * (batch - n) - 1;
        in[n] = in_place ? out[n] : 2 * (n % 3 == 1 ? n : n + 1);
        has[n] = n % 4 != 3;
        if (n % 5 == 4)
            in[n] = no_slot(n, p->num_slots);
        if (n % 7 == 5)
            out[n] = no_slot(n, p->num_slots);
    }
}

/* NaN in slots that no sequence begins in. */
static void poison_slots(const int32_t *dims, const struct gen__kda_pool_places *at,
                         const struct gen_kda_pools *pools, const struct gen__tensor *initial,
                         void *const *data)
{
    struct gen_kda_pools p = *pools;
    p.slots_in = data[at->first + GEN__KDA_POOL_SLOTS_IN];
    p.has_initial = data[at->first + GEN__KDA_POOL_HAS_INITIAL];
    const size_t element = initial->dtype == GEN_DTYPE_FP32 ? 4 : 2;
    char *const pool = data[at->initial];
    for (int64_t slot = 0; pool && p.slots_in && p.has_initial && slot < p.num_slots; slot++) {
        bool read = false;
        for (int64_t n = 0; n < dims[KDA_BATCH]; n++)
            read = read || gen__kda_slot_in(dims, &p, n) == slot;
        const size_t bytes = (size_t)p.stride_in * element;
        if (!read)
            memset(pool + (size_t)slot * bytes, 0xff, bytes);
    }
}

static void fill_list(const int32_t *dims, const struct gen__kda_pool_places *at,
                      const struct gen_kda_pools *p, const int32_t *cu_seqlens, void *const *data)
{
    int32_t *const begin = data[at->first + GEN__KDA_POOL_CKPT_BEGIN],
                   *const token = data[at->first + GEN__KDA_POOL_CKPT_TOKEN];
    int32_t *const slot = data[at->first + GEN__KDA_POOL_CKPT_SLOT];
    int32_t e = 0;
    for (int32_t n = 0; begin && n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        begin[n] = e;
        if (n % 3 == 2)
            continue; /* a sequence without checkpoints */
        for (int32_t i = 0; i <= s.length && token; i += KDA_CHUNK) {
            if (n % 2 == 0 || i % (3 * KDA_CHUNK))
                token[e++] = i;
            if (i == KDA_CHUNK)
                token[e++] = i + 1; /* no multiple of 64 */
        }
        if (token)
            token[e++] = (int32_t)(gen__kda_chunks(s.length) + 1) * KDA_CHUNK;
    }
    if (begin)
        begin[dims[KDA_BATCH]] = e;
    const int32_t count = begin ? e : dims[KDA_BATCH] * p->ckpt_stride;
    for (int32_t i = 0; slot && i < count; i++)
        slot[i] = i % 6 == 4 ? no_slot(i, p->num_ckpt_slots) : p->num_ckpt_slots - 1 - i;
}

void gen__kda_fill_pools(const int32_t *dims, const struct gen__kda_pool_places *at,
                         const struct gen_kda_pools *p, const struct gen__tensor *list,
                         const struct gen__fill_options *options, void *const *data)
{
    fill_slots(dims, at, p, list[at->final].view_of != 0, data);
    if (options->non_finite)
        poison_slots(dims, at, p, &list[at->initial], data);
    fill_list(dims, at, p, data[at->cu_seqlens], data);
}
