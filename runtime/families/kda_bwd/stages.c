/*
 * Kimi Delta Attention, the backward pass, on the host: what each launch takes. Between launches
 * everything lies in the workspace, in the stages' own layouts.
 */
#include "families/kda_bwd/kda_bwd.h"

extern const struct gen__family gen__family_kda_chunk_h, gen__family_kda_bwd_dav,
    gen__family_kda_bwd_dhu, gen__family_kda_bwd_wy, gen__family_kda_bwd_intra,
    gen__family_kda_gate_bwd, gen__family_kda_qk_bwd, gen__family_kda_bwd_grad;

static bool grouped(const int32_t *dims)
{
    return dims[KDA_V_HEADS] != dims[KDA_QK_HEADS];
}

uint32_t gen__kda_bwd_num_launches(const int32_t *dims)
{
    if (dims[KDA_BWD_FUSED])
        return grouped(dims) && !dims[KDA_BWD_SUMMED] ? 6 : 5;
    return KDA_BWD_LAUNCH_QK_BWD + 1;
}

enum kda_bwd_launch gen__kda_bwd_kind(const int32_t *dims, uint32_t launch)
{
    static const enum kda_bwd_launch fused[] = {
        KDA_BWD_LAUNCH_PREPARE, KDA_BWD_LAUNCH_STATES, KDA_BWD_LAUNCH_DHU,
        KDA_BWD_LAUNCH_GRAD,    KDA_BWD_LAUNCH_SUMS,   KDA_BWD_LAUNCH_QK_BWD,
    };
    return dims[KDA_BWD_FUSED] ? fused[launch] : (enum kda_bwd_launch)launch;
}

const struct gen__family *gen__kda_bwd_stage(const int32_t *dims, uint32_t launch)
{
    static const struct gen__family *const stages[KDA_BWD_NUM_KINDS] = {
        [KDA_BWD_LAUNCH_STATES] = &gen__family_kda_chunk_h,
        [KDA_BWD_LAUNCH_DAV] = &gen__family_kda_bwd_dav,
        [KDA_BWD_LAUNCH_DHU] = &gen__family_kda_bwd_dhu,
        [KDA_BWD_LAUNCH_WY] = &gen__family_kda_bwd_wy,
        [KDA_BWD_LAUNCH_INTRA] = &gen__family_kda_bwd_intra,
        [KDA_BWD_LAUNCH_GATE_BWD] = &gen__family_kda_gate_bwd,
        [KDA_BWD_LAUNCH_QK_BWD] = &gen__family_kda_qk_bwd,
        [KDA_BWD_LAUNCH_GRAD] = &gen__family_kda_bwd_grad,
    };
    const enum kda_bwd_launch kind = gen__kda_bwd_kind(dims, launch);
    return kind == KDA_BWD_LAUNCH_STATES && dims[KDA_BWD_KEEP] ? NULL : stages[kind];
}

/* ---- the workspace ----------------------------------------------------- */

/* Offsets in bytes, each of a multiple of 256. d_q lies over w and qg, and d_k over kg and u, which
 * no launch reads any more when kda_bwd_wy or kda_bwd_grad writes them; kda_bwd_dav's d_v over u.
 * With kda_bwd_grad normalized q and k, gradients of scores, A and cumulated gates and activated
 * betas are in no memory. */
struct workspace {
    uint64_t beta, q, k, gk, w, qg, kg, u, v_new, d_v, d_v_new, d_o, h, d_h, a_qk, a_kk, d_a_qk,
        d_a_kk, d_g, d_beta, partials, sums, size;
};

static uint64_t take(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;
    *end += (bytes + 255) & ~UINT64_C(255);
    return at;
}

static struct workspace workspace_of(const int32_t *dims)
{
    const uint64_t tokens = (uint64_t)gen__kda_tokens(dims), slots = (uint64_t)gen__kda_slots(dims);
    const uint64_t rows = tokens * (uint64_t)dims[KDA_V_HEADS], d = (uint64_t)dims[KDA_HEAD_DIM];
    const uint64_t qk = tokens * (uint64_t)gen__kda_qk_width(dims);
    const uint64_t states = slots * (uint64_t)dims[KDA_V_HEADS] * d * d;
    const bool fused = dims[KDA_BWD_FUSED], wide = dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32;
    struct workspace w = {0};
    w.beta = take(&w.size, fused ? 0 : rows * 4);
    w.q = take(&w.size, fused ? 0 : qk * 2);
    w.k = take(&w.size, fused ? 0 : qk * 2);
    w.gk = take(&w.size, rows * d * 4);
    w.w = take(&w.size, rows * d * 2);
    w.qg = take(&w.size, rows * d * 2);
    w.kg = take(&w.size, rows * d * 2);
    w.u = take(&w.size, rows * d * 2);
    w.d_v = fused ? take(&w.size, rows * d * 2) : w.u;
    w.d_o = take(&w.size, fused && wide ? rows * d * 2 : 0);
    w.v_new = take(&w.size, rows * d * 2);
    w.d_v_new = take(&w.size, rows * d * 2);
    w.h = take(&w.size, dims[KDA_BWD_KEEP] ? 0 : states * 2);
    w.d_h = take(&w.size, states * 2);
    w.a_qk = take(&w.size, fused ? 0 : rows * KDA_CHUNK * 2);
    w.a_kk = take(&w.size, rows * KDA_CHUNK * 2);
    w.d_a_qk = take(&w.size, fused ? 0 : rows * KDA_CHUNK * 4);
    w.d_a_kk = take(&w.size, fused ? 0 : rows * KDA_CHUNK * 4);
    w.d_g = take(&w.size, fused ? 0 : rows * d * 4);
    w.d_beta = take(&w.size, fused ? 0 : rows * 4);
    w.partials = take(
        &w.size, (uint64_t)GEN_KDA_GATE_BWD_PARTIALS(slots, dims[KDA_V_HEADS], dims[KDA_HEAD_DIM]));
    w.sums = take(&w.size,
                  dims[KDA_BWD_SUMMED] ? (uint64_t)GEN_KDA_BWD_GRAD_SUMS(d) * sizeof(float) : 0);
    return w;
}

uint64_t gen__kda_bwd_workspace(const int32_t *dims)
{
    return workspace_of(dims).size;
}

/* ---- arguments of launches --------------------------------------------- */

/* What lies where, for one call. */
struct call {
    const int32_t *dims;
    const gen_kda_bwd_args *a;
    char *memory;
    struct workspace at;
    const void *q, *k, *v, *d_o; /* packed; q and k normalized where they should be */
    const void *h;
    int32_t num_chunks; /* of states */
};

static void *place(const struct call *c, uint64_t offset)
{
    return c->memory + offset;
}

static float *floats(const struct call *c, uint64_t offset)
{
    return (float *)(void *)(c->memory + offset);
}

static bool packed(int64_t stride, int64_t width)
{
    return stride == 0 || stride == width;
}

static struct call call_of(const int32_t *dims, const gen_kda_bwd_args *a, char *memory)
{
    const int64_t qk = gen__kda_qk_width(dims), v = gen__kda_v_width(dims);
    struct call c = {.dims = dims, .a = a, .memory = memory, .at = workspace_of(dims)};
    c.q = a->qk_l2norm || !packed(a->q_stride, qk) ? place(&c, c.at.q) : a->q;
    c.k = a->qk_l2norm || !packed(a->k_stride, qk) ? place(&c, c.at.k) : a->k;
    /* Rows that are apart are packed into outputs which are written later: kda_bwd_wy reads all of
     * a chunk's v before it writes d_v, and kda_gate_bwd comes behind all that read d_o.
     * kda_bwd_grad has read a chunk's when it writes them, in the same place where gates have 16
     * bits. */
    const bool wide = dims[KDA_BWD_FUSED] && dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32;
    c.v = packed(a->v_stride, v) ? a->v : a->d_v;
    c.d_o = packed(a->d_o_stride, v) ? a->d_o : wide ? place(&c, c.at.d_o) : a->d_g;
    c.h = dims[KDA_BWD_KEEP] ? a->states : place(&c, c.at.h);
    c.num_chunks = (int32_t)(dims[KDA_BWD_KEEP] ? gen__kda_all_chunks(dims) : gen__kda_slots(dims));
    return c;
}

static gen_kda_chunk_h_args chunk_h_args(const struct call *c)
{
    return (gen_kda_chunk_h_args){
        .base = {sizeof(gen_kda_chunk_h_args), GEN_KDA_CHUNK_H},
        .kg = place(c, c->at.kg),
        .w = place(c, c->at.w),
        .u = place(c, c->at.u),
        .gk = floats(c, c->at.gk),
        .initial_state = c->a->initial_state,
        .cu_seqlens = c->a->cu_seqlens,
        .h = place(c, c->at.h),
        .v_new = place(c, c->at.v_new),
        .num_chunks = c->num_chunks,
        .state_layout = c->a->state_layout,
    };
}

static gen_kda_bwd_dav_args dav_args(const struct call *c)
{
    return (gen_kda_bwd_dav_args){
        .base = {sizeof(gen_kda_bwd_dav_args), GEN_KDA_BWD_DAV},
        .v_new = place(c, c->at.v_new),
        .d_o = c->d_o,
        .a_qk = place(c, c->at.a_qk),
        .cu_seqlens = c->a->cu_seqlens,
        .d_a_qk = floats(c, c->at.d_a_qk),
        .d_v = place(c, c->at.d_v),
        .scale = c->a->scale,
    };
}

static gen_kda_bwd_dhu_args dhu_args(const struct call *c)
{
    return (gen_kda_bwd_dhu_args){
        .base = {sizeof(gen_kda_bwd_dhu_args), GEN_KDA_BWD_DHU},
        .qg = place(c, c->at.qg),
        .kg = place(c, c->at.kg),
        .w = place(c, c->at.w),
        .d_o = c->d_o,
        .d_v = place(c, c->at.d_v),
        .gk = floats(c, c->at.gk),
        .d_final_state = c->a->d_final_state,
        .cu_seqlens = c->a->cu_seqlens,
        .d_h = place(c, c->at.d_h),
        .d_v_new = place(c, c->at.d_v_new),
        .d_initial_state = c->a->d_initial_state,
        .scale = c->a->scale,
        .num_chunks = c->num_chunks,
        .state_layout = c->a->state_layout,
    };
}

static gen_kda_bwd_wy_args wy_args(const struct call *c)
{
    return (gen_kda_bwd_wy_args){
        .base = {sizeof(gen_kda_bwd_wy_args), GEN_KDA_BWD_WY},
        .q = c->q,
        .k = c->k,
        .v = c->v,
        .v_new = place(c, c->at.v_new),
        .gk = floats(c, c->at.gk),
        .beta = place(c, c->at.beta),
        .a_kk = place(c, c->at.a_kk),
        .h = c->h,
        .d_o = c->d_o,
        .d_h = place(c, c->at.d_h),
        .d_v_new = place(c, c->at.d_v_new),
        .cu_seqlens = c->a->cu_seqlens,
        .d_q = floats(c, c->at.w),
        .d_k = floats(c, c->at.kg),
        .d_v = c->a->d_v,
        .d_beta = floats(c, c->at.d_beta),
        .d_g = floats(c, c->at.d_g),
        .d_a_kk = floats(c, c->at.d_a_kk),
        .scale = c->a->scale,
        .num_chunks = c->num_chunks,
        .state_layout = c->a->state_layout,
    };
}

/* Sums over those of kda_bwd_wy. */
static gen_kda_bwd_intra_args intra_args(const struct call *c)
{
    float *const d_q = floats(c, c->at.w), *const d_k = floats(c, c->at.kg);
    float *const d_beta = floats(c, c->at.d_beta), *const d_g = floats(c, c->at.d_g);
    return (gen_kda_bwd_intra_args){
        .base = {sizeof(gen_kda_bwd_intra_args), GEN_KDA_BWD_INTRA},
        .q = c->q,
        .k = c->k,
        .gk = floats(c, c->at.gk),
        .beta = place(c, c->at.beta),
        .d_a_qk = floats(c, c->at.d_a_qk),
        .d_a_kk = floats(c, c->at.d_a_kk),
        .d_q_states = d_q,
        .d_k_states = d_k,
        .d_beta_states = d_beta,
        .d_g_states = d_g,
        .cu_seqlens = c->a->cu_seqlens,
        .d_q = d_q,
        .d_k = d_k,
        .d_beta = d_beta,
        .d_g = d_g,
    };
}

static gen_kda_gate_bwd_args gate_bwd_args(const struct call *c)
{
    const gen_kda_bwd_args *a = c->a;
    const bool given = a->gate_form == GEN_KDA_GATE_GIVEN;
    return (gen_kda_gate_bwd_args){
        .base = {sizeof(gen_kda_gate_bwd_args), GEN_KDA_GATE_BWD},
        .g = given ? NULL : a->g,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .d_gk = floats(c, c->at.d_g),
        .cu_seqlens = a->cu_seqlens,
        .d_g = a->d_g,
        .d_A_log = a->d_A_log,
        .d_dt_bias = a->d_dt_bias,
        .partials = a->d_A_log || a->d_dt_bias ? place(c, c->at.partials) : NULL,
        .g_stride = given ? 0 : a->g_stride,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .suffix_sum = 1,
    };
}

static gen_kda_qk_bwd_args qk_bwd_args(const struct call *c)
{
    const gen_kda_bwd_args *a = c->a;
    const bool fused = c->dims[KDA_BWD_FUSED], given = fused || a->beta_form == GEN_KDA_BETA_GIVEN;
    return (gen_kda_qk_bwd_args){
        .base = {sizeof(gen_kda_qk_bwd_args), GEN_KDA_QK_BWD},
        .q = a->qk_l2norm ? a->q : NULL,
        .k = a->qk_l2norm ? a->k : NULL,
        .beta = given ? NULL : a->beta,
        .d_q_heads = floats(c, c->at.w),
        .d_k_heads = floats(c, c->at.kg),
        .d_beta_heads = fused ? NULL : floats(c, c->at.d_beta),
        .cu_seqlens = a->cu_seqlens,
        .d_q = a->d_q,
        .d_k = a->d_k,
        .d_beta = fused ? NULL : a->d_beta,
        .q_stride = a->qk_l2norm ? a->q_stride : 0,
        .k_stride = a->qk_l2norm ? a->k_stride : 0,
        .beta_stride = given ? 0 : a->beta_stride,
        .qk_l2norm = a->qk_l2norm,
        .beta_form = given ? GEN_KDA_BETA_GIVEN : a->beta_form,
    };
}

/* The heads' gradients of a group are added there, or by kda_qk_bwd. */
static gen_kda_bwd_grad_args grad_args(const struct call *c)
{
    const gen_kda_bwd_args *a = c->a;
    const bool summed = c->dims[KDA_BWD_SUMMED], heads = grouped(c->dims) && !summed,
               given = a->gate_form == GEN_KDA_GATE_GIVEN;
    return (gen_kda_bwd_grad_args){
        .base = {sizeof(gen_kda_bwd_grad_args), GEN_KDA_BWD_GRAD},
        .q = a->q,
        .k = a->k,
        .v = c->v,
        .v_new = place(c, c->at.v_new),
        .gk = floats(c, c->at.gk),
        .g = given ? NULL : a->g,
        .A_log = a->A_log,
        .dt_bias = a->dt_bias,
        .beta = a->beta,
        .a_kk = place(c, c->at.a_kk),
        .h = c->h,
        .d_o = c->d_o,
        .d_h = place(c, c->at.d_h),
        .d_v_new = place(c, c->at.d_v_new),
        .cu_seqlens = a->cu_seqlens,
        .d_q = heads ? NULL : a->d_q,
        .d_k = heads ? NULL : a->d_k,
        .d_q_heads = heads ? floats(c, c->at.w) : NULL,
        .d_k_heads = heads ? floats(c, c->at.kg) : NULL,
        .d_v = a->d_v,
        .d_g = a->d_g,
        .d_beta = a->d_beta,
        .partials = a->d_A_log || a->d_dt_bias ? floats(c, c->at.partials) : NULL,
        .q_stride = a->q_stride,
        .k_stride = a->k_stride,
        .g_stride = given ? 0 : a->g_stride,
        .beta_stride = a->beta_stride,
        .scale = a->scale,
        .lower_bound = a->lower_bound,
        .gate_form = a->gate_form,
        .beta_form = a->beta_form,
        .qk_l2norm = a->qk_l2norm,
        .num_chunks = c->num_chunks,
        .state_layout = a->state_layout,
        .sums = summed ? floats(c, c->at.sums) : NULL,
    };
}

bool gen__kda_bwd_takes_betas(enum kda_bwd_launch kind)
{
    return kind == KDA_BWD_LAUNCH_QK_BWD || kind == KDA_BWD_LAUNCH_GRAD;
}

/* The stages' betas are activated, and fp32; but for those that take raw ones. */
static void stage_plan(const int32_t *dims, enum kda_bwd_launch kind, gen_plan *plan)
{
    memcpy(plan->dims, dims, KDA_NUM_DIMS * sizeof *dims);
    if (!gen__kda_bwd_takes_betas(kind))
        plan->dims[KDA_BETA_DTYPE] = GEN_DTYPE_FP32;
}

enum gen_status gen__kda_bwd_stage_params(const struct gen__family *stage, const int32_t *dims,
                                          uint32_t launch, const gen_kda_bwd_args *a,
                                          char *workspace, void *out)
{
    const struct call c = call_of(dims, a, workspace);
    union {
        gen_args base;
        gen_kda_chunk_h_args chunk_h;
        gen_kda_bwd_dav_args dav;
        gen_kda_bwd_dhu_args dhu;
        gen_kda_bwd_wy_args wy;
        gen_kda_bwd_intra_args intra;
        gen_kda_gate_bwd_args gate_bwd;
        gen_kda_qk_bwd_args qk_bwd;
        gen_kda_bwd_grad_args grad;
    } args;
    gen_plan plan; /* a stage's params() reads the dims alone */
    const enum kda_bwd_launch kind = gen__kda_bwd_kind(dims, launch);
    stage_plan(dims, kind, &plan);
    switch (kind) {
    case KDA_BWD_LAUNCH_STATES:
        args.chunk_h = chunk_h_args(&c);
        break;
    case KDA_BWD_LAUNCH_DAV:
        args.dav = dav_args(&c);
        break;
    case KDA_BWD_LAUNCH_DHU:
        args.dhu = dhu_args(&c);
        break;
    case KDA_BWD_LAUNCH_WY:
        args.wy = wy_args(&c);
        break;
    case KDA_BWD_LAUNCH_INTRA:
        args.intra = intra_args(&c);
        break;
    case KDA_BWD_LAUNCH_GATE_BWD:
        args.gate_bwd = gate_bwd_args(&c);
        break;
    case KDA_BWD_LAUNCH_GRAD:
        args.grad = grad_args(&c);
        break;
    default:
        args.qk_bwd = qk_bwd_args(&c);
        break;
    }
    const enum gen_status status = stage->params(&plan, 0, &args.base, NULL, out);
    /* With d_v of the first launch it reads nothing of the launch before it. */
    if (!status && out && kind == KDA_BWD_LAUNCH_DHU && dims[KDA_BWD_FUSED])
        ((struct gen_kda_bwd_dhu_params *)out)->beside = 1;
    return status;
}

/* ---- our own launches --------------------------------------------------- */

static struct gen_kda_bwd_rows rows_of(const void *from, const void *to, int64_t stride,
                                       int64_t width)
{
    /* The caller's own rows, or the workspace's or an output's. */
    union {
        const void *from;
        void *to;
    } rows = {to};
    return (struct gen_kda_bwd_rows){from, to == from ? NULL : rows.to, stride ? stride : width};
}

/* What the forward pass has inside chunks. */
static void prepare_params(const struct call *c, struct gen_kda_bwd_params *k)
{
    const gen_kda_bwd_args *a = c->a;
    const int64_t qk = gen__kda_qk_width(c->dims), v = gen__kda_v_width(c->dims);
    const bool fused = c->dims[KDA_BWD_FUSED]; /* takes q, k and beta as they are, too */
    k->q = rows_of(a->q, fused ? a->q : c->q, a->q_stride, qk);
    k->k = rows_of(a->k, fused ? a->k : c->k, a->k_stride, qk);
    k->v = rows_of(a->v, c->v, a->v_stride, v);
    k->d_o = rows_of(a->d_o, c->d_o, a->d_o_stride, v);
    k->g = a->g;
    k->beta = a->beta;
    k->A_log = a->A_log;
    k->dt_bias = a->dt_bias;
    k->gk = floats(c, c->at.gk);
    k->beta_out = fused ? NULL : floats(c, c->at.beta);
    k->a_qk = fused ? NULL : place(c, c->at.a_qk);
    k->d_v = fused ? place(c, c->at.d_v) : NULL;
    k->a_kk = place(c, c->at.a_kk);
    k->kg = place(c, c->at.kg);
    k->qg = place(c, c->at.qg);
    k->g_stride = a->g_stride ? a->g_stride : v;
    k->beta_stride = a->beta_stride ? a->beta_stride : c->dims[KDA_V_HEADS];
    k->scale = a->scale;
    k->lower_bound = a->lower_bound;
    k->gate = a->gate_form;
    k->gate_fp32 = c->dims[KDA_GATE_DTYPE] == GEN_DTYPE_FP32;
    k->beta_fp32 = c->dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32;
    k->beta_activation = a->beta_form;
    k->l2_norm = a->qk_l2norm;
}

static void no_tokens_params(const int32_t *dims, const gen_kda_bwd_args *a,
                             struct gen_kda_bwd_params *k)
{
    k->task = KDA_BWD_NO_TOKENS;
    k->d_final_state = a->d_final_state;
    k->d_initial_state = a->d_initial_state;
    k->d_A_log = a->d_A_log;
    k->d_dt_bias = a->d_dt_bias;
    k->state_count = dims[KDA_BATCH] * gen__kda_v_width(dims) * dims[KDA_HEAD_DIM];
}

void gen__kda_bwd_own_params(const int32_t *dims, uint32_t launch, const gen_kda_bwd_args *a,
                             char *workspace, struct gen_kda_bwd_params *out)
{
    static const int tasks[KDA_BWD_NUM_KINDS] = {[KDA_BWD_LAUNCH_PREPARE] = KDA_BWD_PREPARE,
                                                 [KDA_BWD_LAUNCH_STATES] = KDA_BWD_VALUES,
                                                 [KDA_BWD_LAUNCH_SUMS] = KDA_BWD_SUMS};
    struct gen_kda_bwd_params k = {
        .shape = gen__kda_stage_shape(dims, a->cu_seqlens, dims[KDA_V_HEADS]),
        .task = tasks[gen__kda_bwd_kind(dims, launch)],
        .state_vk = a->state_layout == GEN_KDA_STATE_VK,
    };
    if (gen__kda_slots(dims)) {
        const struct call c = call_of(dims, a, workspace);
        k.w = place(&c, c.at.w);
        k.u = place(&c, c.at.u);
        k.h = c.h;
        k.v_new = place(&c, c.at.v_new);
        k.num_chunks = c.num_chunks;
        if (k.task == KDA_BWD_PREPARE)
            prepare_params(&c, &k);
        if (k.task == KDA_BWD_SUMS) {
            k.partials = a->d_A_log || a->d_dt_bias ? floats(&c, c.at.partials) : NULL;
            k.d_A_log = a->d_A_log;
            k.d_dt_bias = a->d_dt_bias;
            k.num_slots = (int32_t)gen__kda_slots(dims);
        }
    } else {
        no_tokens_params(dims, a, &k);
    }
    *out = k;
}
