/*
 * The reference of kda_decode against cases computed by hand, against the
 * recurrence written as products of matrices, in every form of the arguments; and
 * what it must leave alone.
 */
#include "kda_decode_call.h"

#include <math.h>

/* ---- by hand ----------------------------------------------------------- */

/*
 * Channel 3 alone. Token 0: the state is 0, so e = v = 2; with beta 1/2 and k = 1 the state
 * becomes 1, and o = 1/2 * 3 * 1. Token 1: the decay of 1/2 leaves 1/2, which is what is
 * predicted; e = 3/2, the state becomes 1/2 + 3/4 = 5/4, and o = 1/2 * 3 * 5/4.
 */
static void two_tokens_by_hand(void **state)
{
    (void)state;
    for (int32_t layout = 0; layout < 2; layout++) {
        struct call c;
        open_zero(&c, 2, layout);
        const int32_t *slots = c.data[KDA_DECODE_SLOTS];
        *(int32_t *)c.data[KDA_DECODE_ACCEPTED] = 2;
        for (int64_t t = 0; t < 2; t++) {
            element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_Q], t * 64 + 3, 3);
            element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_K], t * 64 + 3, 1);
            element_put(GEN_DTYPE_FP32, c.data[KDA_DECODE_BETA], t, 0.5);
            for (int64_t v = 0; v < 64; v++)
                element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_V], t * 64 + v, 2);
        }
        element_put(GEN_DTYPE_FP32, c.data[KDA_DECODE_GATE], 64 + 3, log(0.5));
        run(&c);
        const float *s = c.data[KDA_DECODE_STATE];
        for (int64_t v = 0; v < 64; v++) {
            assert_true(element_get(GEN_DTYPE_BF16, c.data[KDA_DECODE_O], v) == 1.5);
            assert_true(element_get(GEN_DTYPE_BF16, c.data[KDA_DECODE_O], 64 + v) == 1.875);
            assert_true(s[state_at(&c, slots[0], 0, 3, v)] == 1.0f);
            assert_true(fabs((double)s[state_at(&c, slots[1], 0, 3, v)] - 1.25) < 1e-7);
            assert_true(s[state_at(&c, slots[0], 0, 2, v)] == 0.0f);
        }
        close_call(&c);
    }
}

/* What is left of a state of 1 where k is 0: the decay alone. And with k = 1 at channel 0, v = 0
 * and a state of 1 there, 1 - beta: what beta came to. */
static double left_of(struct call *c, bool beta)
{
    float *s = c->data[KDA_DECODE_STATE];
    const int32_t slot = *(int32_t *)c->data[KDA_DECODE_SLOTS];
    for (int64_t k = 0; k < 64; k++)
        s[state_at(c, slot, 0, k, 5)] = 1;
    element_put(GEN_DTYPE_BF16, c->data[KDA_DECODE_K], 0, beta ? 1 : 0);
    run(c);
    return (double)s[state_at(c, slot, 0, beta ? 0 : 9, 5)];
}

static void gates_by_hand(void **state)
{
    (void)state;
    struct call c;
    open_zero(&c, 1, GEN_KDA_STATE_VK);
    float *gate = c.data[KDA_DECODE_GATE], *a_log = c.data[KDA_DECODE_A_LOG];
    float *bias = c.data[KDA_DECODE_DT_BIAS];
    gate[9] = -1;
    assert_true(fabs(left_of(&c, false) - exp(-1)) < 1e-7);
    /* softplus(0) = log 2; twice that with exp(a_log) = 2; x itself beyond 20. */
    c.args.gate_form = GEN_KDA_GATE_SOFTPLUS;
    c.args.A_log = a_log;
    gate[9] = 0;
    assert_true(fabs(left_of(&c, false) - 0.5) < 1e-7);
    a_log[0] = (float)log(2);
    assert_true(fabs(left_of(&c, false) - 0.25) < 1e-7);
    c.args.dt_bias = bias;
    gate[9] = 1.5f;
    bias[9] = -1.5f;
    bias[8] = 7;
    assert_true(fabs(left_of(&c, false) - 0.25) < 1e-7);
    a_log[0] = (float)log(0.0625);
    gate[9] = 24;
    bias[9] = 8;
    assert_true(fabs(left_of(&c, false) - exp(-2)) < 1e-7);
    /* The sigmoid of 0 is 1/2, of log 3 is 3/4; a factor of 1 without a_log. */
    c.args.gate_form = GEN_KDA_GATE_LOWER_BOUND;
    c.args.lower_bound = -4;
    gate[9] = -8;
    assert_true(fabs(left_of(&c, false) - exp(-2)) < 1e-7);
    a_log[0] = 0;
    gate[9] = (float)log(3) - 8;
    assert_true(fabs(left_of(&c, false) - exp(-3)) < 1e-6);
    c.args.A_log = c.args.dt_bias = NULL;
    gate[9] = (float)log(3);
    assert_true(fabs(left_of(&c, false) - exp(-3)) < 1e-6);
    close_call(&c);
}

static void betas_and_norms_by_hand(void **state)
{
    (void)state;
    struct call c;
    open_zero(&c, 1, GEN_KDA_STATE_KV);
    float *beta = c.data[KDA_DECODE_BETA];
    beta[0] = 0.25f;
    assert_true(fabs(left_of(&c, true) - 0.75) < 1e-7);
    c.args.beta_form = GEN_KDA_BETA_SIGMOID;
    beta[0] = 0;
    assert_true(fabs(left_of(&c, true) - 0.5) < 1e-7);
    c.args.beta_form = GEN_KDA_BETA_TWO_SIGMOID;
    beta[0] = (float)log(3);
    assert_true(fabs(left_of(&c, true) + 0.5) < 1e-6);
    close_call(&c);

    /* k = (3, 4) / 5 and q = (0, 7) / 7: from a state of 0, S = beta * v * k and o = scale * S[1].
     */
    open_zero(&c, 1, GEN_KDA_STATE_VK);
    c.args.qk_l2norm = 1;
    *(float *)c.data[KDA_DECODE_BETA] = 1;
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_K], 0, 3);
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_K], 1, 4);
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_Q], 1, 7);
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_V], 11, 10);
    run(&c);
    const float *s = c.data[KDA_DECODE_STATE];
    const int32_t slot = *(int32_t *)c.data[KDA_DECODE_SLOTS];
    assert_true(fabs((double)s[state_at(&c, slot, 0, 0, 11)] - 6) < 1e-6);
    assert_true(fabs((double)s[state_at(&c, slot, 0, 1, 11)] - 8) < 1e-6);
    assert_true(element_get(GEN_DTYPE_BF16, c.data[KDA_DECODE_O], 11) == 4);
    assert_true(element_get(GEN_DTYPE_BF16, c.data[KDA_DECODE_O], 10) == 0);
    close_call(&c);
}

/* ---- as products of matrices ------------------------------------------- */

#define MAX_DIM 128

/* A row's expectation: S = (I - beta k k') Diag(exp g) S + beta k v', o = scale S' q. */
struct expectation {
    double s[MAX_DIM][MAX_DIM], o[MAX_DIM];
};

static double logistic(double x)
{
    return 0.5 * (1 + tanh(0.5 * x));
}

static double log_decay(const struct call *c, int64_t token, int64_t head, int64_t k)
{
    const gen_kda_decode_args *a = &c->args;
    const int64_t d = c->problem.head_dim, width = c->problem.num_v_heads * d;
    const int64_t stride = a->g_stride ? a->g_stride : width;
    double x =
        element_get((enum gen_dtype)c->problem.gate_dtype, a->g, token * stride + head * d + k);
    if (a->dt_bias)
        x += (double)a->dt_bias[head * d + k];
    const double rate = a->A_log ? exp((double)a->A_log[head]) : 1;
    if (a->gate_form == GEN_KDA_GATE_SOFTPLUS)
        return -rate * log(1 + exp(x));
    return a->gate_form == GEN_KDA_GATE_LOWER_BOUND ? (double)a->lower_bound * logistic(rate * x)
                                                    : x;
}

/* Row `token` of q (or k) for a value head. */
static void query(const struct call *c, const void *tensor, int64_t stride, int64_t token,
                  int64_t head, double x[MAX_DIM])
{
    const int64_t d = c->problem.head_dim, heads = c->problem.num_qk_heads;
    const int64_t of = head * heads / c->problem.num_v_heads;
    double norm = 0;
    for (int64_t k = 0; k < d; k++) {
        x[k] = element_get((enum gen_dtype)c->problem.dtype, tensor,
                           token * (stride ? stride : heads * d) + of * d + k);
        norm += x[k] * x[k];
    }
    for (int64_t k = 0; k < d && c->args.qk_l2norm; k++)
        x[k] /= sqrt(norm + 1e-6);
}

static void advance(const struct call *c, int64_t token, int64_t head, struct expectation *e)
{
    const gen_kda_decode_args *a = &c->args;
    const int64_t d = c->problem.head_dim, heads = c->problem.num_v_heads;
    double q[MAX_DIM], k[MAX_DIM], next[MAX_DIM][MAX_DIM];
    query(c, a->q, a->q_stride, token, head, q);
    query(c, a->k, a->k_stride, token, head, k);
    double beta = element_get((enum gen_dtype)c->problem.beta_dtype, a->beta,
                              token * (a->beta_stride ? a->beta_stride : heads) + head);
    if (a->beta_form != GEN_KDA_BETA_GIVEN)
        beta = a->beta_form * logistic(beta);
    double decay[MAX_DIM];
    for (int64_t i = 0; i < d; i++)
        decay[i] = exp(log_decay(c, token, head, i));
    for (int64_t v = 0; v < d; v++) {
        const double value =
            element_get((enum gen_dtype)c->problem.dtype, a->v,
                        token * (a->v_stride ? a->v_stride : heads * d) + head * d + v);
        for (int64_t i = 0; i < d; i++) {
            next[i][v] = beta * k[i] * value;
            for (int64_t j = 0; j < d; j++)
                next[i][v] += ((i == j) - beta * k[i] * k[j]) * decay[j] * e->s[j][v];
        }
        e->o[v] = 0;
        for (int64_t i = 0; i < d; i++)
            e->o[v] += (double)a->scale * q[i] * next[i][v];
    }
    memcpy(e->s, next, sizeof next);
}

/* What the pool and the outputs must hold afterwards, in copies of them. */
struct expected {
    double *state;
    double *o;   /* NaN: as it was */
    bool *fresh; /* of the pool's elements: written */
};

static bool is_slot(const struct call *c, int64_t slot)
{
    return slot >= 0 && slot < c->args.num_slots && slot + 1 != c->args.null_slot;
}

static void expect_state(const struct call *c, int64_t slot, int64_t head,
                         const struct expectation *e, struct expected *x)
{
    const int64_t d = c->problem.head_dim;
    for (int64_t i = 0; i < d * d && is_slot(c, slot); i++) {
        x->state[state_at(c, slot, head, i / d, i % d)] = e->s[i / d][i % d];
        x->fresh[state_at(c, slot, head, i / d, i % d)] = true;
    }
}

static void expect_row(const struct call *c, int64_t b, struct expected *x)
{
    const gen_kda_decode_args *a = &c->args;
    const int64_t d = c->problem.head_dim, heads = c->problem.num_v_heads;
    const int64_t stride = a->o_stride ? a->o_stride : heads * d;
    const int64_t packed = a->write == GEN_KDA_DECODE_WRITE_EACH ? c->problem.num_tokens : 1;
    const int64_t columns = a->slots_stride ? a->slots_stride : a->slots_out ? 1 : packed;
    const int64_t column = a->accepted ? a->accepted[b] - INT64_C(1) : 0;
    int64_t first = b * c->problem.num_tokens, end = first + c->problem.num_tokens, slot = b;
    if (a->cu_seqlens) {
        first = a->cu_seqlens[b];
        end = a->cu_seqlens[b + 1];
        if (first < 0 || end < first || end > a->total_tokens ||
            end > first + c->problem.num_tokens)
            return;
    }
    if (a->slots)
        slot = column >= 0 && column < columns ? a->slots[b * columns + column] : -1;
    for (int64_t head = 0; head < heads; head++) {
        struct expectation *e = calloc(1, sizeof *e);
        assert_non_null(e);
        for (int64_t i = 0; i < d * d && is_slot(c, slot); i++)
            e->s[i / d][i % d] = state_get(c, state_at(c, slot, head, i / d, i % d));
        for (int64_t t = first; t < end; t++) {
            if (is_slot(c, slot))
                advance(c, t, head, e);
            for (int64_t v = 0; v < d && (is_slot(c, slot) || a->zero_padding); v++)
                x->o[t * stride + head * d + v] = e->o[v];
            if (!is_slot(c, slot))
                continue;
            const bool each = a->write == GEN_KDA_DECODE_WRITE_EACH;
            const int64_t out = a->slots_out_stride ? a->slots_out_stride : packed;
            int64_t to = each && a->slots ? a->slots[b * columns + t - first] : slot;
            if (a->slots_out)
                to = a->slots_out[b * out + (each ? t - first : 0)];
            if (each || (a->write == GEN_KDA_DECODE_WRITE_LAST && t == end - 1))
                expect_state(c, to, head, e, x);
        }
        free(e);
    }
}

/* Half a unit in the last place of the type that states are kept in, relative. */
static double state_unit(const struct call *c)
{
    return c->problem.state_dtype == GEN_STATE_FP32   ? 1e-6
           : c->problem.state_dtype == GEN_STATE_FP16 ? 0x1.001p-11
                                                      : 0x1.001p-8;
}

static void compare_states(const struct call *c, const struct expected *x)
{
    for (uint64_t i = 0; i < c->tensor[KDA_DECODE_STATE].count; i++) {
        const double found = state_get(c, (int64_t)i);
        const double difference = fabs(found - x->state[i]);
        const double least = c->problem.state_dtype == GEN_STATE_FP32 ? 1e-6 : 1e-7;
        if (x->fresh[i] ? !(difference <= fmax(least, state_unit(c) * fabs(x->state[i])))
                        : difference != 0)
            fail_msg("state[%llu] is %g, not %g", (unsigned long long)i, found, x->state[i]);
    }
}

/* Slots are distinct, so that the order of rows does not count. */
static void compare(struct call *c)
{
    const uint64_t states = c->tensor[KDA_DECODE_STATE].count;
    const uint64_t outputs = c->tensor[KDA_DECODE_O].count;
    const enum gen_dtype dtype = (enum gen_dtype)c->problem.dtype;
    struct expected x = {malloc(states * sizeof *x.state), malloc(outputs * sizeof *x.o),
                         calloc(states, sizeof *x.fresh)};
    uint16_t *before = malloc(outputs * sizeof *before);
    double *exact[GEN__MAX_TENSORS] = {NULL};
    exact[KDA_DECODE_O] = malloc(outputs * sizeof(double));
    assert_true(x.state && x.o && x.fresh && before && exact[KDA_DECODE_O]);
    for (uint64_t i = 0; i < states; i++)
        x.state[i] = state_get(c, (int64_t)i);
    memcpy(before, c->data[KDA_DECODE_O], outputs * sizeof *before);
    for (uint64_t i = 0; i < outputs; i++)
        x.o[i] = exact[KDA_DECODE_O][i] = NAN;
    for (int64_t b = 0; b < c->problem.batch; b++)
        expect_row(c, b, &x);
    assert_int_equal(family->exact(&c->plan, &c->args.base, exact), GEN_OK);

    compare_states(c, &x);
    for (uint64_t i = 0; i < outputs; i++) {
        const double found = element_get(dtype, c->data[KDA_DECODE_O], (int64_t)i);
        const double unit = dtype == GEN_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
        if (isnan(x.o[i])) {
            assert_true(isnan(exact[KDA_DECODE_O][i]));
            assert_int_equal(((uint16_t *)c->data[KDA_DECODE_O])[i], before[i]);
        } else if (!(fabs(exact[KDA_DECODE_O][i] - x.o[i]) < 1e-9 * fmax(1, fabs(x.o[i]))) ||
                   !(fabs(found - x.o[i]) <= unit * fabs(x.o[i]) + 1e-7)) {
            fail_msg("o[%llu] is %g (%g), not %g", (unsigned long long)i, found,
                     exact[KDA_DECODE_O][i], x.o[i]);
        }
    }
    free(x.state);
    free(x.o);
    free(x.fresh);
    free(before);
    free(exact[KDA_DECODE_O]);
}

static void every_form(void **state)
{
    (void)state;
    int tried = 0;
    for (int form = -1; form < (int)family->num_forms; form++)
        for (int32_t variant = 0; variant < 4; variant++) {
            struct call c;
            gen_kda_decode_problem p = kda_problem(5, variant % 2 ? 3 : 1, 1, 2, 64);
            p.state_layout = variant / 2;
            p.state_dtype = (form + variant + 1) % 3;
            if (variant == 1)
                p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
            if (variant == 2)
                p.dtype = p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP16;
            if (open_call(&c, p, form, variant == 3)) {
                compare(&c);
                tried++;
            }
            close_call(&c);
        }
    assert_true(tried > 100); /* few forms are not for every problem */
}

static void every_number_of_tokens(void **state)
{
    (void)state;
    for (int32_t tokens = 1; tokens <= 8; tokens++) {
        struct call c;
        gen_kda_decode_problem p = kda_problem(2, tokens, 2, 4, 128);
        p.state_layout = tokens % 2;
        p.state_dtype = tokens % 3;
        assert_true(open_call(&c, p, -1, false));
        compare(&c);
        close_call(&c);
    }
}

/* fp16 holds no more than 65504, NaN goes on, and a null slot keeps what it has. */
static void states_of_16_bits(void **state)
{
    (void)state;
    struct call c;
    gen_kda_decode_problem p = kda_problem(1, 1, 1, 1, 64);
    p.state_dtype = GEN_STATE_FP16;
    p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
    assert_true(open_call(&c, p, -1, false));
    for (uint32_t t = 0; t < KDA_DECODE_SLOTS; t++)
        if (c.data[t])
            memset(c.data[t], 0, c.tensor[t].count * element_size(c.tensor[t].dtype));
    c.args.qk_l2norm = 0;
    c.args.beta_form = GEN_KDA_BETA_GIVEN;
    *(float *)c.data[KDA_DECODE_BETA] = 1;
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_K], 3, 512);
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_V], 7, -512);
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_V], 8, 1);
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_V], 9, NAN);
    run(&c);
    const int32_t slot = *(int32_t *)c.data[KDA_DECODE_SLOTS];
    assert_true(state_get(&c, state_at(&c, slot, 0, 3, 7)) == -65504);
    assert_true(state_get(&c, state_at(&c, slot, 0, 3, 8)) == 512);
    assert_true(isnan(state_get(&c, state_at(&c, slot, 0, 3, 9))));
    c.args.null_slot = slot + 1;
    element_put(GEN_DTYPE_BF16, c.data[KDA_DECODE_V], 8, 2);
    run(&c);
    assert_true(state_get(&c, state_at(&c, slot, 0, 3, 8)) == 512);
    close_call(&c);
}

/* Steps with a ring, counters by kda_ring_advance, are steps without one: outputs, and the states
 * once the records are folded. Slots begin at different places, and one row flushes at times. */
static void replay_is_decode(void **state)
{
    (void)state;
    for (int32_t layout = 0; layout < 2; layout++) {
        struct call plain, ring;
        gen_kda_decode_problem p = kda_problem(3, 1, 1, 2, 64);
        p.state_layout = layout;
        p.gate_dtype = p.beta_dtype = GEN_DTYPE_FP32;
        assert_true(open_call(&plain, p, 9, false)); /* softplus, keys as they are: no rounding */
        p.ring_len = 5;
        p.ring_size = 7;
        assert_true(open_call(&ring, p, 9, false));
        memcpy(ring.data[KDA_DECODE_STATE], plain.data[KDA_DECODE_STATE],
               plain.tensor[KDA_DECODE_STATE].count * sizeof(float));
        int32_t *const fill_of = ring.data[KDA_DECODE_RING_FILL];
        const int32_t *const slots = ring.data[KDA_DECODE_SLOTS];
        uint8_t flush[3] = {0};
        ring.args.flush = flush;
        memset(fill_of, 0, ring.tensor[KDA_DECODE_RING_FILL].count * sizeof(int32_t));
        for (int step = 0; step < 23; step++) {
            flush[1] = step % 4 == 2;
            for (uint32_t t = KDA_DECODE_Q; t <= KDA_DECODE_BETA; t++) {
                fill(&plain, t, (uint64_t)(100 * step) + t);
                fill(&ring, t, (uint64_t)(100 * step) + t);
            }
            run(&plain);
            run(&ring);
            for (uint64_t i = 0; i < plain.tensor[KDA_DECODE_O].count; i++) {
                const double a = element_get(GEN_DTYPE_BF16, plain.data[KDA_DECODE_O], (int64_t)i);
                const double b = element_get(GEN_DTYPE_BF16, ring.data[KDA_DECODE_O], (int64_t)i);
                assert_true(fabs(a - b) <= 0x1p-7 * fabs(a) + 1e-5);
            }
            for (int b = 0; b < 3; b++) /* the rule of kda_ring_advance */
                fill_of[slots[b]] = fill_of[slots[b]] >= 4 || flush[b] ? 0 : fill_of[slots[b]] + 1;
        }
        assert_true(fill_of[slots[0]] == 3 && fill_of[slots[1]] == 0);
        ring.plan.dims[KDA_DECODE_TOKENS] = 0;
        run(&ring);
        for (int b = 0; b < 3; b++)
            for (int64_t i = 0; i < 2 * 64 * 64; i++) {
                const int64_t at = slots[b] * INT64_C(2) * 64 * 64 + i;
                assert_true(fabs(state_get(&plain, at) - state_get(&ring, at)) < 1e-5);
            }
        close_call(&plain);
        ring.args.flush = NULL;
        close_call(&ring);
    }
}

/* The fills that the verifier asks for name every slot once and hold what they promise. */
static void fills(void **state)
{
    (void)state;
    struct call c;
    gen_kda_decode_problem p = kda_problem(40, 4, 1, 1, 64);
    assert_true(open_call(&c, p, -1, true));
    const int32_t *accepted = c.data[KDA_DECODE_ACCEPTED];
    int good = 0;
    for (int b = 0; b < 40; b++)
        good += accepted[b] >= 1 && accepted[b] <= 4;
    assert_int_equal(good, 27);
    close_call(&c);
    for (uint32_t form = 0; form < family->num_forms; form++) {
        if (strcmp(family->forms[form], "ragged") != 0)
            continue;
        assert_true(open_call(&c, p, (int)form, false));
        const int32_t *cu_seqlens = c.data[KDA_DECODE_CU_SEQLENS];
        assert_int_equal(cu_seqlens[1], 4);
        assert_int_equal(cu_seqlens[2], 4);
        for (int b = 0; b < 40; b++)
            assert_true(cu_seqlens[b + 1] >= cu_seqlens[b] &&
                        cu_seqlens[b + 1] <= cu_seqlens[b] + 4);
        assert_true(cu_seqlens[40] <= c.args.total_tokens);
        close_call(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_tokens_by_hand),      cmocka_unit_test(gates_by_hand),
        cmocka_unit_test(betas_and_norms_by_hand), cmocka_unit_test(every_form),
        cmocka_unit_test(every_number_of_tokens),  cmocka_unit_test(states_of_16_bits),
        cmocka_unit_test(replay_is_decode),        cmocka_unit_test(fills),
    };
    return cmocka_run_group_tests_name("kda_decode reference", tests, NULL, NULL);
}
