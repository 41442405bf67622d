/* The chunked form's problem on the host, for the nine families that share it. */
#include "families/kda/pools.h"

#include "families/common/fastdiv.h"
#include "family/occupancy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const gen__kda_dtypes[] = {"bf16", "fp16"};
const char *const gen__kda_others[] = {"bf16", "fp16", "fp32"};
const char *const gen__kda_gates[] = {"any", "safe"};
static const char *const head_dims[] = {"64", "128"};
const struct gen__axis gen__kda_required[KDA_INTRA_NUM_REQUIRED] = {
    {"dtype", gen__kda_dtypes, 2},
    {"head_dim", head_dims, 2},
    {"safe_gate", gen__kda_gates, 2},
};
const char *const gen__kda_state_pools[] = {"none", "pool"};
const char *const gen__kda_state_dtypes[] = {"fp32", "bf16", "fp16"};
const struct gen__axis gen__kda_pool_required[KDA_POOL_NUM_REQUIRED] = {
    {"dtype", gen__kda_dtypes, 2},
    {"head_dim", head_dims, 2},
    {"state_pool", gen__kda_state_pools, 2},
};

/* ---- the problem ------------------------------------------------------- */

static enum gen_status check_heads(const char *family, const int32_t *d)
{
    if (d[KDA_QK_HEADS] < 1 || d[KDA_QK_HEADS] > KDA_MAX_HEADS)
        return gen__invalid(family, "head count num_qk_heads", d[KDA_QK_HEADS], "1 to 65536");
    if (d[KDA_V_HEADS] < 1 || d[KDA_V_HEADS] > KDA_MAX_HEADS)
        return gen__invalid(family, "head count num_v_heads", d[KDA_V_HEADS], "1 to 65536");
    if (d[KDA_V_HEADS] % d[KDA_QK_HEADS])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: head count num_v_heads = %" PRId32
                         "; allowed: a multiple of num_qk_heads = %" PRId32,
                         family, d[KDA_V_HEADS], d[KDA_QK_HEADS]);
    return GEN_OK;
}

static enum gen_status check_tokens(const char *family, const int32_t *d)
{
    if (d[KDA_BATCH] < 0 || d[KDA_BATCH] > KDA_MAX_BATCH)
        return gen__invalid(family, "batch", d[KDA_BATCH], "0 to 65535");
    if (d[KDA_SEQ_LEN] < 0 || d[KDA_SEQ_LEN] > KDA_MAX_TOKENS)
        return gen__invalid(family, "seq_len", d[KDA_SEQ_LEN], "0 to 1073741824");
    const int64_t most = (int64_t)d[KDA_BATCH] * d[KDA_SEQ_LEN];
    if (d[KDA_NUM_TOKENS] < 0 || d[KDA_NUM_TOKENS] > KDA_MAX_TOKENS || d[KDA_NUM_TOKENS] > most)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: num_tokens = %" PRId32
                         "; allowed: 0 to 1073741824, and at most batch * seq_len = %" PRId64,
                         family, d[KDA_NUM_TOKENS], most);
    if (!d[KDA_NUM_TOKENS] && most > KDA_MAX_TOKENS)
        return gen__invalid(family, "batch * seq_len", most, "<= 1073741824");
    const int64_t tiles = gen__kda_slots(d) * d[KDA_V_HEADS];
    if (tiles > INT32_MAX)
        return gen__invalid(family, "chunks * num_v_heads", tiles, "<= 2147483647");
    return GEN_OK;
}

enum gen_status gen__kda_refuse(const char *family, const int32_t *d)
{
    static const char side_dtypes[] = "that of q, k, v, or GEN_DTYPE_FP32 (2)";
    enum gen_status status;
    if ((status = check_heads(family, d)) != GEN_OK || (status = check_tokens(family, d)) != GEN_OK)
        return status;
    if (d[KDA_HEAD_DIM] != 64 && d[KDA_HEAD_DIM] != 128)
        return gen__invalid(family, "head_dim", d[KDA_HEAD_DIM], "64, 128");
    if (d[KDA_DTYPE] != GEN_DTYPE_BF16 && d[KDA_DTYPE] != GEN_DTYPE_FP16)
        return gen__invalid(family, "dtype", d[KDA_DTYPE],
                            "GEN_DTYPE_BF16 (0), GEN_DTYPE_FP16 (1)");
    if (d[KDA_GATE_DTYPE] != d[KDA_DTYPE] && d[KDA_GATE_DTYPE] != GEN_DTYPE_FP32)
        return gen__invalid(family, "gate_dtype", d[KDA_GATE_DTYPE], side_dtypes);
    if (d[KDA_BETA_DTYPE] != d[KDA_DTYPE] && d[KDA_BETA_DTYPE] != GEN_DTYPE_FP32)
        return gen__invalid(family, "beta_dtype", d[KDA_BETA_DTYPE], side_dtypes);
    return gen__invalid(family, "safe_gate", d[KDA_SAFE_GATE], "0, 1");
}

enum gen_status gen__kda_check_dims(const char *family, const int32_t *d)
{
    if (gen__kda_allowed(d))
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH, "%s: the plan's problem is not what gen_select() writes",
                     family);
}

/* ---- sequences --------------------------------------------------------- */

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    x = x > most ? most : x;
    return x < least ? least : x;
}

struct gen__kda_sequence gen__kda_sequence(const int32_t *d, const int32_t *cu_seqlens, int64_t n)
{
    const int64_t seq_len = d[KDA_SEQ_LEN], tokens = gen__kda_tokens(d);
    struct gen__kda_sequence s;
    if (!d[KDA_NUM_TOKENS]) {
        s.first = n * seq_len;
        s.length = seq_len;
        s.slot = n * gen__kda_chunks(seq_len);
        return s;
    }
    s.first = clamp(cu_seqlens[n], 0, tokens);
    s.length = clamp(clamp(cu_seqlens[n + 1], 0, tokens) - s.first, 0, seq_len);
    s.slot = s.first / KDA_CHUNK + n;
    return s;
}

struct gen_kda_sequences gen__kda_sequences(const int32_t *d, const int32_t *cu_seqlens)
{
    const int64_t chunks = gen__kda_chunks(d[KDA_SEQ_LEN]);
    const struct gen__fastdiv by = gen__fastdiv((uint32_t)(chunks > 1 ? chunks : 1));
    return (struct gen_kda_sequences){
        .cu_seqlens = d[KDA_NUM_TOKENS] ? cu_seqlens : NULL,
        .batch = d[KDA_BATCH],
        .seq_len = d[KDA_SEQ_LEN],
        .num_tokens = (int)gen__kda_tokens(d),
        .chunks_mul = by.mul,
        .chunks_shift = by.shift,
    };
}

void gen__kda_fill_cu_seqlens(const int32_t *d, bool irregular, int32_t *cu_seqlens)
{
    static const int32_t lengths[] = {0, 1, 63, 64, 65};
    int64_t left = d[KDA_NUM_TOKENS];
    cu_seqlens[0] = 0;
    for (int64_t n = 0; n < d[KDA_BATCH]; n++) {
        const int64_t behind = d[KDA_BATCH] - n - 1;
        const int64_t wanted = n == 0      ? d[KDA_SEQ_LEN]
                               : irregular ? lengths[(n - 1) % 5]
                                           : left / (behind + 1);
        const int64_t most = left < d[KDA_SEQ_LEN] ? left : d[KDA_SEQ_LEN];
        const int64_t length = clamp(wanted, left - behind * d[KDA_SEQ_LEN], most);
        cu_seqlens[n + 1] = cu_seqlens[n] + (int32_t)length;
        left -= length;
    }
}

bool gen__kda_loose_form(const int32_t *d, struct gen__tensor *cu_seqlens)
{
    cu_seqlens->amount = 1;
    return d[KDA_NUM_TOKENS] && d[KDA_BATCH] > 1;
}

void gen__kda_fill(const int32_t *d, const struct gen__tensor *tensor,
                   const struct gen__fill_options *options, int32_t *cu_seqlens)
{
    if (!cu_seqlens)
        return;
    gen__kda_fill_cu_seqlens(d, options->padding, cu_seqlens);
    if (tensor->amount == 0)
        return;
    cu_seqlens[0] = -7;
    cu_seqlens[1] += 5; /* who begins here begins later, or has nothing */
    cu_seqlens[d[KDA_BATCH]] = INT32_MAX;
}

/* Varlen: the longest sequence is as long as the others, has half of all tokens, or
 * so many tokens. No two problems have one name. */
static void add_spread(const int32_t *d, char *text, size_t capacity)
{
    const int64_t longest = d[KDA_SEQ_LEN], tokens = d[KDA_NUM_TOKENS], batch = d[KDA_BATCH];
    if (longest == (tokens + batch - 1) / batch)
        snprintf(text, capacity, "uniform");
    else if (2 * longest == tokens)
        snprintf(text, capacity, "skewed");
    else
        snprintf(text, capacity, "max%" PRId64, longest);
}

void gen__kda_case_name(const int32_t *d, char *text, size_t capacity)
{
    char heads[48], spread[24], other[64] = "";
    if (d[KDA_V_HEADS] != d[KDA_QK_HEADS])
        snprintf(heads, sizeof heads, "HQK%" PRId32 "-HV%" PRId32, d[KDA_QK_HEADS], d[KDA_V_HEADS]);
    else
        snprintf(heads, sizeof heads, "H%" PRId32, d[KDA_V_HEADS]);
    snprintf(other, sizeof other, "%s%s%s%s%s", d[KDA_HEAD_DIM] == 64 ? "-D64" : "",
             d[KDA_DTYPE] == GEN_DTYPE_FP16 ? "-fp16" : "",
             d[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? "-g32" : "",
             d[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? "" : "-b16", d[KDA_SAFE_GATE] ? "" : "-any");
    if (d[KDA_NUM_TOKENS]) {
        add_spread(d, spread, sizeof spread);
        snprintf(text, capacity, "varlen-%s-N%" PRId32 "-T%" PRId32 "-%s%s", spread, d[KDA_BATCH],
                 d[KDA_NUM_TOKENS], heads, other);
    } else {
        snprintf(text, capacity, "B%" PRId32 "-T%" PRId32 "-%s%s", d[KDA_BATCH], d[KDA_SEQ_LEN],
                 heads, other);
    }
}

static uint64_t strided(int64_t tokens, int64_t stride, int64_t width)
{
    return tokens ? (uint64_t)((tokens - 1) * stride + width) : 0;
}

struct gen__kda_strides gen__kda_stride_form(const int32_t *d)
{
    const int64_t tokens = gen__kda_tokens(d), heads = d[KDA_V_HEADS];
    const int64_t qk = (int64_t)d[KDA_QK_HEADS] * d[KDA_HEAD_DIM], v = heads * d[KDA_HEAD_DIM];
    struct gen__kda_strides s = {2 * qk + v, v + 8, heads + 3, v + 8, 0, 0, 0, 0, 0};
    s.qk_count = strided(tokens, s.qkv, qk);
    s.v_count = strided(tokens, s.qkv, v);
    s.g_count = strided(tokens, s.g, v);
    s.beta_count = strided(tokens, s.beta, heads);
    s.o_count = strided(tokens, s.o, v);
    return s;
}

/* ---- arguments --------------------------------------------------------- */

enum gen_status gen__kda_check_stride(const char *family, const char *name, const int32_t *dims,
                                      int64_t stride, int64_t unit, int64_t width)
{
    if (stride == 0)
        return GEN_OK;
    /* Tokens * stride * 4 bytes stay below 2^62. */
    const int64_t tokens = gen__kda_tokens(dims), most = (INT64_C(1) << 60) / (tokens ? tokens : 1);
    if (stride >= width && stride <= most && stride % unit == 0)
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s = %" PRId64 " elements; allowed: 0 (packed), or a multiple of %" PRId64
                     " from %" PRId64 " (one token) to %" PRId64,
                     family, name, stride, unit, width, most);
}

enum gen_status gen__kda_check_cu_seqlens(const char *family, const int32_t *dims,
                                          const int32_t *cu_seqlens)
{
    if (dims[KDA_NUM_TOKENS])
        return gen__check_pointer(family, "cu_seqlens", cu_seqlens, 4, false);
    /* Where seq_len is 0, too, every sequence is empty whatever it says. */
    if (cu_seqlens && dims[KDA_SEQ_LEN])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: cu_seqlens = %p with num_tokens = 0; allowed: NULL, for all "
                         "sequences have seq_len = %" PRId32 " tokens (a batch of empty ones has "
                         "seq_len 0)",
                         family, (const void *)cu_seqlens, dims[KDA_SEQ_LEN]);
    return GEN_OK;
}

static enum gen_status check_intra_pointers(const char *family, const int32_t *dims,
                                            const gen_kda_intra_args *a)
{
    const bool none = !gen__kda_tokens(dims); /* then the lists are not read */
    const bool softplus = a->gate_form == GEN_KDA_GATE_SOFTPLUS;
    const uintptr_t beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    enum gen_status status;
    if ((status = gen__check_pointer(family, "q", a->q, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "k", a->k, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "v", a->v, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "g", a->g, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "beta", a->beta, beta, none)) != GEN_OK)
        return status;
    if (softplus && !a->A_log)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: A_log is NULL with the gate GEN_KDA_GATE_SOFTPLUS; allowed: "
                         "num_v_heads numbers",
                         family);
    if ((status = gen__check_pointer(family, "A_log", a->A_log, 4, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "dt_bias", a->dt_bias, 16, true)) != GEN_OK)
        return status;
    return gen__kda_check_cu_seqlens(family, dims, a->cu_seqlens);
}

enum gen_status gen__kda_check_numbers(const char *family, const gen_kda_intra_args *a)
{
    if (!isfinite(a->scale))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: scale = %g; allowed: a finite number",
                         family, (double)a->scale);
    if (a->gate_form < GEN_KDA_GATE_GIVEN || a->gate_form > GEN_KDA_GATE_LOWER_BOUND)
        return gen__invalid(family, "gate_form", a->gate_form,
                            "GEN_KDA_GATE_GIVEN (0), GEN_KDA_GATE_SOFTPLUS (1), "
                            "GEN_KDA_GATE_LOWER_BOUND (2)");
    if (a->gate_form == GEN_KDA_GATE_LOWER_BOUND &&
        !(a->lower_bound >= -5.0f && a->lower_bound < 0.0f))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: lower_bound = %g; allowed: -5 <= lower_bound < 0", family,
                         (double)a->lower_bound);
    if (a->gate_form == GEN_KDA_GATE_GIVEN && (a->A_log || a->dt_bias))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %p with the gate GEN_KDA_GATE_GIVEN; allowed: NULL", family,
                         a->A_log ? "A_log" : "dt_bias",
                         a->A_log ? (const void *)a->A_log : (const void *)a->dt_bias);
    if (a->beta_form < GEN_KDA_BETA_GIVEN || a->beta_form > GEN_KDA_BETA_TWO_SIGMOID)
        return gen__invalid(family, "beta_form", a->beta_form,
                            "GEN_KDA_BETA_GIVEN (0), GEN_KDA_BETA_SIGMOID (1), "
                            "GEN_KDA_BETA_TWO_SIGMOID (2)");
    if (a->qk_l2norm != 0 && a->qk_l2norm != 1)
        return gen__invalid(family, "qk_l2norm", a->qk_l2norm, "0, 1");
    return GEN_OK;
}

static int64_t width(const int32_t *dims, enum kda_dim heads)
{
    return (int64_t)dims[heads] * dims[KDA_HEAD_DIM];
}

enum gen_status gen__kda_check_intra(const char *family, const int32_t *dims,
                                     const gen_kda_intra_args *a)
{
    const int64_t qk = width(dims, KDA_QK_HEADS), v = width(dims, KDA_V_HEADS);
    enum gen_status status;
    if ((status = gen__kda_check_numbers(family, a)) != GEN_OK ||
        (status = check_intra_pointers(family, dims, a)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "q_stride", dims, a->q_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "k_stride", dims, a->k_stride, 8, qk)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "v_stride", dims, a->v_stride, 8, v)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "g_stride", dims, a->g_stride, 8, v)) != GEN_OK)
        return status;
    return gen__kda_check_stride(family, "beta_stride", dims, a->beta_stride, 1, dims[KDA_V_HEADS]);
}

void gen__kda_intra_params(const int32_t *dims, const gen_kda_intra_args *a,
                           struct gen_kda_intra_params *k)
{
    static const int gates[] = {[GEN_KDA_GATE_LOWER_BOUND] = 0,
                                [GEN_KDA_GATE_SOFTPLUS] = 1,
                                [GEN_KDA_GATE_GIVEN] = 2}; /* as the kernel has them */
    const int64_t qk = width(dims, KDA_QK_HEADS), v = width(dims, KDA_V_HEADS);
    const struct gen__fastdiv heads = gen__fastdiv((uint32_t)dims[KDA_V_HEADS]);
    const struct gen__fastdiv group =
        gen__fastdiv((uint32_t)(dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]));
    *k = (struct gen_kda_intra_params){
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .w = a->w,
        .u = a->u,
        .qg = a->qg,
        .kg = a->kg,
        .a_qk = a->a_qk,
        .decay = a->decay,
        .q_stride = a->q_stride ? a->q_stride : qk,
        .k_stride = a->k_stride ? a->k_stride : qk,
        .v_stride = a->v_stride ? a->v_stride : v,
        .g_stride = a->g_stride ? a->g_stride : v,
        .beta_stride = a->beta_stride ? a->beta_stride : dims[KDA_V_HEADS],
        .sequences = gen__kda_sequences(dims, a->cu_seqlens),
        .num_v_heads = dims[KDA_V_HEADS],
        .heads_mul = heads.mul,
        .heads_shift = heads.shift,
        .group_mul = group.mul,
        .group_shift = group.shift,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate = gates[a->gate_form],
        .gate_fp32 = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32,
        .beta_activation = a->beta_form,
        .beta_fp32 = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32,
        .l2_norm = a->qk_l2norm,
    };
}

enum gen_status gen__kda_check_inter(const char *family, const int32_t *dims,
                                     const gen_kda_inter_args *a)
{
    const bool none = !gen__kda_tokens(dims);
    enum gen_status status;
    if ((status = gen__check_pointer(family, "initial_state", a->initial_state, 16, true)) !=
            GEN_OK ||
        (status = gen__check_pointer(family, "final_state", a->final_state, 16, true)) != GEN_OK ||
        (status = gen__check_pointer(family, "o", a->o, 16, none)) != GEN_OK ||
        (status = gen__check_pointer(family, "states", a->states, 16, true)) != GEN_OK ||
        (status = gen__kda_check_cu_seqlens(family, dims, a->cu_seqlens)) != GEN_OK ||
        (status = gen__kda_check_stride(family, "o_stride", dims, a->o_stride, 8,
                                        width(dims, KDA_V_HEADS))) != GEN_OK)
        return status;
    if (a->state_layout != GEN_KDA_STATE_KV && a->state_layout != GEN_KDA_STATE_VK)
        return gen__invalid(family, "state_layout", a->state_layout,
                            "GEN_KDA_STATE_VK (0), GEN_KDA_STATE_KV (1)");
    return gen__kda_check_pools(family, dims, &a->pools, a->initial_state, a->final_state);
}

void gen__kda_inter_params(const int32_t *dims, const gen_kda_inter_args *a,
                           struct gen_kda_inter_params *k)
{
    *k = (struct gen_kda_inter_params){
        .w = a->w,
        .u = a->u,
        .qg = a->qg,
        .kg = a->kg,
        .a_qk = a->a_qk,
        .decay = a->decay,
        .initial_state = a->initial_state,
        .final_state = a->final_state,
        .o = a->o,
        .o_stride = a->o_stride ? a->o_stride : width(dims, KDA_V_HEADS),
        .sequences = gen__kda_sequences(dims, a->cu_seqlens),
        .num_v_heads = dims[KDA_V_HEADS],
        .state_vk = a->state_layout == GEN_KDA_STATE_VK,
        .num_states = (int)gen__kda_all_chunks(dims),
        .states = a->states,
    };
}

/* ---- the tuner's grid -------------------------------------------------- */

#define TUNED_TOKENS (1 << 21) /* of all heads */
#define TUNED_HEADS 64 /* or up to as many more, where these are no whole number of sequences */

const uint8_t gen__kda_grid[2] = {1, 4};
const uint8_t gen__kda_tiles_grid[1] = {2};

bool gen__kda_set_counts(const float counts[GEN__MAX_COORDS], int32_t *dims)
{
    if (counts[0] * counts[1] > 1.1f * TUNED_TOKENS)
        return false;
    const float states = counts[0] > 1.0f ? counts[0] : 1.0f;
    dims[KDA_BATCH] = states < TUNED_HEADS ? 1 : (int32_t)(states / TUNED_HEADS);
    dims[KDA_SEQ_LEN] = (int32_t)lroundf(counts[1]);
    dims[KDA_NUM_TOKENS] = 0;
    dims[KDA_V_HEADS] = (int32_t)lroundf(states / (float)dims[KDA_BATCH]);
    dims[KDA_QK_HEADS] = dims[KDA_V_HEADS];
    return true;
}

/* ---- time -------------------------------------------------------------- */

/*
 * An estimate that orders the variants on a GPU without a table. A chunk's
 * operands are 290 bytes a channel and row; both kernels move them at the memory's
 * rate at best. The recurrence takes a chunk after the other: a block of it no less
 * than chain_us, and as many blocks at a time as fit.
 */
static const float launch_us = 3.0f;
static const float achieved_bandwidth = 0.85f;
static const float chain_bandwidth = 0.72f; /* of the recurrence, which waits for what it reads */
static const float wgmma_chain_us = 0.95f, mma_chain_us = 3.0f;
static const float apart = 1.1f;
static const float unstaged = 1.5f; /* one chunk's operands at a time: mma's stream */
static const float group_us = 0.4f; /* a second group of a block, for each chunk */

static float bytes_per_us(const gen_device *device)
{
    return (device->memory_gbps ? (float)device->memory_gbps : 1000.0f) * 1e3f * achieved_bandwidth;
}

float gen__kda_intra_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant)
{
    const float tiles = (float)gen__kda_all_chunks(dims) * (float)dims[KDA_V_HEADS];
    const float bytes = (float)dims[KDA_HEAD_DIM] * KDA_CHUNK * 17.0f;
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float per_sm = (float)gen__blocks_per_sm(device, variant);
    const float rounds = ceilf(tiles / (sms * (per_sm > 0.0f ? per_sm : 1.0f)));
    const float chain = rounds * 10.0f, stream = tiles * bytes / bytes_per_us(device);
    return launch_us + (chain > stream ? chain : stream);
}

float gen__kda_inter_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant)
{
    return gen__kda_chain_us(dims, gen__kda_chunks(gen__kda_longest(dims)), device, variant);
}

float gen__kda_chain_us(const int32_t *dims, int64_t longest_chain, const gen_device *device,
                        const struct gen__facts *variant)
{
    const float groups =
        (float)(variant->fact[KDA_INTER_GROUPS] > 1 ? variant->fact[KDA_INTER_GROUPS] : 1);
    const float chunk_us = (variant->fact[KDA_INTER_WGMMA] ? wgmma_chain_us : mma_chain_us) +
                           group_us * (groups - 1.0f);
    const float blocks = (float)dims[KDA_V_HEADS] * (float)dims[KDA_HEAD_DIM] / (64.0f * groups);
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float per_sm = (float)gen__blocks_per_sm(device, variant);
    const float resident = sms * (per_sm > 0.0f ? per_sm : 1.0f);
    const float all = (float)gen__kda_all_chunks(dims);
    const float longest = (float)longest_chain;
    const float work = all * blocks / resident;
    const float bytes = all * (float)dims[KDA_V_HEADS] * (float)dims[KDA_HEAD_DIM] * 640.0f;
    float stream = bytes / bytes_per_us(device) * (achieved_bandwidth / chain_bandwidth);
    if (groups < 2.0f && dims[KDA_HEAD_DIM] > 64 && work > longest)
        stream *= apart; /* operands that both halves of a state need come twice */
    if (!variant->fact[KDA_INTER_WGMMA])
        stream *= unstaged;
    const float chain = (work > longest ? work : longest) * chunk_us;
    return launch_us + (chain > stream ? chain : stream);
}
