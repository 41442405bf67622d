/*
 * Forms of kda_prefill and gdn_prefill with states in pools, for the verifier: slots in no order,
 * room between them, null ones, forks of a prefix, and checkpoints as a list or in regular
 * distances.
 */
#include "families/kda/pools.h"
#include "families/kda/prefill.h"

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
static void pools_form(const int32_t *dims, bool in_place, gen_kda_prefill_args *a,
                       struct gen__tensor *t)
{
    const int64_t batch = dims[KDA_BATCH], state = gen__kda_state_size(dims);
    struct gen_kda_pools *const p = &a->pools;
    p->num_slots = (int32_t)(2 * batch + 1);
    p->null_slot = NULL_SLOT;
    p->stride_in = state + GAP;
    p->stride_out = in_place ? p->stride_in : state + 2 * GAP;
    t[KDA_PREFILL_INITIAL_STATE].count = (uint64_t)(p->num_slots * p->stride_in);
    t[KDA_PREFILL_FINAL_STATE].count = (uint64_t)(p->num_slots * p->stride_out);
    t[KDA_PREFILL_SLOTS_IN].count = t[KDA_PREFILL_SLOTS_OUT].count = (uint64_t)batch;
    t[KDA_PREFILL_HAS_INITIAL].count = (uint64_t)batch;
    if (!in_place)
        return;
    t[KDA_PREFILL_INITIAL_STATE].role = GEN__INOUT;
    t[KDA_PREFILL_INITIAL_STATE].tolerance = t[KDA_PREFILL_FINAL_STATE].tolerance;
    t[KDA_PREFILL_FINAL_STATE].count = 0;
    t[KDA_PREFILL_FINAL_STATE].view_of = KDA_PREFILL_INITIAL_STATE + 1;
}

/* Entries of a list: behind each chunk, before the first one, one that is none and one too far. */
static int64_t entries(const int32_t *dims)
{
    return dims[KDA_BATCH] * (most_chunks(dims) + 3);
}

static void checkpoint_form(const int32_t *dims, bool list, gen_kda_prefill_args *a,
                            struct gen__tensor *t)
{
    const int64_t batch = dims[KDA_BATCH], columns = most_chunks(dims) / EVERY + 1;
    const int64_t count = list ? entries(dims) : batch * columns;
    struct gen_kda_pools *const p = &a->pools;
    p->null_slot = NULL_SLOT;
    p->ckpt_state_stride = gen__kda_state_size(dims) + GAP;
    p->num_ckpt_slots = (int32_t)(count + 1);
    t[KDA_PREFILL_CKPT_POOL].count = (uint64_t)(p->num_ckpt_slots * p->ckpt_state_stride);
    t[KDA_PREFILL_CKPT_SLOT].count = (uint64_t)count;
    if (list) {
        p->num_ckpts = (int32_t)count;
        t[KDA_PREFILL_CKPT_BEGIN].count = (uint64_t)(batch + 1);
        t[KDA_PREFILL_CKPT_TOKEN].count = (uint64_t)count;
    } else {
        p->ckpt_every = EVERY;
        p->ckpt_stride = (int32_t)columns;
    }
}

bool gen__kda_prefill_pool_form(const gen_problem *base, enum gen__kda_prefill_pool_form form,
                                gen_kda_prefill_args *a, struct gen__tensor *t)
{
    const gen_kda_prefill_problem *p = (const gen_kda_prefill_problem *)base;
    const int32_t *dims = gen__kda_prefill_dims(base);
    if (!p->state_pool)
        return false;
    if (form == GEN__KDA_POOL_VK)
        a->state_layout = GEN_KDA_STATE_VK;
    if (form != GEN__KDA_POOL_REGULAR)
        pools_form(dims, form == GEN__KDA_POOL_IN_PLACE, a, t);
    if (form != GEN__KDA_POOL_SLOTS)
        checkpoint_form(dims, form != GEN__KDA_POOL_REGULAR, a, t);
    return true;
}

/* ---- what stands in them ----------------------------------------------- */

/* Final states go to odd slots from the last one down; initial ones come from even ones, of every
 * third sequence from that of the one before, or in place from odd ones, too. */
static void fill_slots(const int32_t *dims, const gen_kda_prefill_args *a, bool in_place,
                       void *const *data)
{
    int32_t *const in = data[KDA_PREFILL_SLOTS_IN], *const out = data[KDA_PREFILL_SLOTS_OUT];
    uint8_t *const has = data[KDA_PREFILL_HAS_INITIAL];
    const int32_t batch = dims[KDA_BATCH];
    for (int32_t n = 0; in && out && has && n < batch; n++) {
        out[n] = 2 * (batch - n) - 1;
        in[n] = in_place ? out[n] : 2 * (n % 3 == 1 ? n : n + 1);
        has[n] = n % 4 != 3;
        if (n % 5 == 4)
            in[n] = no_slot(n, a->pools.num_slots);
        if (n % 7 == 5)
            out[n] = no_slot(n, a->pools.num_slots);
    }
}

/* NaN in slots that no sequence begins in. */
static void poison_slots(const int32_t *dims, const gen_kda_prefill_args *a,
                         const struct gen__tensor *initial, void *const *data)
{
    struct gen_kda_pools p = a->pools;
    p.slots_in = data[KDA_PREFILL_SLOTS_IN];
    p.has_initial = data[KDA_PREFILL_HAS_INITIAL];
    const size_t element = initial->dtype == GEN_DTYPE_FP32 ? 4 : 2;
    char *const pool = data[KDA_PREFILL_INITIAL_STATE];
    for (int64_t slot = 0; pool && p.slots_in && p.has_initial && slot < p.num_slots; slot++) {
        bool read = false;
        for (int64_t n = 0; n < dims[KDA_BATCH]; n++)
            read = read || gen__kda_slot_in(dims, &p, n) == slot;
        const size_t bytes = (size_t)p.stride_in * element;
        if (!read)
            memset(pool + (size_t)slot * bytes, 0xff, bytes);
    }
}

static void fill_list(const int32_t *dims, const gen_kda_prefill_args *a, const int32_t *cu_seqlens,
                      void *const *data)
{
    int32_t *const begin = data[KDA_PREFILL_CKPT_BEGIN], *const token =
                                                             data[KDA_PREFILL_CKPT_TOKEN];
    int32_t *const slot = data[KDA_PREFILL_CKPT_SLOT];
    int32_t e = 0;
    for (int32_t n = 0; begin && n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        begin[n] = e;
        if (n % 3 == 2)
            continue; /* a sequence without checkpoints */
        for (int32_t at = 0; at <= s.length && token; at += KDA_CHUNK) {
            if (n % 2 == 0 || at % (3 * KDA_CHUNK))
                token[e++] = at;
            if (at == KDA_CHUNK)
                token[e++] = at + 1; /* no multiple of 64 */
        }
        if (token)
            token[e++] = (int32_t)(gen__kda_chunks(s.length) + 1) * KDA_CHUNK;
    }
    if (begin)
        begin[dims[KDA_BATCH]] = e;
    const int32_t count = begin ? e : dims[KDA_BATCH] * a->pools.ckpt_stride;
    for (int32_t i = 0; slot && i < count; i++)
        slot[i] =
            i % 6 == 4 ? no_slot(i, a->pools.num_ckpt_slots) : a->pools.num_ckpt_slots - 1 - i;
}

void gen__kda_prefill_fill_pools(const gen_problem *base, const gen_kda_prefill_args *a,
                                 const struct gen__tensor *list,
                                 const struct gen__fill_options *options, void *const *data)
{
    const int32_t *dims = gen__kda_prefill_dims(base);
    fill_slots(dims, a, list[KDA_PREFILL_FINAL_STATE].view_of != 0, data);
    if (options->non_finite)
        poison_slots(dims, a, &list[KDA_PREFILL_INITIAL_STATE], data);
    fill_list(dims, a, data[KDA_PREFILL_CU_SEQLENS], data);
}
