/*
 * Kimi Delta Attention, prefill, on the host: a plan of two launches, kda_intra's
 * and the recurrence between chunks, with the operands between them in the workspace;
 * and kda_scan's between these where sequences are cut into segments. Or one launch of a
 * variant that does all of it.
 */
#include "families/kda/prefill.h"

#include "family/occupancy.h"
#include "kda_prefill/args.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char family[] = "kda_prefill";
const char *const gen__kda_prefill_coords[] = {"states", "seq_len"};

const struct gen__field gen__kda_prefill_fields[] = {
    GEN__KDA_FIELDS(gen_kda_prefill_problem),
    {GEN__KDA_FIELD(gen_kda_prefill_problem, segment_chunks), NULL, 0, 0},
    GEN__INDEX_FIELD(gen_kda_prefill_problem),
    {GEN__KDA_FIELD(gen_kda_prefill_problem, state_pool), gen__kda_state_pools, 2, 0},
    {GEN__KDA_FIELD(gen_kda_prefill_problem, state_dtype), gen__kda_state_dtypes, 3,
     GEN_STATE_FP32},
};
_Static_assert(sizeof gen__kda_prefill_fields / sizeof *gen__kda_prefill_fields ==
                   KDA_PREFILL_NUM_FIELDS,
               "the header counts them for other families");
GEN__KDA_FIELDS_ARE_DIMS(gen_kda_prefill_problem);

static const char *name_of(const gen_problem *base)
{
    return gen__kda_prefill_scalar(base->family) ? "gdn_prefill" : family;
}

__attribute__((noinline)) static enum gen_status check_wanted(const gen_problem *base)
{
    const int32_t wanted = gen__kda_prefill_wanted(base);
    if (wanted < -1 || wanted > KDA_MAX_SEGMENT_CHUNKS)
        return gen__invalid(name_of(base), "segment_chunks", wanted,
                            "-1 (none), 0 (as estimated), 1 to 16777216");
    int32_t dims[KDA_ALL_DIMS];
    memcpy(dims, gen__kda_prefill_dims(base), KDA_NUM_DIMS * sizeof *dims);
    dims[KDA_SEGMENT_CHUNKS] = wanted;
    return wanted > 0 ? gen__kda_check_segments(name_of(base), dims) : GEN_OK;
}

enum gen_status gen__kda_prefill_check(const gen_problem *base, struct gen__key *key)
{
    const int32_t *dims = gen__kda_prefill_dims(base);
    const gen_kda_prefill_problem *p = (const gen_kda_prefill_problem *)base;
    enum gen_status status = gen__kda_check(name_of(base), dims, (uint32_t)p->state_pool & 1, key);
    if (!status && (p->state_pool | p->state_dtype))
        status = gen__kda_check_state_fields(name_of(base), p->state_pool, p->state_dtype);
    if (!status && gen__kda_prefill_wanted(base))
        status = check_wanted(base);
    if (status)
        return status;
    key->empty = dims[KDA_BATCH] == 0;
    gen__kda_chain_counts(base, dims, key);
    return GEN_OK;
}

/* Are `segment` chunks no fewer than any sequence has? A batch-invariant choice does not look at
 * the longest of packed sequences: they are cut as the problem says, though all may be short. */
static bool holds_all(const gen_problem *base, const int32_t *dims, int32_t segment)
{
    const bool packed = gen__kda_prefill_dims(base)[KDA_NUM_TOKENS] != 0;
    if (packed && base->flags & GEN_BATCH_INVARIANT)
        return false;
    return gen__kda_chunks(gen__kda_longest(dims)) <= segment;
}

/* Of both families. Chunks of a segment, 0 where no sequence is cut; *us, where `us` is not NULL,
 * gets the time of what is behind kda_intra. As estimated, the cut depends on the batch; so a
 * batch-invariant choice is whole sequences. `dims`: of the problem that choices are made for. */
int32_t gen__kda_prefill_cut(const gen_problem *base, const int32_t *dims, const gen_device *device,
                             const struct gen__facts *variant, float *us)
{
    const int32_t wanted = gen__kda_prefill_wanted(base);
    const bool scalar = gen__kda_prefill_scalar(base->family);
    if (!wanted && !(base->flags & GEN_BATCH_INVARIANT))
        return scalar ? gen__gdn_cut(dims, device, variant, us)
                      : gen__kda_cut(dims, device, variant, us);
    const bool whole = wanted <= 0 || holds_all(base, dims, wanted);
    if (us && scalar)
        *us = whole ? gen__gdn_whole_us(dims, device, variant)
                    : gen__gdn_segments_us(dims, wanted, device, variant);
    else if (us)
        *us = whole ? gen__kda_inter_us(dims, device, variant)
                    : gen__kda_segments_us(dims, wanted, device, variant);
    return whole ? 0 : wanted;
}

/* ---- one launch -------------------------------------------------------- */

/* The exponents of a chunk's decays have to fit, and a block has a sequence from end to end. */
static const char *fits(const gen_problem *base, const gen_device *device,
                        const struct gen__facts *variant)
{
    (void)device;
    if (!variant->fact[KDA_PREFILL_ONE])
        return NULL;
    if (!gen__kda_prefill_dims(base)[KDA_SAFE_GATE])
        return "one launch takes gates of at least -5: safe_gate = 1";
    if (gen__kda_prefill_wanted(base) > 0)
        return "one launch cuts no sequence: segment_chunks is -1 or 0";
    /* Where a limit leaves out the other variants of a large batch alone, this would take their
     * place there, with other last bits. */
    if (base->flags & GEN_BATCH_INVARIANT && base->max_workspace_mib)
        return "one launch, which takes no workspace, would depend on the batch: "
               "max_workspace_mib is 0 with GEN_BATCH_INVARIANT";
    return NULL;
}

/* Blocks have an SM each, and take the longest sequences first. With one group there are two blocks
 * to a state, which both make all operands, or as a cluster half of them. */
static float one_us(const int32_t *dims, const gen_device *device, const struct gen__facts *variant)
{
    static const float begin_us = 6.0f, whole_us = 4.5f, half_us = 3.3f, pair_us = 3.0f;
    const bool both = variant->fact[KDA_INTER_GROUPS] > 1;
    const float each = both ? whole_us : variant->cluster > 1 ? pair_us : half_us; /* 64 tokens */
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    const float longest = (float)gen__kda_chunks(gen__kda_longest(dims));
    const float states = (float)dims[KDA_BATCH] * (float)dims[KDA_V_HEADS];
    const float blocks = both ? states : 2.0f * states;
    const float all = (float)gen__kda_all_chunks(dims) * (float)dims[KDA_V_HEADS];
    const float rounds = ceilf(blocks / sms), mean = all / states;
    return begin_us + each * fmaxf(longest, rounds * mean);
}

static void plan_one(const gen_problem *base, const struct gen__facts *variant, gen_plan *plan)
{
    plan->dims[KDA_ONE_LAUNCH] = 1;
    gen__kda_inter_launch(plan->dims, variant, base->flags, &plan->launch[0]);
}

/* The first launch takes the same whatever the variant of the last. */
static float predict(const gen_problem *base, const gen_device *device,
                     const struct gen__facts *variant)
{
    int32_t usual[KDA_NUM_DIMS];
    const int32_t *dims = gen__kda_usual(base, gen__kda_prefill_dims(base), usual);
    const struct gen__facts small = {
        .threads = 256, .registers = 128, .occupancy = {101 << 10, {2, 2, 2, 2}}};
    if (variant->fact[KDA_PREFILL_ONE])
        return one_us(dims, device, variant);
    float us;
    gen__kda_prefill_cut(base, dims, device, variant, &us);
    return gen__kda_intra_us(dims, device, &small) + us;
}

/* ---- the plan ---------------------------------------------------------- */

/* The operands of all slots, one kind behind the other, and of segments, each 256-byte aligned. */
struct workspace {
    uint64_t w, u, qg, kg, a_qk, decay, added, transition, segment_decay,
        size; /* offsets in bytes */
};

static struct workspace workspace_of(const int32_t *dims)
{
    const uint64_t tiles = (uint64_t)gen__kda_slots(dims) * (uint64_t)dims[KDA_V_HEADS];
    const uint64_t tile = tiles * KDA_CHUNK * (uint64_t)dims[KDA_HEAD_DIM] * 2;
    struct workspace w = {.u = tile, .qg = 2 * tile, .kg = 3 * tile, .a_qk = 4 * tile};
    w.decay = w.a_qk + tiles * KDA_CHUNK * KDA_CHUNK * 2;
    w.added = w.decay + tiles * (uint64_t)dims[KDA_HEAD_DIM] * 4;
    w.transition = w.segment_decay = w.size = w.added;
    if (dims[KDA_SEGMENT_CHUNKS]) {
        w.transition += gen__kda_segment_bytes(dims);
        w.segment_decay = w.transition + gen__kda_segment_bytes(dims);
        w.size = w.segment_decay +
                 gen__kda_segment_bytes(dims) / (uint64_t)dims[KDA_HEAD_DIM]; /* D beside R */
    }
    return w;
}

/* No more than the problem allows, where whole sequences would do. */
static bool too_much(const gen_problem *base, const int32_t *dims)
{
    return base->max_workspace_mib && !gen__kda_prefill_wanted(base) &&
           workspace_of(dims).size > (uint64_t)base->max_workspace_mib << 20;
}

/* Without tokens there is nothing to do but to hand the states on. */
static void plan(const gen_problem *base, const gen_device *device,
                 const struct gen__facts *variant, gen_plan *plan)
{
    int32_t *dims = plan->dims;
    memcpy(dims, gen__kda_prefill_dims(base), KDA_NUM_DIMS * sizeof *dims);
    dims[KDA_SEGMENT_CHUNKS] = 0;
    gen__kda_prefill_state_dims(base, dims);
    plan->num_launches = dims[KDA_BATCH] > 0;
    if (!variant || !dims[KDA_BATCH])
        return;
    if (variant->fact[KDA_PREFILL_ONE]) {
        plan_one(base, variant, plan);
        return;
    }
    const bool tokens = gen__kda_slots(dims) > 0;
    if (tokens) {
        int32_t usual[KDA_NUM_DIMS];
        const int32_t *for_all = gen__kda_usual(base, gen__kda_prefill_dims(base), usual);
        dims[KDA_SEGMENT_CHUNKS] = gen__kda_prefill_cut(base, for_all, device, variant, NULL);
    }
    if (dims[KDA_SEGMENT_CHUNKS] && too_much(base, dims))
        dims[KDA_SEGMENT_CHUNKS] = 0;
    const uint32_t last = (uint32_t)tokens + (dims[KDA_SEGMENT_CHUNKS] > 0);
    plan->num_launches = last + 1;
    plan->workspace_bytes = workspace_of(dims).size;
    gen__kda_inter_launch(dims, variant, base->flags, &plan->launch[last]);
    if (dims[KDA_SEGMENT_CHUNKS])
        plan->launch[last].grid[1] =
            (uint32_t)gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]);
}

/* Parts' problems are written where they are read from, field by field or as a whole: selection
 * would wait for what is put together of pieces. */
static uint32_t parts(const gen_problem *base, const gen_device *device,
                      const struct gen__facts *variant, const gen_plan *plan,
                      struct gen__part parts[GEN_PLAN_MAX_LAUNCHES])
{
    (void)device, (void)variant;
    if (plan->num_launches < 2)
        return 0;
    _Static_assert(sizeof(gen_kda_intra_problem) <= sizeof parts->problem, "a part holds it");
    _Static_assert(sizeof(gen_kda_scan_problem) <= sizeof parts->problem, "a part holds it");
    parts[0].launch = 0;
    parts[0].problem.base =
        (gen_problem){sizeof(gen_kda_intra_problem), GEN_KDA_INTRA, base->flags, 0};
    memcpy((char *)&parts[0].problem + offsetof(gen_kda_intra_problem, batch),
           gen__kda_prefill_dims(base), KDA_NUM_DIMS * sizeof(int32_t));
    if (plan->num_launches < 3)
        return 1;
    const gen_kda_prefill_problem *p = (const gen_kda_prefill_problem *)base;
    int32_t *const to = parts[1].problem.fields;
#define TO(field) to[offsetof(gen_kda_scan_problem, field) / sizeof(int32_t)]
    parts[1].launch = 1;
    parts[1].problem.base =
        (gen_problem){sizeof(gen_kda_scan_problem), GEN_KDA_SCAN, base->flags, 0};
    TO(batch) = p->batch;
    TO(seq_len) = p->seq_len;
    TO(num_tokens) = p->num_tokens;
    TO(num_v_heads) = p->num_v_heads;
    TO(head_dim) = p->head_dim;
    TO(dtype) = p->dtype;
    TO(segment_chunks) = plan->dims[KDA_SEGMENT_CHUNKS];
    TO(state_pool) = p->state_pool;
    TO(state_dtype) = p->state_dtype;
#undef TO
    return 2;
}

union any_params {
    struct gen_kda_intra_params intra;
    struct gen_kda_inter_pool_params inter;
    struct gen_kda_prefill_params one;
};

static const uint32_t part_families[] = {GEN_KDA_INTRA, GEN_KDA_SCAN};

/* ---- arguments --------------------------------------------------------- */

static gen_kda_intra_args intra_args(const int32_t *dims, const gen_kda_prefill_args *a,
                                     char *workspace)
{
    const struct workspace w = workspace_of(dims);
    gen_kda_intra_args intra = {
        .base = {sizeof intra, GEN_KDA_INTRA},
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .g = a->g,
        .beta = a->beta,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .cu_seqlens = a->cu_seqlens,
        .q_stride = a->q_stride,
        .k_stride = a->k_stride,
        .v_stride = a->v_stride,
        .g_stride = a->g_stride,
        .beta_stride = a->beta_stride,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
    };
    if (workspace) {
        intra.w = workspace + w.w;
        intra.u = workspace + w.u;
        intra.qg = workspace + w.qg;
        intra.kg = workspace + w.kg;
        intra.a_qk = workspace + w.a_qk;
        intra.decay = (float *)(void *)(workspace + w.decay);
    }
    return intra;
}

gen_kda_inter_args gen__kda_prefill_inter(const gen_kda_prefill_args *a)
{
    return (gen_kda_inter_args){
        .base = {sizeof(gen_kda_inter_args), GEN_KDA_INTER},
        .cu_seqlens = a->cu_seqlens,
        .initial_state = a->initial_state,
        .final_state = a->final_state,
        .o = a->o,
        .states = a->states,
        .o_stride = a->o_stride,
        .state_layout = a->state_layout,
        .pools = a->pools,
    };
}

static gen_kda_inter_args inter_args(const int32_t *dims, const gen_kda_prefill_args *a,
                                     const char *workspace)
{
    const struct workspace w = workspace_of(dims);
    gen_kda_inter_args inter = gen__kda_prefill_inter(a);
    if (workspace) {
        inter.w = workspace + w.w;
        inter.u = workspace + w.u;
        inter.qg = workspace + w.qg;
        inter.kg = workspace + w.kg;
        inter.a_qk = workspace + w.a_qk;
        inter.decay = (const float *)(const void *)(workspace + w.decay);
    }
    return inter;
}

static gen_kda_scan_args scan_args(const int32_t *dims, const gen_kda_prefill_args *a,
                                   char *workspace)
{
    const struct workspace w = workspace_of(dims);
    return (gen_kda_scan_args){
        .base = {sizeof(gen_kda_scan_args), GEN_KDA_SCAN},
        .w = workspace + w.w,
        .u = workspace + w.u,
        .kg = workspace + w.kg,
        .decay = (const float *)(const void *)(workspace + w.decay),
        .cu_seqlens = a->cu_seqlens,
        .initial_state = a->initial_state,
        .added = (float *)(void *)(workspace + w.added),
        .transition = workspace + w.transition,
        .segment_decay = (float *)(void *)(workspace + w.segment_decay),
        .state_layout = a->state_layout,
        .pools = a->pools,
    };
}

enum gen_status gen__kda_prefill_check_plan(const char *name, const gen_plan *plan)
{
    const int32_t *dims = plan->dims;
    const enum gen_status status = gen__kda_check_dims(name, dims);
    if (status)
        return status;
    const bool cut = dims[KDA_SEGMENT_CHUNKS] != 0;
    if ((plan->num_launches == 3) == cut && (!cut || !gen__kda_check_segments(name, dims)))
        return GEN_OK;
    return gen__fail(GEN_STATUS_MISMATCH,
                     "%s: the plan's segments are not what gen_select() writes", name);
}

static enum gen_status check_args(const gen_plan *plan, const gen_kda_prefill_args *a)
{
    enum gen_status status = gen__kda_prefill_check_plan(family, plan);
    if (status)
        return status;
    const gen_kda_intra_args intra = intra_args(plan->dims, a, NULL);
    const gen_kda_inter_args inter = inter_args(plan->dims, a, NULL);
    status = gen__kda_check_intra(family, plan->dims, &intra);
    if (!status)
        status = gen__kda_check_inter(family, plan->dims, &inter);
    return status ? status : gen__kda_check_lengths(family, plan->dims, a->cu_seqlens_host);
}

/* Of the recurrence between chunks, which is the last. */
static void last_params(const int32_t *dims, const gen_kda_prefill_args *a, char *workspace,
                        struct gen_kda_inter_pool_params *out)
{
    const gen_kda_inter_args inter = inter_args(dims, a, workspace);
    struct gen_kda_inter_params *const k = &out->inter;
    gen__kda_inter_pool_params(dims, &inter, out);
    if (!dims[KDA_SEGMENT_CHUNKS])
        return;
    const gen_kda_scan_args scan = scan_args(dims, a, workspace);
    k->added = scan.added;
    k->transition = scan.transition;
    k->segment_decay = scan.segment_decay;
    k->segment_chunks = dims[KDA_SEGMENT_CHUNKS];
}

/* Where keys and queries are alike, all of A_qk is nearly `scale` times one cosine. Rounding takes
 * least from what is just below a power of 2: one is what `scale` becomes, or 5/4 of one where
 * cosines are at most 4/5. */
static void fold_scale(struct gen_kda_intra_params *k)
{
    int exponent;
    const float fraction = frexpf(fabsf(k->scale), &exponent);
    if (!(fraction >= 0.5f && fraction < 1.0f) || exponent < -60 || exponent > 60)
        return;
    k->fold[0] = 1.0f / fraction;
    k->fold[1] = 1.25f / fraction;
    k->unfold[0] = fraction;
    k->unfold[1] = fraction / 1.25f;
}

static void one_params(const int32_t *dims, const gen_kda_prefill_args *a,
                       struct gen_kda_prefill_params *k)
{
    const gen_kda_intra_args in = intra_args(dims, a, NULL);
    const gen_kda_inter_args out = inter_args(dims, a, NULL);
    gen__kda_intra_params(dims, &in, &k->in);
    gen__kda_inter_params(dims, &out, &k->out);
}

static enum gen_status params(const gen_plan *plan, uint32_t launch, const gen_args *base,
                              void *workspace, void *out)
{
    const gen_kda_prefill_args *a = (const gen_kda_prefill_args *)base;
    const int32_t *dims = plan->dims;
    const enum gen_status status = launch ? GEN_OK : check_args(plan, a);
    if (status || !out)
        return status;
    if (dims[KDA_ONE_LAUNCH]) {
        one_params(dims, a, out);
    } else if (launch + 1 == plan->num_launches) {
        last_params(dims, a, workspace, out);
    } else if (launch == 0) {
        const gen_kda_intra_args intra = intra_args(dims, a, workspace);
        gen__kda_intra_params(dims, &intra, out);
        fold_scale(out);
    } else {
        const gen_kda_scan_args scan = scan_args(dims, a, workspace);
        gen__kda_scan_pool_params(dims, &scan, out);
    }
    return GEN_OK;
}

uint32_t gen__kda_prefill_extents(const int32_t *dims, const gen_args *base,
                                  struct gen__extent list[GEN__MAX_EXTENTS])
{
    const gen_kda_prefill_args *a = (const gen_kda_prefill_args *)base;
    const int64_t tokens = gen__kda_tokens(dims), heads = dims[KDA_V_HEADS];
    const int64_t d = dims[KDA_HEAD_DIM], qk = dims[KDA_QK_HEADS] * d * 2, v = heads * d;
    const int64_t g = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t beta = dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32 ? 4 : 2;
    const int64_t gates = gen__kda_prefill_gates(dims, a->base.family);
    gen__reads_rows(&list[0], "q", a->q, qk, tokens, gen__stride_bytes(a->q_stride, 2));
    gen__reads_rows(&list[1], "k", a->k, qk, tokens, gen__stride_bytes(a->k_stride, 2));
    gen__reads_rows(&list[2], "v", a->v, v * 2, tokens, gen__stride_bytes(a->v_stride, 2));
    gen__reads_rows(&list[3], "g", a->g, gates * g, tokens, gen__stride_bytes(a->g_stride, g));
    gen__reads_rows(&list[4], "beta", a->beta, heads * beta, tokens,
                    gen__stride_bytes(a->beta_stride, beta));
    gen__reads(&list[5], "A_log", a->A_log, heads * 4);
    gen__reads(&list[6], "dt_bias", a->dt_bias, gates * 4);
    gen__reads(&list[7], "cu_seqlens", a->cu_seqlens, (dims[KDA_BATCH] + INT64_C(1)) * 4);
    gen__writes_rows(&list[8], "o", a->o, v * 2, tokens, gen__stride_bytes(a->o_stride, 2));
    gen__writes(&list[9], "states", a->states, (int64_t)gen__kda_states_count(dims) * 2);
    return 10 + gen__kda_pool_extents(dims, &a->pools, a->initial_state, a->final_state, list + 10);
}

const struct gen__family gen__family_kda_prefill = {
    .name = family,
    .tag = GEN_KDA_PREFILL,
    .problem_size = sizeof(gen_kda_prefill_problem),
    .args_size = sizeof(gen_kda_prefill_args),
    GEN__ONE_INDEX(kda_prefill, cu_seqlens),
    .params_size = sizeof(union any_params),
    .required = gen__kda_pool_required,
    .num_required = KDA_POOL_NUM_REQUIRED,
    .facts = KDA_INTER_FACTS ",one",
    .coords = gen__kda_prefill_coords,
    .num_coords = KDA_PREFILL_NUM_COORDS,
    .max_distance = GEN__ANY_DISTANCE,
    .fields = gen__kda_prefill_fields,
    .num_fields = KDA_PREFILL_NUM_FIELDS,
    .grid_steps = gen__kda_grid,
    .set_counts = gen__kda_prefill_set_counts,
    .check = gen__kda_prefill_check,
    .fits = fits,
    .predict = predict,
    .plan = plan,
    .parts = parts,
    .part_families = part_families,
    .num_part_families = sizeof part_families / sizeof *part_families,
    .params = params,
    .extents = gen__kda_prefill_extents,
    .reference = gen__kda_prefill_reference,
    .exact = gen__kda_prefill_exact,
    .tensors = gen__kda_prefill_tensors,
    .default_args = gen__kda_prefill_default_args,
    .fill = gen__kda_prefill_fill,
    .cost = gen__kda_prefill_cost,
    .case_name = gen__kda_prefill_case_name,
    .forms = gen__kda_prefill_forms,
    .num_forms = GEN__KDA_PREFILL_NUM_FORMS,
    .form = gen__kda_prefill_form,
    .data = gen__kda_prefill_data,
};
