/*
 * The reference of attn_fwd against values computed by hand: weights that are
 * small whole numbers, so that every result is a fraction that can be written down.
 */
#include "families/attn_fwd/attn_fwd.h"
#include "reference/half.h"
#include "test.h"

#include <math.h>
#include <string.h>

extern const struct gen__family gen__family_attn_fwd;

enum { DIM = 64, ROWS = 8, HEADS = 4 };

/* Queries are 1 in column 0, so that score j is column 0 of key j; value j has
 * its number in columns 1 and 63. */
struct small {
    gen_attn_fwd_problem problem;
    gen_attn_fwd_args args;
    _Alignas(16) uint16_t q[ROWS * HEADS * DIM], k[ROWS * HEADS * DIM], v[ROWS * HEADS * DIM];
    _Alignas(16) uint16_t o[ROWS * HEADS * DIM];
    float lse[ROWS * HEADS];
    int32_t cu_q[4], cu_k[4];
};

static void make(struct small *s, int32_t heads, int32_t q_len, int32_t kv_len)
{
    memset(s, 0, sizeof *s);
    s->problem = (gen_attn_fwd_problem){.base = {sizeof s->problem, GEN_ATTN_FWD, 0, 0},
                                        .batch = 1,
                                        .num_q_heads = heads,
                                        .num_kv_heads = heads,
                                        .q_len = q_len,
                                        .kv_len = kv_len,
                                        .head_dim = DIM,
                                        .dtype = GEN_DTYPE_FP16};
    s->args = (gen_attn_fwd_args){.base = {sizeof s->args, GEN_ATTN_FWD},
                                  .q = s->q,
                                  .k = s->k,
                                  .v = s->v,
                                  .o = s->o,
                                  .lse = s->lse,
                                  .cu_seqlens_q = s->cu_q,
                                  .cu_seqlens_k = s->cu_k,
                                  .scale = 1.0f};
    for (int i = 0; i < ROWS * HEADS; i++)
        s->q[i * DIM] = gen__fp16_from_double(1);
    memset(s->o, 0xff, sizeof s->o);
    memset(s->lse, 0xff, sizeof s->lse);
}

/* The key at row `place` of k has this weight e^s, its value this number. */
static void key(struct small *s, int place, double weight, double number)
{
    s->k[place * DIM] = gen__fp16_from_double(log(weight));
    s->v[place * DIM + 1] = s->v[place * DIM + 63] = gen__fp16_from_double(number);
}

static void run(struct small *s)
{
    gen_plan plan = {0};
    struct gen__key found;
    assert_int_equal(gen__family_attn_fwd.check(&s->problem.base, &found), GEN_OK);
    gen__family_attn_fwd.plan(&s->problem.base, NULL, NULL, &plan);
    assert_int_equal(gen__family_attn_fwd.params(&plan, 0, &s->args.base, NULL, NULL), GEN_OK);
    assert_int_equal(gen__family_attn_fwd.reference(&plan, &s->args.base), GEN_OK);
}

/* Row `place` of o has this number in columns 1 and 63, 0 in the others; fp16 rounds the logarithms
 * of the weights. */
static void expect(const struct small *s, int place, double number)
{
    for (int d = 0; d < DIM; d++) {
        const double x = gen__fp16_to_double(s->o[place * DIM + d]);
        const double wanted = d == 1 || d == 63 ? number : 0;
        if (!(fabs(x - wanted) <= 2e-3 * fmax(1, fabs(wanted))))
            fail_msg("row %d column %d is %g, not %g", place, d, x, wanted);
    }
}

static void expect_lse(const struct small *s, int at, double sum)
{
    const double x = (double)s->lse[at];
    if (!(fabs(x - log(sum)) <= 2e-3) && !(sum == 0 && x == -INFINITY))
        fail_msg("lse[%d] is %g, not %g", at, x, log(sum));
}

static void untouched(const struct small *s, int place)
{
    for (int d = 0; d < DIM; d++)
        assert_int_equal(s->o[place * DIM + d], 0xffff);
}

static void weighted_average(void **state)
{
    (void)state;
    struct small s;
    make(&s, 1, 1, 3);
    key(&s, 0, 1, 6);
    key(&s, 1, 2, -3);
    key(&s, 2, 4, 10);
    key(&s, 3, 1e4, NAN); /* behind the end */
    run(&s);
    expect(&s, 0, (1 * 6 - 2 * 3 + 4 * 10) / 7.0);
    expect_lse(&s, 0, 7);
    untouched(&s, 1);
    s.args.scale = 2.0f; /* squares the weights */
    run(&s);
    expect(&s, 0, (1 * 6 - 4 * 3 + 16 * 10) / 21.0);
    expect_lse(&s, 0, 21);
    s.args.lse = NULL;
    run(&s);
    expect_lse(&s, 0, 21);
}

static void causal_is_aligned_at_the_bottom_right(void **state)
{
    (void)state;
    struct small s;
    make(&s, 1, 2, 3);
    s.problem.causal = 1;
    key(&s, 0, 1, 4);
    key(&s, 1, 3, 8);
    key(&s, 2, 4, 16);
    run(&s);
    expect(&s, 0, (4 + 3 * 8) / 4.0); /* row 0 sees two keys, row 1 all */
    expect(&s, 1, (4 + 3 * 8 + 4 * 16) / 8.0);
    expect_lse(&s, 0, 4);
    expect_lse(&s, 1, 8);
    make(&s, 1, 3, 2); /* row 0 sees none */
    s.problem.causal = 1;
    key(&s, 0, 1, 4);
    key(&s, 1, 3, 8);
    run(&s);
    expect(&s, 0, 0);
    expect_lse(&s, 0, 0);
    expect(&s, 1, 4);
    expect(&s, 2, 7);
}

static void windows(void **state)
{
    (void)state;
    struct small s;
    make(&s, 1, 4, 4);
    s.problem.left_window = 2;
    s.problem.right_window = 1;
    for (int j = 0; j < 4; j++)
        key(&s, j, 1, 1 << j);
    run(&s);
    expect(&s, 0, 1);
    expect(&s, 1, 1.5);
    expect(&s, 2, 3);
    expect(&s, 3, 6);
    s.problem.left_window = 1;
    s.problem.right_window = 3;
    run(&s);
    expect(&s, 0, 7 / 3.0);
    expect(&s, 2, 6);
    expect(&s, 3, 8);
    s.problem.left_window = 0;
    s.problem.right_window = 2;
    run(&s);
    expect(&s, 0, 1.5);
    expect(&s, 3, 15 / 4.0);
    expect_lse(&s, 2, 4);
    s.problem.q_len = 2; /* i' = i + 2 */
    s.problem.left_window = 2;
    s.problem.right_window = 0;
    run(&s);
    expect(&s, 0, 14 / 3.0);
    expect(&s, 1, 6);
}

static void softcap_bends_scores(void **state)
{
    (void)state;
    struct small s;
    make(&s, 1, 1, 2);
    s.problem.softcap = 1;
    s.args.softcap = 2;
    s.k[0] = gen__fp16_from_double(100); /* far beyond the cap: 2 */
    s.v[1] = s.v[63] = gen__fp16_from_double(1);
    run(&s);
    expect(&s, 0, exp(2) / (exp(2) + 1));
    s.k[0] = gen__fp16_from_double(1);
    run(&s);
    const double bent = exp(2 * tanh(0.5));
    expect(&s, 0, bent / (bent + 1));
    expect_lse(&s, 0, bent + 1);
}

/* Heads share keys; with the heads first, and gaps. */
static void heads_and_strides(void **state)
{
    (void)state;
    struct small s;
    make(&s, 4, 1, 2);
    s.problem.num_kv_heads = 2;
    key(&s, 0, 1, 1); /* rows of k: key 0 of heads 0 and 1, key 1 of them */
    key(&s, 1, 1, 10);
    key(&s, 2, 3, 2);
    key(&s, 3, 1, 20);
    run(&s);
    expect(&s, 0, 7 / 4.0);
    expect(&s, 1, 7 / 4.0);
    expect(&s, 2, 15);
    expect(&s, 3, 15);
    s.args.k_head_stride = s.args.v_head_stride = 2 * DIM; /* key 0 and 1 of head 0, then head 1 */
    s.args.k_row_stride = s.args.v_row_stride = DIM;
    s.args.o_head_stride = 2 * DIM;
    s.args.lse_head_stride = 3;
    run(&s);
    expect(&s, 0, 5.5);
    expect(&s, 2, 5.5);
    expect(&s, 4, (3 * 2 + 20) / 4.0);
    expect(&s, 6, (3 * 2 + 20) / 4.0);
    expect_lse(&s, 3, 2);
    expect_lse(&s, 9, 4);
}

static void requests_one_behind_the_other(void **state)
{
    (void)state;
    struct small s;
    make(&s, 1, 2, 2);
    s.problem.batch = 3;
    s.problem.varlen = s.problem.causal = 1;
    s.args.total_q = 4;
    s.args.total_k = 4;
    const int32_t cu_q[4] = {0, 2, 3, 4}, cu_k[4] = {0, 1, 1, 4}; /* the third has three keys */
    memcpy(s.cu_q, cu_q, sizeof cu_q);
    memcpy(s.cu_k, cu_k, sizeof cu_k);
    key(&s, 0, 1, 5);
    key(&s, 1, 1, 2);
    key(&s, 2, 3, 6);
    key(&s, 3, 1, 1000); /* kv_len is 2: cut off */
    run(&s);
    expect(&s, 0, 0); /* two queries, one key: row 0 sees none */
    expect(&s, 1, 5);
    expect(&s, 2, 0); /* no key at all */
    expect(&s, 3, 5);
    expect_lse(&s, 3, 4);
    untouched(&s, 4);
    /* Lists beyond the tensors are cut to them. */
    s.cu_q[3] = 1000;
    s.cu_k[2] = -7; /* as 0: the third request's keys are the first two */
    run(&s);
    expect(&s, 3, 3.5);
    untouched(&s, 4);
}

static void exact_is_what_is_rounded(void **state)
{
    (void)state;
    struct small s;
    static double exact[ROWS * HEADS * DIM];
    double *const list[ATTN_FWD_NUM_TENSORS] = {[ATTN_FWD_O] = exact};
    gen_plan plan = {0};
    make(&s, 1, 1, 2);
    key(&s, 0, 1, 1);
    key(&s, 1, 2, 2);
    gen__family_attn_fwd.plan(&s.problem.base, NULL, NULL, &plan);
    assert_int_equal(gen__family_attn_fwd.exact(&plan, &s.args.base, list), GEN_OK);
    const double weight = exp(gen__fp16_to_double(s.k[DIM]));
    assert_true(fabs(exact[1] - (1 + 2 * weight) / (1 + weight)) < 1e-14);
    assert_int_equal(s.o[1], gen__fp16_from_double(exact[1]));
}

/* Descales of a request and a key head multiply its scores and its values; o is fp16 or bf16. */
static void eight_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct small s;
        make(&s, 1, 1, 2);
        const bool e4m3 = i & 1, fp16 = i & 2;
        const float q_descale = 0.5f, k_descale = 4.0f, v_descale = -3.0f;
        uint8_t *const q = (uint8_t *)s.q, *const k = (uint8_t *)s.k, *const v = (uint8_t *)s.v;
        uint8_t (*const code)(double) = e4m3 ? gen__e4m3_from_double : gen__e5m2_from_double;
        s.problem.dtype = e4m3 ? GEN_DTYPE_E4M3 : GEN_DTYPE_E5M2;
        s.problem.o_dtype = fp16 ? GEN_DTYPE_FP16 : GEN_DTYPE_BF16;
        memset(s.q, 0, sizeof s.q);
        q[0] = code(1.5);
        k[DIM] = code(-2); /* scores 0 and scale 1 * 0.5 * 4 * 1.5 * -2 = -6 */
        v[1] = v[63] = code(10);
        v[DIM + 1] = v[DIM + 63] = code(-7);
        s.args.q_descale = &q_descale;
        s.args.k_descale = &k_descale;
        s.args.v_descale = &v_descale;
        run(&s);
        const double sum = 1 + exp(-6), x = -3 * (10 - 7 * exp(-6)) / sum;
        if (fp16)
            expect(&s, 0, x);
        else
            assert_true(fabs(gen__bf16_to_double(s.o[1]) - x) <= 0x1p-8 * fabs(x));
        expect_lse(&s, 0, sum);
        untouched(&s, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weighted_average),
        cmocka_unit_test(causal_is_aligned_at_the_bottom_right),
        cmocka_unit_test(windows),
        cmocka_unit_test(softcap_bends_scores),
        cmocka_unit_test(heads_and_strides),
        cmocka_unit_test(requests_one_behind_the_other),
        cmocka_unit_test(exact_is_what_is_rounded),
        cmocka_unit_test(eight_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
