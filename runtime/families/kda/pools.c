/* States in pools: what is allowed, and what the kernels get. */
#include "families/kda/pools.h"

#include "families/kda/segments.h"

#include <inttypes.h>

int64_t gen__kda_checkpoint_slot(const struct gen_kda_pools *p, int64_t n, int64_t tokens)
{
    if (!p->ckpt_pool || tokens % KDA_CHUNK)
        return -1;
    if (p->ckpt_begin) {
        for (int64_t e = p->ckpt_begin[n]; e < p->ckpt_begin[n + 1]; e++)
            if (p->ckpt_token[e] == tokens)
                return gen__kda_valid_slot(p, p->ckpt_slot[e], p->num_ckpt_slots);
        return -1;
    }
    const int64_t chunk = tokens / KDA_CHUNK, column = chunk / p->ckpt_every - 1;
    if (!chunk || chunk % p->ckpt_every || column >= p->ckpt_stride)
        return -1;
    return gen__kda_valid_slot(p, p->ckpt_slot[n * p->ckpt_stride + column], p->num_ckpt_slots);
}

/* ---- checks ------------------------------------------------------------ */

/* slots * stride * 4 bytes stay below 2^63. */
static enum gen_status check_slots(const char *family, const int32_t *dims, const char *name,
                                   int64_t slots, const char *stride_name, int64_t stride)
{
    const int64_t packed = gen__kda_state_size(dims), granule = 16 / gen__kda_state_bytes(dims);
    const int64_t addressable = (INT64_C(1) << 60) / packed;
    const int64_t most = addressable < INT32_MAX ? addressable : INT32_MAX;
    if (slots < 1 || slots > most)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %" PRId64 "; allowed: 1 to %" PRId64, family, name, slots, most);
    const int64_t widest = (INT64_C(1) << 60) / slots;
    if (stride != 0 && (stride < packed || stride > widest || stride % granule))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of "
                         "%" PRId64 " from %" PRId64 " (one slot) to %" PRId64,
                         family, stride_name, stride, granule, packed, widest);
    return GEN_OK;
}

/* Something of a pool that is not there. */
static enum gen_status no_pool(const char *family, const char *field, const char *pool)
{
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: pools.%s without %s; allowed: 0", family,
                     field, pool);
}

/* Lists that go with a pool, in the order of their names. */
static enum gen_status check_states(const char *family, const int32_t *dims,
                                    const struct gen_kda_pools *p, const void *initial_state,
                                    const void *final_state)
{
    enum gen_status status;
    if ((status = gen__check_pointer(family, "pools.slots_in", p->slots_in, 4, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "pools.slots_out", p->slots_out, 4, true)) != GEN_OK)
        return status;
    if (!initial_state && (p->slots_in || p->has_initial || p->stride_in))
        return no_pool(family,
                       p->slots_in      ? "slots_in"
                       : p->has_initial ? "has_initial"
                                        : "stride_in",
                       "initial_state");
    if (!final_state && (p->slots_out || p->stride_out))
        return no_pool(family, p->slots_out ? "slots_out" : "stride_out", "final_state");
    if (p->null_slot < 0)
        return gen__invalid(family, "pools.null_slot", p->null_slot, "0 (none), or 1 + a slot");
    if (p->num_slots < 0)
        return gen__invalid(family, "pools.num_slots", p->num_slots, "0 (batch), or more");
    const bool by_number = (initial_state && !p->slots_in) || (final_state && !p->slots_out);
    if (p->num_slots && by_number && p->num_slots < dims[KDA_BATCH])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: pools.num_slots = %d without %s; allowed: >= batch = %" PRId32,
                         family, p->num_slots, p->slots_in ? "slots_out" : "slots_in",
                         dims[KDA_BATCH]);
    if (!initial_state && !final_state)
        return GEN_OK;
    const int64_t slots = gen__kda_num_slots(dims, p);
    if ((status = check_slots(family, dims, "pools.num_slots", slots, "pools.stride_in",
                              p->stride_in)) != GEN_OK)
        return status;
    return check_slots(family, dims, "pools.num_slots", slots, "pools.stride_out", p->stride_out);
}

static enum gen_status check_checkpoints(const char *family, const int32_t *dims,
                                         const struct gen_kda_pools *p)
{
    enum gen_status status;
    if (!p->ckpt_pool) {
        if (p->ckpt_begin || p->ckpt_token || p->ckpt_slot || p->ckpt_state_stride ||
            p->num_ckpt_slots || p->num_ckpts || p->ckpt_every || p->ckpt_stride)
            return no_pool(family, "ckpt_begin to ckpt_stride", "ckpt_pool");
        return GEN_OK;
    }
    const bool list = p->ckpt_begin != NULL, none = list && !p->num_ckpts;
    if ((status = gen__check_pointer(family, "pools.ckpt_pool", p->ckpt_pool, 16, false)) ||
        (status = gen__check_pointer(family, "pools.ckpt_begin", p->ckpt_begin, 4, true)) ||
        (status = gen__check_pointer(family, "pools.ckpt_slot", p->ckpt_slot, 4, none)) ||
        (status = gen__check_pointer(family, "pools.ckpt_token", p->ckpt_token, 4, !list || none)))
        return status;
    if (list && (p->ckpt_every || p->ckpt_stride))
        return gen__invalid(family, "pools.ckpt_every", p->ckpt_every,
                            "0 with ckpt_begin, and ckpt_stride 0");
    if (p->num_ckpts < 0 || (!list && (p->num_ckpts || p->ckpt_token)))
        return gen__invalid(family, "pools.num_ckpts", p->num_ckpts,
                            "0 or more with ckpt_begin, else 0 and no ckpt_token");
    if (!list && p->ckpt_every < 1)
        return gen__invalid(family, "pools.ckpt_every", p->ckpt_every,
                            "1 or more without ckpt_begin");
    if (!list && p->ckpt_stride < 1)
        return gen__invalid(family, "pools.ckpt_stride", p->ckpt_stride,
                            "1 or more without ckpt_begin");
    return check_slots(family, dims, "pools.num_ckpt_slots", p->num_ckpt_slots,
                       "pools.ckpt_state_stride", p->ckpt_state_stride);
}

enum gen_status gen__kda_check_state_fields(const char *family, int32_t state_pool,
                                            int32_t state_dtype)
{
    if (state_pool != 0 && state_pool != 1)
        return gen__invalid(family, "state_pool", state_pool, "0 (none), 1 (pool)");
    if (state_dtype < GEN_STATE_FP32 || state_dtype > GEN_STATE_FP16)
        return gen__invalid(family, "state_dtype", state_dtype,
                            "GEN_STATE_FP32 (0), GEN_STATE_BF16 (1), GEN_STATE_FP16 (2)");
    if (state_dtype != GEN_STATE_FP32 && !state_pool)
        return gen__invalid(family, "state_dtype", state_dtype,
                            "GEN_STATE_FP32 (0) with state_pool = 0");
    return GEN_OK;
}

enum gen_status gen__kda_check_pools(const char *family, const int32_t *dims,
                                     const struct gen_kda_pools *p, const void *initial_state,
                                     const void *final_state)
{
    static const struct gen_kda_pools none;
    if (!dims[KDA_STATE_POOL]) {
        if (!memcmp(p, &none, sizeof none))
            return GEN_OK;
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: pools is not 0 with state_pool = 0; allowed: all of it 0", family);
    }
    const enum gen_status status = check_states(family, dims, p, initial_state, final_state);
    return status ? status : check_checkpoints(family, dims, p);
}

/* ---- what the kernels get ---------------------------------------------- */

void gen__kda_pool_params(const int32_t *dims, const struct gen_kda_pools *p,
                          struct gen_kda_pool_params *k)
{
    const int64_t packed = gen__kda_state_size(dims);
    k->at = *p;
    k->at.stride_in = p->stride_in ? p->stride_in : packed;
    k->at.stride_out = p->stride_out ? p->stride_out : packed;
    k->at.ckpt_state_stride = p->ckpt_state_stride ? p->ckpt_state_stride : packed;
    k->at.num_slots = (int)gen__kda_num_slots(dims, p);
    k->at.null_slot = p->null_slot - 1;
    k->narrow = dims[KDA_STATE_DTYPE] != GEN_STATE_FP32;
    k->fp16 = dims[KDA_STATE_DTYPE] == GEN_STATE_FP16;
}

void gen__kda_inter_pool_params(const int32_t *dims, const gen_kda_inter_args *a,
                                struct gen_kda_inter_pool_params *k)
{
    gen__kda_inter_params(dims, a, &k->inter);
    gen__kda_pool_params(dims, &a->pools, &k->pools);
}

void gen__kda_scan_pool_params(const int32_t *dims, const gen_kda_scan_args *a,
                               struct gen_kda_inter_pool_params *k)
{
    gen__kda_scan_params(dims, a, &k->inter);
    gen__kda_pool_params(dims, &a->pools, &k->pools);
}

/* ---- what is read and written -------------------------------------------- */

uint32_t gen__kda_pool_extents(const int32_t *dims, const struct gen_kda_pools *p,
                               const void *initial_state, const void *final_state,
                               struct gen__extent *list)
{
    const int64_t element = gen__kda_state_bytes(dims), batch = dims[KDA_BATCH];
    const int64_t state = gen__kda_state_size(dims) * element, slots = gen__kda_num_slots(dims, p);
    gen__reads_rows(&list[0], "initial_state", initial_state, state, slots,
                    gen__stride_bytes(p->stride_in, element));
    gen__writes_rows(&list[1], "final_state", final_state, state, slots,
                     gen__stride_bytes(p->stride_out, element));
    list[1].may_be = initial_state;
    if (!dims[KDA_STATE_POOL])
        return 2;
    const int64_t entries = p->ckpt_begin ? p->num_ckpts : batch * p->ckpt_stride;
    gen__reads(&list[2], "pools.slots_in", p->slots_in, batch * 4);
    gen__reads(&list[3], "pools.slots_out", p->slots_out, batch * 4);
    gen__reads(&list[4], "pools.has_initial", p->has_initial, batch);
    gen__reads(&list[5], "pools.ckpt_begin", p->ckpt_begin, (batch + 1) * 4);
    gen__reads(&list[6], "pools.ckpt_token", p->ckpt_token, entries * 4);
    gen__reads(&list[7], "pools.ckpt_slot", p->ckpt_slot, entries * 4);
    if (p->ckpt_pool == initial_state || p->ckpt_pool == final_state)
        return 8; /* one pool for all, whose slots differ */
    gen__writes_rows(&list[8], "pools.ckpt_pool", p->ckpt_pool, state, p->num_ckpt_slots,
                     gen__stride_bytes(p->ckpt_state_stride, element));
    return 9;
}
