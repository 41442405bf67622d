/*
 * Kimi Delta Attention, what segments do to states, in plain C: kda_scan/args.h has
 * the maths. A column of what is added and one of a transition take the same steps,
 * the latter without u.
 */
#include "families/kda/pools.h"
#include "families/kda/reference_inputs.h"
#include "families/kda/segments.h"
#include "families/kda/layout.h"
#include "reference/state.h"

#include <stdlib.h>

struct chain {
    double s[KDA_MAX_HEAD_DIM][2 * KDA_MAX_HEAD_DIM]; /* [K][V of A, then K of M] */
    double vn[KDA_CHUNK][2 * KDA_MAX_HEAD_DIM];
    double rows[KDA_CHUNK][KDA_MAX_HEAD_DIM]; /* of w, then of kg */
    double decay[KDA_MAX_HEAD_DIM];           /* of the chunks so far */
};

static void load_rows(const int32_t *dims, const void *tile, int64_t record, struct chain *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t i = 0; i < KDA_CHUNK; i++)
        for (int64_t k = 0; k < d; k++)
            c->rows[i][k] = gen__kda_load(false, dims[KDA_DTYPE] == GEN_DTYPE_FP16, tile,
                                          record * KDA_CHUNK * d + gen__kda_tile_at(i, k));
}

static void step(const int32_t *dims, const gen_kda_scan_args *a, int64_t record, struct chain *c)
{
    const bool fp16 = dims[KDA_DTYPE] == GEN_DTYPE_FP16;
    const int64_t d = dims[KDA_HEAD_DIM];
    load_rows(dims, a->w, record, c);
    for (int64_t i = 0; i < KDA_CHUNK; i++) {
        for (int64_t v = 0; v < 2 * d; v++)
            c->vn[i][v] = v < d ? gen__kda_load(false, fp16, a->u,
                                                record * KDA_CHUNK * d + gen__kda_u_at(v, i))
                                : 0.0;
        for (int64_t k = 0; k < d; k++)
            for (int64_t v = 0; v < 2 * d; v++)
                c->vn[i][v] += c->rows[i][k] * c->s[k][v]; /* w is -w */
    }
    load_rows(dims, a->kg, record, c);
    for (int64_t k = 0; k < d; k++) {
        c->decay[k] *= (double)a->decay[record * d + k];
        for (int64_t v = 0; v < 2 * d; v++)
            c->s[k][v] *= (double)a->decay[record * d + k];
        for (int64_t i = 0; i < KDA_CHUNK; i++)
            for (int64_t v = 0; v < 2 * d; v++)
                c->s[k][v] += c->rows[i][k] * c->vn[i][v];
    }
}

/* S = 0 or, where `slot` is not -1, the initial state, M = 1. */
static void begin(const int32_t *dims, const gen_kda_scan_args *a, int64_t slot, int64_t head,
                  struct chain *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d; k++) {
        c->decay[k] = 1.0;
        for (int64_t v = 0; v < d; v++) {
            c->s[k][v] = slot < 0
                             ? 0.0
                             : gen__state_get(dims[KDA_STATE_DTYPE], a->initial_state,
                                              gen__kda_pool_at(dims, a->state_layout, slot,
                                                               a->pools.stride_in, head, k, v));
            c->s[k][d + v] = k == v;
        }
    }
}

static void store_added(const int32_t *dims, const gen_kda_scan_args *a, int64_t record,
                        const struct chain *c)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d; k++)
        for (int64_t v = 0; v < d; v++)
            a->added[record * d * d + gen__kda_added_at(d, v, k)] = (float)c->s[k][v];
}

static void store_transition(const int32_t *dims, const gen_kda_scan_args *a, int64_t record,
                             const struct chain *c)
{
    const bool fp16 = dims[KDA_DTYPE] == GEN_DTYPE_FP16;
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t k = 0; k < d; k++) {
        a->segment_decay[record * d + k] = (float)c->decay[k];
        for (int64_t j = 0; j < d; j++) {
            const int64_t at = record * 2 * d * d + gen__kda_transition_at(d, j, k);
            const double x = c->s[k][d + j] - (j == k ? c->decay[k] : 0.0);
            gen__kda_store(fp16, a->transition, at, x);
            const double first = gen__kda_load(false, fp16, a->transition, at);
            gen__kda_store(fp16, a->transition, at + 64 * d, x - first);
        }
    }
}

enum gen_status gen__kda_scan_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_scan_args *a = (const gen_kda_scan_args *)base;
    const int32_t *dims = plan->dims;
    const int64_t heads = dims[KDA_V_HEADS], each = dims[KDA_SEGMENT_CHUNKS];
    struct chain *c = calloc(1, sizeof *c);
    if (!c)
        return gen__fail(GEN_STATUS_OUT_OF_MEMORY, "kda_scan: no %zu bytes for a state", sizeof *c);
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, a->cu_seqlens, n);
        const int64_t count = gen__kda_segments_of(gen__kda_chunks(s.length), each);
        const int64_t slot = gen__kda_segment_slot(dims, a->cu_seqlens, n);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t j = 0; j + 1 < count; j++) {
                const int64_t first = a->initial_state ? gen__kda_slot_in(dims, &a->pools, n) : -1;
                begin(dims, a, j == 0 ? first : -1, head, c);
                if (j == 0 && first >= 0)
                    store_added(dims, a, (slot + count - 1) * heads + head, c);
                for (int64_t chunk = j * each; chunk < (j + 1) * each; chunk++)
                    step(dims, a, (s.slot + chunk) * heads + head, c);
                store_added(dims, a, (slot + j) * heads + head, c);
                if (j > 0)
                    store_transition(dims, a, (slot + j) * heads + head, c);
            }
    }
    free(c);
    return GEN_OK;
}
