/*
 * What the host files of kda_intra, kda_scan, kda_inter and kda_prefill share: the
 * problem as a plan's dims, where sequences and their chunks lie, and checks. Defined in shape.c,
 * where not here.
 */
#ifndef GEN_FAMILIES_KDA_CHUNK_H
#define GEN_FAMILIES_KDA_CHUNK_H

#include "families/common/arguments.h"
#include "families/kda_inter/api.h"
#include "families/kda_intra/api.h"
#include "families/kda_scan/api.h"
#include "kda_inter/args.h"
#include "kda_intra/args.h"

#include <string.h>

/* gen_plan.dims: the fields of the problems of kda_intra and kda_prefill, in their
 * order. kda_inter has 1, 0 for what its problem lacks. */
enum kda_dim {
    KDA_BATCH,
    KDA_SEQ_LEN,
    KDA_NUM_TOKENS,
    KDA_QK_HEADS,
    KDA_V_HEADS,
    KDA_HEAD_DIM,
    KDA_DTYPE,
    KDA_GATE_DTYPE,
    KDA_BETA_DTYPE,
    KDA_SAFE_GATE,
    KDA_NUM_DIMS,
    /* Of kda_scan and kda_prefill: chunks of a segment, 0 where no sequence is cut. */
    KDA_SEGMENT_CHUNKS = KDA_NUM_DIMS,
    /* Of problems whose states may be in pools. */
    KDA_STATE_POOL,
    KDA_STATE_DTYPE,
    /* Of gdn_prefill: the variant loads by tensor maps. */
    KDA_TENSOR_MAPS,
    KDA_ALL_DIMS
};
_Static_assert(KDA_ALL_DIMS <= GEN__FAMILY_DIMS, "a plan holds the dims");

extern const struct gen__axis gen__kda_required[], gen__kda_pool_required[];
enum {
    KDA_NUM_REQUIRED = 2,
    KDA_INTRA_NUM_REQUIRED = 3, /* and safe_gate */
    KDA_POOL_NUM_REQUIRED = 3   /* and state_pool */
};
extern const char *const gen__kda_dtypes[];       /* of q, k, v: 2 */
extern const char *const gen__kda_others[];       /* of g, beta: 3 */
extern const char *const gen__kda_gates[];        /* of safe_gate: any, safe */
extern const char *const gen__kda_state_pools[];  /* of state_pool: none, pool */
extern const char *const gen__kda_state_dtypes[]; /* fp32, bf16, fp16 */

/* gen__family.fields of a problem that begins with the dims' fields: these. */
#define GEN__KDA_FIELD(problem, field) #field, offsetof(problem, field)
#define GEN__KDA_FIELDS(problem)                                                     \
    {GEN__KDA_FIELD(problem, batch), NULL, 0, 1},                                    \
        {GEN__KDA_FIELD(problem, seq_len), NULL, 0, 1024},                           \
        {GEN__KDA_FIELD(problem, num_tokens), NULL, 0, 0},                           \
        {GEN__KDA_FIELD(problem, num_qk_heads), NULL, 0, 64},                        \
        {GEN__KDA_FIELD(problem, num_v_heads), NULL, 0, GEN__PRESET_SAME},           \
        {GEN__KDA_FIELD(problem, head_dim), NULL, 0, 128},                           \
        {GEN__KDA_FIELD(problem, dtype), gen__kda_dtypes, 2, GEN_DTYPE_BF16},        \
        {GEN__KDA_FIELD(problem, gate_dtype), gen__kda_others, 3, GEN__PRESET_SAME}, \
        {GEN__KDA_FIELD(problem, beta_dtype), gen__kda_others, 3, GEN_DTYPE_FP32},   \
    {                                                                                \
        GEN__KDA_FIELD(problem, safe_gate), gen__kda_gates, 2, 1                     \
    }

/* Its dims are its fields, copied whole. */
#define GEN__KDA_IS_DIM(problem, field, dim) \
    (offsetof(problem, field) == offsetof(problem, batch) + (dim) * sizeof(int32_t))
#define GEN__KDA_FIELDS_ARE_DIMS(problem)                                      \
    _Static_assert(GEN__KDA_IS_DIM(problem, seq_len, KDA_SEQ_LEN) &&           \
                       GEN__KDA_IS_DIM(problem, num_tokens, KDA_NUM_TOKENS) && \
                       GEN__KDA_IS_DIM(problem, num_qk_heads, KDA_QK_HEADS) && \
                       GEN__KDA_IS_DIM(problem, num_v_heads, KDA_V_HEADS) &&   \
                       GEN__KDA_IS_DIM(problem, head_dim, KDA_HEAD_DIM) &&     \
                       GEN__KDA_IS_DIM(problem, dtype, KDA_DTYPE) &&           \
                       GEN__KDA_IS_DIM(problem, gate_dtype, KDA_GATE_DTYPE) && \
                       GEN__KDA_IS_DIM(problem, beta_dtype, KDA_BETA_DTYPE) && \
                       GEN__KDA_IS_DIM(problem, safe_gate, KDA_SAFE_GATE),     \
                   "dims in the order of the problem's fields")
/* To be written. */
#define GEN__KDA_DIMS_OF(problem, base) \
    ((int32_t *)(void *)((char *)(base) + offsetof(problem, batch)))

/* Is the problem allowed? On GEN_OK key->codes are set, the third to `third`. The first says so in
 * few comparisons, the second what is wrong. */
static inline enum gen_status gen__kda_check(const char *family, const int32_t *dims,
                                             uint32_t third, struct gen__key *key);
enum gen_status gen__kda_refuse(const char *family, const int32_t *dims);
/* In case a plan was not kept well: what is divided by, and what makes addresses. */
enum gen_status gen__kda_check_dims(const char *family, const int32_t *dims);

/* ---- sequences and chunks ---------------------------------------------- */

/* Of tokens that were checked, never below 0: by a shift, which takes two instructions where the
 * division of a number with a sign takes five. */
enum { KDA_CHUNK_BITS = 6 };
_Static_assert(1 << KDA_CHUNK_BITS == KDA_CHUNK, "a power of two");

static inline int64_t gen__kda_chunks(int64_t tokens)
{
    return (tokens + KDA_CHUNK - 1) >> KDA_CHUNK_BITS;
}

/* The first where the number of tokens is given, else the second. Without a branch: selection is
 * asked for both kinds in turn. */
static inline int64_t gen__kda_either(const int32_t *dims, int64_t told, int64_t else_)
{
    const int64_t all = -(int64_t)(dims[KDA_NUM_TOKENS] != 0);
    return (told & all) | (else_ & ~all);
}

/* Of all sequences. */
static inline int64_t gen__kda_tokens(const int32_t *dims)
{
    return gen__kda_either(dims, dims[KDA_NUM_TOKENS],
                           (int64_t)dims[KDA_BATCH] * dims[KDA_SEQ_LEN]);
}

/* Slots of chunks, used or not. */
static inline int64_t gen__kda_slots(const int32_t *dims)
{
    return gen__kda_either(dims,
                           ((int64_t)dims[KDA_NUM_TOKENS] >> KDA_CHUNK_BITS) + dims[KDA_BATCH],
                           dims[KDA_BATCH] * gen__kda_chunks(dims[KDA_SEQ_LEN]));
}

/* Chunks that have tokens, at most. */
static inline int64_t gen__kda_all_chunks(const int32_t *dims)
{
    const int64_t most = dims[KDA_BATCH] * gen__kda_chunks(dims[KDA_SEQ_LEN]);
    const int64_t slots = gen__kda_slots(dims);
    return most < slots ? most : slots;
}

/* Of the longest sequence that there may be: none has more than all of them. */
static inline int64_t gen__kda_longest(const int32_t *dims)
{
    const int64_t seq_len = dims[KDA_SEQ_LEN], tokens = dims[KDA_NUM_TOKENS];
    return gen__kda_either(dims, tokens < seq_len ? tokens : seq_len, seq_len);
}

/* Sequences that a batch-invariant choice is made for, and the tokens of each where they are
 * packed: num_tokens is then the sum over the batch and seq_len the length of its longest sequence,
 * so the choice may depend on neither. Where all sequences have seq_len tokens, that is each one's
 * own length, and the choice goes by it. */
#define KDA_INVARIANT_BATCH 4
#define KDA_INVARIANT_LEN 4096

/* Tokens of a sequence that a batch-invariant choice is made for. */
static inline int64_t gen__kda_invariant_len(const int32_t *dims)
{
    return gen__kda_either(dims, KDA_INVARIANT_LEN, dims[KDA_SEQ_LEN]);
}

/* Chunks of the problem that choices are made for: its own, or those that any batch would have. */
static inline int64_t gen__kda_usual_chunks(const gen_problem *base, const int32_t *dims)
{
    return base->flags & GEN_BATCH_INVARIANT
               ? KDA_INVARIANT_BATCH * gen__kda_chunks(gen__kda_invariant_len(dims))
               : gen__kda_all_chunks(dims);
}

/* Tuning coordinates of the recurrence from chunk to chunk: states side by side, were all sequences
 * as long as the longest, and the tokens of that one. Sequences beside a longer one fill SMs for a
 * while, not for as long as it takes, so their number says nothing. */
static inline void gen__kda_chain_counts(const gen_problem *base, const int32_t *dims,
                                         struct gen__key *key)
{
    const bool any_batch = base->flags & GEN_BATCH_INVARIANT;
    const int64_t tokens = any_batch ? gen__kda_invariant_len(dims) : gen__kda_longest(dims);
    const int64_t chunks = gen__kda_usual_chunks(base, dims), longest = gen__kda_chunks(tokens);
    const float states = (float)(chunks * dims[KDA_V_HEADS]) / (float)(longest ? longest : 1);
    key->counts[0] = states < 1.0f ? 1.0f : (float)(int64_t)(states + 0.5f);
    key->counts[1] = (float)(tokens ? tokens : 1);
}

/* Makes of a copy of the dims those of the problem that choices are made for. */
static inline void gen__kda_make_usual(const gen_problem *base, int32_t *dims)
{
    if (base->flags & GEN_BATCH_INVARIANT) {
        dims[KDA_BATCH] = KDA_INVARIANT_BATCH;
        dims[KDA_SEQ_LEN] = (int32_t)gen__kda_invariant_len(dims);
        dims[KDA_NUM_TOKENS] = 0;
    }
}

/* The dims themselves, or in `usual` those. */
static inline const int32_t *gen__kda_usual(const gen_problem *base, const int32_t *dims,
                                            int32_t usual[KDA_NUM_DIMS])
{
    if (__builtin_expect(!(base->flags & GEN_BATCH_INVARIANT), 1))
        return dims;
    memcpy(usual, dims, KDA_NUM_DIMS * sizeof *usual);
    gen__kda_make_usual(base, usual);
    return usual;
}

#define KDA_MAX_HEADS 65536
#define KDA_MAX_BATCH 65535 /* a grid's second dimension */
#define KDA_MAX_TOKENS (1 << 30)

/* 0 where a side tensor's dtype is that of q, k and v or fp32. */
static inline uint64_t gen__kda_other_dtype(uint32_t side, uint32_t dtype)
{
    return (uint64_t)(side ^ dtype) * (side ^ GEN_DTYPE_FP32);
}

/* Of most problems few comparisons: a limit that is a power of two holds for several numbers where
 * it holds for their bits together, and a negative number is a large one. */
static inline bool gen__kda_allowed(const int32_t *d)
{
    const uint32_t qk = (uint32_t)d[KDA_QK_HEADS], v = (uint32_t)d[KDA_V_HEADS];
    const uint32_t batch = (uint32_t)d[KDA_BATCH], dtype = (uint32_t)d[KDA_DTYPE];
    const uint32_t seq_len = (uint32_t)d[KDA_SEQ_LEN], tokens = (uint32_t)d[KDA_NUM_TOKENS];
    _Static_assert(KDA_MAX_HEADS == 1 << 16 && KDA_MAX_BATCH == (1 << 16) - 1, "16 bits");
    const uint32_t above = ((qk - 1) | (v - 1) | batch) >> 16 | (seq_len | tokens) >> 31 |
                           (((uint32_t)d[KDA_HEAD_DIM] - 64) & ~64u) |
                           (dtype | (uint32_t)d[KDA_SAFE_GATE]) >> 1;
    if (above | gen__kda_other_dtype((uint32_t)d[KDA_GATE_DTYPE], dtype) |
        gen__kda_other_dtype((uint32_t)d[KDA_BETA_DTYPE], dtype))
        return false;
    /* No branch spares the division: nothing waits for its result. */
    if (v % qk)
        return false;
    const int64_t most = (int64_t)d[KDA_BATCH] * d[KDA_SEQ_LEN];
    return (seq_len > tokens ? seq_len : tokens) <= KDA_MAX_TOKENS && d[KDA_NUM_TOKENS] <= most &&
           gen__kda_tokens(d) <= KDA_MAX_TOKENS && gen__kda_slots(d) * v <= INT32_MAX;
}

static inline enum gen_status gen__kda_check(const char *family, const int32_t *d, uint32_t third,
                                             struct gen__key *key)
{
    if (__builtin_expect(!gen__kda_allowed(d), 0))
        return gen__kda_refuse(family, d);
    gen__set_codes(key, (uint32_t)d[KDA_DTYPE], d[KDA_HEAD_DIM] == 128, third);
    return GEN_OK;
}

/* Elements of the states before all chunks. */
static inline uint64_t gen__kda_states_count(const int32_t *dims)
{
    return (uint64_t)(gen__kda_all_chunks(dims) * dims[KDA_V_HEADS] * dims[KDA_HEAD_DIM] *
                      dims[KDA_HEAD_DIM]);
}

struct gen__kda_sequence {
    int64_t first, length, slot; /* tokens; slot of the first chunk */
};

/* Of cu_seqlens on the host, NULL where all have one length; what it holds is not
 * believed, as on the device. */
struct gen__kda_sequence gen__kda_sequence(const int32_t *dims, const int32_t *cu_seqlens,
                                           int64_t n);
struct gen_kda_sequences gen__kda_sequences(const int32_t *dims, const int32_t *cu_seqlens);

/* Lengths for tests and benchmarks: the first is seq_len, the others are equal; or
 * irregular: 0, 1, 63, 64, 65, ... */
void gen__kda_fill_cu_seqlens(const int32_t *dims, bool irregular, int32_t *cu_seqlens);

/* The form "loose": cu_seqlens as callers should not pass it, though sequences do not overlap.
 * It begins below 0 and ends beyond the tokens, and the first sequence is too long. The
 * tensor's `amount` says to gen__kda_fill(). */
bool gen__kda_loose_form(const int32_t *dims, struct gen__tensor *cu_seqlens);
/* gen__family.fill of `tensor` on the host, NULL where it is not there. */
void gen__kda_fill(const int32_t *dims, const struct gen__tensor *tensor,
                   const struct gen__fill_options *options, int32_t *cu_seqlens);

/* "B1-T8192-H64", "varlen-skewed-N20-T16384-H64", ... */
void gen__kda_case_name(const int32_t *dims, char *text, size_t capacity);

/* Raw gates by softplus, with exp(A_log) at most 1, so that with a bound no gate is below -5, or
 * at least. */
static inline void gen__kda_softplus_form(const int32_t *dims, struct gen__tensor *a_log)
{
    a_log->fill = GEN__FILL_UNIFORM;
    a_log->amount = dims[KDA_SAFE_GATE] ? -4 : 1.5;
}

/* Gates as they are. */
static inline void gen__kda_activated_form(const int32_t *dims, struct gen__tensor *g,
                                           struct gen__tensor *a_log, struct gen__tensor *dt_bias)
{
    g->fill = GEN__FILL_UNIFORM;
    g->amount = dims[KDA_SAFE_GATE] ? -5 : -60;
    a_log->count = dt_bias->count = 0;
}

/*
 * Inputs that are hard for the inverse, in forms of kda_intra, kda_chunk_intra and kda_prefill.
 * Keys and beta of GEN__FILL_FAMILY, not strided, come of gen__kda_fill_hard():
 *
 *   keys, amount > 0   constant
 *   keys, amount < 0   rows whose length is 1, but of every 24th token -amount
 *   beta, amount > 0   constant
 *   beta, amount < 0   0.5, but of every other token -amount
 */
struct gen__kda_hard {
    struct gen__tensor *q, *k, *v, *g, *beta, *a_log, *dt_bias;
};
void gen__kda_fill_hard(const int32_t *dims, uint64_t seed, const struct gen__tensor *k,
                        void *k_data, const struct gen__tensor *beta, void *beta_data);
/* Given gates of GEN__FILL_FAMILY: all are `amount`. */
void gen__kda_fill_gates(const struct gen__tensor *g, void *data);
/* Gates given as 0: nothing decays. */
void gen__kda_no_gates(const struct gen__kda_hard *t);
/* q, k and v uniform between 0 and 1, so that all rows of keys are much alike and values have a
 * mean; every beta 0.7; no gates. */
void gen__kda_uniform_keys(const struct gen__kda_hard *t);
/* All rows of keys the same, and values with a mean; no gates. */
void gen__kda_constant_keys(const struct gen__kda_hard *t);
/* All rows of keys the same, every beta 0.99, q and v uniform between 0 and 1; no gates. Entries on
 * a diagonal of a chunk's inverse are equal, so their roundings are, and a state adds them up. */
void gen__kda_constant_beta(const struct gen__kda_hard *t);
/* No norm, every element of the keys 24, every beta 0.9, no gates: in three rows or more of 128
 * elements a key is coupled to the one before by more than fp16 holds. Few tokens, for with each
 * one the state grows as much. False where numbers do not hold that. */
bool gen__kda_large_keys(const int32_t *dims, const struct gen__kda_hard *t);
/* No norm, every key the same with |k|^2 = 2, every beta 2, no gates: each row is three times the
 * one before, so entries of the inverse pass 65,504 behind ten rows. False where numbers do not
 * hold that. */
bool gen__kda_stretching_keys(const int32_t *dims, const struct gen__kda_hard *t);
/* No norm, no gates, rows of length 1 and, every 24th, of 256. False where numbers do not hold
 * that. */
bool gen__kda_mixed_keys(const int32_t *dims, const struct gen__kda_hard *t);
/* No norm, every element of the keys 10,000, every beta 1e-8, every gate -5: factors of rows and
 * columns are as far apart as they can be. False where numbers do not hold that. */
bool gen__kda_steep_keys(const int32_t *dims, const struct gen__kda_hard *t);

/* Strides as in a buffer that holds q, k and v side by side, and rows that are 8
 * elements apart; and the elements that tensors then have. */
struct gen__kda_strides {
    int64_t qkv, g, beta, o;
    uint64_t qk_count, v_count, g_count, beta_count, o_count;
};
struct gen__kda_strides gen__kda_stride_form(const int32_t *dims);

/* ---- checks ------------------------------------------------------------ */

/* 0, or a multiple of `unit` elements from `width` on. */
enum gen_status gen__kda_check_stride(const char *family, const char *name, const int32_t *dims,
                                      int64_t stride, int64_t unit, int64_t width);
enum gen_status gen__kda_check_cu_seqlens(const char *family, const int32_t *dims,
                                          const int32_t *cu_seqlens);
/* The host's copy, NULL or not, says what the device's will be. */
enum gen_status gen__kda_check_lengths(const char *family, const int32_t *dims, const int32_t *cu);

/* Forms and numbers alone. */
enum gen_status gen__kda_check_numbers(const char *family, const gen_kda_intra_args *a);
/* kda_intra: inputs and numbers; and the kernel's parameters. */
enum gen_status gen__kda_check_intra(const char *family, const int32_t *dims,
                                     const gen_kda_intra_args *a);
void gen__kda_intra_params(const int32_t *dims, const gen_kda_intra_args *a,
                           struct gen_kda_intra_params *k);
/* kda_inter: state, output. */
enum gen_status gen__kda_check_inter(const char *family, const int32_t *dims,
                                     const gen_kda_inter_args *a);
void gen__kda_inter_params(const int32_t *dims, const gen_kda_inter_args *a,
                           struct gen_kda_inter_params *k);
/* ---- time -------------------------------------------------------------- */

float gen__kda_intra_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant);
float gen__kda_inter_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant);
/* The same where no chain is longer than `longest` chunks. */
float gen__kda_chain_us(const int32_t *dims, int64_t longest, const gen_device *device,
                        const struct gen__facts *variant);
/* ---- the tuner's grid -------------------------------------------------- */

/* Steps in half octaves: of states and seq_len; of tiles. */
extern const uint8_t gen__kda_grid[2], gen__kda_tiles_grid[1];
/* A batch of so many states, in the dims up to the heads; false, and nothing is set, where so much
 * need not be tuned for: what is best does not change any more. */
bool gen__kda_set_counts(const float counts[GEN__MAX_COORDS], int32_t *dims);

/* Launch facts, in the order of the families' family.lua. */
enum kda_intra_fact { KDA_INTRA_DEPENDENT };
#define KDA_INTRA_FACTS "dependent"
enum kda_inter_fact { KDA_INTER_GROUPS, KDA_INTER_WGMMA, KDA_INTER_DEPENDENT };
#define KDA_INTER_FACTS "groups,wgmma,dependent"

/* kda_scan's are named alike. */

/* Launches of the kernel between chunks. */
static inline void gen__kda_inter_launch(const int32_t *dims, const struct gen__facts *variant,
                                         uint32_t flags, gen_plan_launch *launch)
{
    const int32_t groups =
        variant->fact[KDA_INTER_GROUPS] > 1 ? variant->fact[KDA_INTER_GROUPS] : 1;
    *launch = (gen_plan_launch){
        .variant = variant->index,
        .grid = {(uint32_t)dims[KDA_V_HEADS] * (uint32_t)(dims[KDA_HEAD_DIM] / 64 / groups),
                 (uint32_t)dims[KDA_BATCH], 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(flags & GEN_SERIAL_LAUNCH) && variant->fact[KDA_INTER_DEPENDENT],
    };
}

/* gen__family.plan of a kernel with `units` blocks for each slot of chunks. */
static inline void gen__kda_slots_plan(const int32_t *dims, uint32_t flags,
                                       const struct gen__facts *variant, int64_t units,
                                       bool dependent, gen_plan *plan)
{
    const int64_t slots = gen__kda_slots(dims);
    memcpy(plan->dims, dims, KDA_NUM_DIMS * sizeof *dims);
    plan->num_launches = slots > 0;
    if (!variant || !slots)
        return;
    plan->launch[0] = (gen_plan_launch){
        .variant = variant->index,
        .grid = {(uint32_t)(slots * units), 1, 1},
        .threads = (uint16_t)variant->threads,
        .shared = variant->shared_dynamic,
        .dependent = !(flags & GEN_SERIAL_LAUNCH) && dependent,
    };
}

/* What the gen__family of a kernel between tensors of KDA has in common with the others: its file
 * calls its functions by these names. */
#define GEN__KDA_FAMILY(family_tag, name_) GEN__KDA_FAMILY_OF(family_tag, name_, gen__kda_required)
/* The same, of other required axes. */
#define GEN__KDA_FAMILY_OF(family_tag, name_, axes)                                            \
    .name = family, .tag = (family_tag), .problem_size = sizeof(gen_##name_##_problem),        \
    .args_size = sizeof(gen_##name_##_args), .required = (axes),                               \
    .max_distance = GEN__ANY_DISTANCE, .check = check, .fits = gen__fits_always,               \
    .predict = predict, .plan = plan, .params = params, .reference = gen__##name_##_reference, \
    .tensors = tensors, .default_args = default_args, .fill = fill, .cost = cost,              \
    .case_name = case_name, .forms = forms, .num_forms = NUM_FORMS, .form = form

/* Tensors in the order of tensors(). */
enum kda_intra_tensor {
    KDA_INTRA_Q,
    KDA_INTRA_K,
    KDA_INTRA_V,
    KDA_INTRA_G,
    KDA_INTRA_BETA,
    KDA_INTRA_A_LOG,
    KDA_INTRA_DT_BIAS,
    KDA_INTRA_CU_SEQLENS,
    KDA_INTRA_W,
    KDA_INTRA_U,
    KDA_INTRA_QG,
    KDA_INTRA_KG,
    KDA_INTRA_A_QK,
    KDA_INTRA_DECAY,
    KDA_INTRA_NUM_TENSORS
};
enum kda_inter_tensor {
    KDA_INTER_W,
    KDA_INTER_U,
    KDA_INTER_QG,
    KDA_INTER_KG,
    KDA_INTER_A_QK,
    KDA_INTER_DECAY,
    KDA_INTER_CU_SEQLENS,
    KDA_INTER_INITIAL_STATE,
    KDA_INTER_FINAL_STATE,
    KDA_INTER_O,
    KDA_INTER_STATES,
    KDA_INTER_CKPT_POOL, /* and the others of pools */
    KDA_INTER_NUM_TENSORS = KDA_INTER_CKPT_POOL + 7
};
enum kda_scan_tensor {
    KDA_SCAN_W,
    KDA_SCAN_U,
    KDA_SCAN_KG,
    KDA_SCAN_DECAY,
    KDA_SCAN_CU_SEQLENS,
    KDA_SCAN_INITIAL_STATE,
    KDA_SCAN_ADDED,
    KDA_SCAN_TRANSITION,
    KDA_SCAN_SEGMENT_DECAY,
    KDA_SCAN_SLOTS_IN,
    KDA_SCAN_NUM_TENSORS
};
/* runtime/reference */
enum gen_status gen__kda_intra_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_scan_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_inter_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_prefill_reference(const gen_plan *plan, const gen_args *args);
enum gen_status gen__kda_prefill_exact(const gen_plan *plan, const gen_args *args,
                                       double *const *exact);

#endif /* GEN_FAMILIES_KDA_CHUNK_H */
