/*
 * The reference of mla_decode against values computed by hand, and against the
 * definition written down a second time: no blocks of rows, no running maximum,
 * strides and pages looked up anew.
 */
#include "mla.h"

#include <stdlib.h>

/* ---- by hand ----------------------------------------------------------- */

/* One request, one head; pages of two rows; q = 1 in column 0, 2 in the first
 * rotary column. */
struct small {
    gen_mla_decode_problem problem;
    _Alignas(16) uint16_t q_nope[4 * 512], q_pe[4 * 64], ckv[6 * 512], kpe[6 * 64], o[4 * 512];
    float lse[4];
    int32_t kv_len, pages[4];
    gen_mla_decode_args args;
};

static void small_make(struct small *s, int32_t kv_len, int32_t q_len)
{
    memset(s, 0, sizeof *s);
    s->problem = mla_problem(1, 1, kv_len);
    s->problem.max_kv_len = 6;
    s->problem.q_len = q_len;
    s->problem.page_size = 2;
    s->kv_len = kv_len;
    s->pages[0] = 1;
    s->pages[1] = 2;
    s->pages[2] = 0;
    memset(s->o, 0xff, sizeof s->o);
    memset(s->lse, 0xff, sizeof s->lse);
    for (int t = 0; t < 4; t++) {
        s->q_nope[t * 512] = gen__bf16_from_double(1);
        s->q_pe[t * 64] = gen__bf16_from_double(2);
    }
    s->args = (gen_mla_decode_args){.base = {sizeof s->args, GEN_MLA_DECODE},
                                    .q_nope = s->q_nope,
                                    .q_pe = s->q_pe,
                                    .ckv = s->ckv,
                                    .kpe = s->kpe,
                                    .o = s->o,
                                    .lse = s->lse,
                                    .kv_len = &s->kv_len,
                                    .page_indices = s->pages,
                                    .num_pages = 3,
                                    .lse_base_2 = 1,
                                    .scale = 0.5f};
}

/* Row j of the cache (by place) has c in column 0, v in column 511, r in its first
 * rotary column. */
static void small_row(struct small *s, int place, double c, double v, double r)
{
    s->ckv[place * 512] = gen__bf16_from_double(c);
    s->ckv[place * 512 + 511] = gen__bf16_from_double(v);
    s->kpe[place * 64] = gen__bf16_from_double(r);
}

static void small_run(struct small *s)
{
    gen_plan plan = {0};
    gen__family_mla_decode.plan(&s->problem.base, &h200, NULL, &plan);
    assert_int_equal(gen__family_mla_decode.params(&plan, 0, &s->args.base, NULL, NULL), GEN_OK);
    assert_int_equal(gen__family_mla_decode.reference(&plan, &s->args.base), GEN_OK);
}

static double out(const struct small *s, int token, int column)
{
    return gen__bf16_to_double(s->o[token * 512 + column]);
}

static void assert_close(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * fmax(1, fabs(b))))
        fail_msg("%.9g is not %.9g", a, b);
}

static void one_row_is_its_own_average(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 1, 1);
    small_row(&s, 2, 3, -5, 0.5); /* row 0 of page 1 */
    small_run(&s);
    assert_true(out(&s, 0, 0) == 3 && out(&s, 0, 511) == -5 && out(&s, 0, 1) == 0);
    /* s = 0.5 (1 * 3 + 2 * 0.5) = 2; in base 2: 2 / ln 2 */
    assert_close((double)s.lse[0], 2 / log(2), 1e-7);
    s.args.lse_base_2 = 0;
    small_run(&s);
    assert_true(s.lse[0] == 2);
}

static void three_rows_over_two_pages(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 3, 1);
    small_row(&s, 2, 2 * log(2), 1, 0);    /* row 0: s = ln 2, weight 2 */
    small_row(&s, 3, 0, 2, log(4));        /* row 1: s = ln 4, weight 4 */
    small_row(&s, 4, 2 * log(2), 10, 0);   /* row 2: page 2, weight 2 */
    small_row(&s, 5, 1000, NAN, INFINITY); /* behind the end */
    small_row(&s, 0, NAN, NAN, NAN);       /* a page of no request */
    small_run(&s);
    /* bf16 holds the logarithms to three digits alone. */
    assert_close(out(&s, 0, 511), (2 * 1 + 4 * 2 + 2 * 10) / 8.0, 1e-2);
    assert_close((double)s.lse[0], 3, 1e-2);
}

static void no_row(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 0, 1);
    small_row(&s, 2, NAN, NAN, NAN);
    for (int32_t length = 0; length > -10; length -= 9) {
        s.kv_len = length;
        memset(s.o, 0xff, sizeof s.o);
        s.lse[0] = 7;
        small_run(&s);
        for (int i = 0; i < 512; i++)
            assert_int_equal(s.o[i], 0);
        assert_true(s.lse[0] == -INFINITY);
    }
}

static void causal_rows_are_right_aligned(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 2, 4); /* four tokens, two rows: the first two see nothing */
    s.problem.causal = 1;
    for (int place = 2; place < 4; place++)
        small_row(&s, place, 0, place, 0);
    small_run(&s);
    for (int t = 0; t < 2; t++) {
        assert_true(out(&s, t, 511) == 0);
        assert_true(s.lse[t] == -INFINITY);
    }
    assert_true(out(&s, 2, 511) == 2 && s.lse[2] == 0);   /* row 0 alone */
    assert_true(out(&s, 3, 511) == 2.5 && s.lse[3] == 1); /* both */
    s.problem.causal = 0;
    small_run(&s);
    assert_true(out(&s, 0, 511) == 2.5 && s.lse[0] == 1);
}

static void lengths_are_cut_to_the_greatest(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 4, 1);
    s.problem.max_kv_len = 3;
    s.problem.kv_len = 3;
    for (int place = 2; place < 6; place++)
        small_row(&s, place, 0, place == 5 ? 1000 : 1, 0);
    small_run(&s);
    assert_true(out(&s, 0, 511) == 1);
    assert_close((double)s.lse[0], log2(3), 1e-7);
}

static void pages_that_are_not_there_read_as_zeros(void **state)
{
    (void)state;
    static const int32_t bad[] = {3, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct small s;
        small_make(&s, 3, 1);
        s.pages[1] = bad[i];
        small_row(&s, 2, 0, 3, 0);
        small_row(&s, 3, 0, 6, 0);
        small_run(&s);
        assert_true(out(&s, 0, 511) == 3); /* (3 + 6 + 0) / 3 */
        assert_close((double)s.lse[0], log2(3), 1e-7);
    }
}

static void without_rotary_part(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 1, 1);
    s.problem.rope_dim = 0;
    s.args.q_pe = s.args.kpe = NULL;
    small_row(&s, 2, 3, 4, 100);
    small_run(&s);
    assert_true(out(&s, 0, 511) == 4);
    s.args.lse_base_2 = 0;
    small_run(&s);
    assert_true(s.lse[0] == 1.5f);
}

/* Logits that overflow any exponential. */
static void extreme_logits(void **state)
{
    (void)state;
    struct small s;
    small_make(&s, 4, 1);
    for (int place = 2; place < 6; place++)
        small_row(&s, place, -1e6, 1, 0);
    small_run(&s);
    assert_true(out(&s, 0, 511) == 1);
    const double logit = 0.5 * gen__bf16_to_double(gen__bf16_from_double(-1e6));
    assert_close((double)s.lse[0], logit / log(2) + 2, 1e-6);
}

/* ---- against the definition --------------------------------------------- */

struct naive {
    const gen_mla_decode_problem *p;
    const gen_mla_decode_args *a;
    enum gen_dtype cache;
};

static int64_t packed_or(int64_t stride, int64_t packed)
{
    return stride ? stride : packed;
}

/* Element i of [latent, rotary key] of row j of request b. */
static double naive_key(const struct naive *n, int64_t b, int64_t j, int64_t i)
{
    const gen_mla_decode_args *a = n->a;
    const int64_t size = n->p->page_size, entries = (n->p->max_kv_len + size - 1) / size;
    const int64_t list =
        a->page_indptr ? a->page_indptr[b] : b * packed_or(a->page_table_stride, entries);
    const int64_t page = a->page_indices[list + j / size];
    const bool latent = i < 512;
    if (page < 0 || page >= a->num_pages)
        return 0;
    const int64_t row_stride =
        latent ? packed_or(a->ckv_row_stride, 512) : packed_or(a->kpe_row_stride, 64);
    const int64_t page_stride =
        packed_or(latent ? a->ckv_page_stride : a->kpe_page_stride, size * row_stride);
    const int64_t at = page * page_stride + j % size * row_stride + (latent ? i : i - 512);
    const double scale = n->cache != GEN_DTYPE_E4M3 ? 1
                         : latent                   ? (double)a->ckv_scale
                                                    : (double)a->kpe_scale;
    return scale * element_get(n->cache, latent ? a->ckv : a->kpe, at);
}

static double naive_query(const struct naive *n, int64_t token, int64_t h, int64_t i)
{
    const gen_mla_decode_args *a = n->a;
    const bool bytes = n->p->cache == GEN_MLA_CACHE_E4M3_Q, latent = i < 512;
    const enum gen_dtype dtype = bytes ? GEN_DTYPE_E4M3 : (enum gen_dtype)n->p->dtype;
    const double scale = bytes ? (double)a->q_scale : 1;
    const int64_t head =
        latent ? packed_or(a->q_nope_head_stride, 512) : packed_or(a->q_pe_head_stride, 64);
    const int64_t step =
        packed_or(latent ? a->q_nope_token_stride : a->q_pe_token_stride, n->p->num_heads * head);
    const int64_t at = token * step + h * head + (latent ? i : i - 512);
    return scale * element_get(dtype, latent ? a->q_nope : a->q_pe, at);
}

/* The outputs of one row: o[512] and the natural log-sum-exp. */
static void naive_row(const struct naive *n, int64_t b, int64_t t, int64_t tokens, int64_t token,
                      int64_t h, double *o, double *lse)
{
    const int64_t width = 512 + n->p->rope_dim;
    int64_t length = n->a->kv_len[b];
    length = length < 0 ? 0 : length > n->p->max_kv_len ? n->p->max_kv_len : length;
    double *s = malloc((size_t)(length + 1) * sizeof *s), max = -INFINITY, sum = 0;
    assert_non_null(s);
    for (int64_t j = 0; j < length; j++) {
        s[j] = 0;
        for (int64_t i = 0; i < width; i++)
            s[j] += naive_query(n, token, h, i) * naive_key(n, b, j, i);
        s[j] *= (double)n->a->scale;
        if (n->p->causal && j > length - tokens + t)
            s[j] = -INFINITY;
        max = s[j] > max ? s[j] : max;
    }
    memset(o, 0, 512 * sizeof *o);
    for (int64_t j = 0; j < length && max > -INFINITY; j++) {
        const double p = exp(s[j] - max);
        sum += p;
        for (int64_t i = 0; p > 0 && i < 512; i++)
            o[i] += p * naive_key(n, b, j, i);
    }
    for (int64_t i = 0; i < 512 && sum > 0; i++)
        o[i] /= sum;
    *lse = sum > 0 ? max + log(sum) : -INFINITY;
    free(s);
}

/* Exact outputs, rounded ones and the log-sum-exp of a row are the definition's. */
static void check_row(const struct naive *n, const double *exact, int64_t at, int64_t lse_at,
                      const double *o, double lse)
{
    const enum gen_dtype dtype = (enum gen_dtype)n->p->dtype;
    for (int64_t i = 0; i < 512; i++) {
        if (!(fabs(exact[at + i] - o[i]) <= 1e-11))
            fail_msg("o[%lld]: %.15g is not %.15g", (long long)(at + i), exact[at + i], o[i]);
        const uint16_t rounded = dtype == GEN_DTYPE_FP16 ? gen__fp16_from_double(exact[at + i])
                                                         : gen__bf16_from_double(exact[at + i]);
        assert_int_equal(((const uint16_t *)n->a->o)[at + i], rounded);
    }
    if (!n->a->lse)
        return;
    const double want = n->a->lse_base_2 ? lse / log(2) : lse;
    const double got = (double)n->a->lse[lse_at];
    if (!(got == want || fabs(got - want) <= 1e-6 * fmax(1, fabs(want))))
        fail_msg("lse[%lld]: %.9g is not %.9g", (long long)lse_at, got, want);
}

static void compare(const struct mla_tensors *m, const double *exact)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)m->problem;
    const gen_mla_decode_args *a = &m->args.decode;
    const struct naive n = {p, a, m->tensor[MLA_DECODE_CKV].dtype};
    const int64_t o_head = packed_or(a->o_head_stride, 512);
    const int64_t o_token = packed_or(a->o_token_stride, p->num_heads * o_head);
    const int64_t lse_head = packed_or(a->lse_head_stride, 1);
    const int64_t lse_token = packed_or(a->lse_token_stride, p->num_heads * lse_head);
    uint64_t written = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t first = a->q_indptr ? a->q_indptr[b] : b * p->q_len;
        const int64_t tokens = a->q_indptr ? a->q_indptr[b + 1] - first : p->q_len;
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t h = 0; h < p->num_heads; h++) {
                double o[512], lse;
                naive_row(&n, b, t, tokens, first + t, h, o, &lse);
                check_row(&n, exact, (first + t) * o_token + h * o_head,
                          (first + t) * lse_token + h * lse_head, o, lse);
                written += 512;
            }
        }
    }
    /* Nothing else was: the poison is NaN. */
    const struct gen__tensor *o = &m->tensor[MLA_DECODE_O];
    uint64_t found = 0;
    for (uint64_t i = 0; i < o->count; i++)
        found += isnan(element_get(o->dtype, m->data[MLA_DECODE_O], (int64_t)i)) ? 0 : 1;
    assert_int_equal(found, written);
}

static void run_and_compare(const gen_mla_decode_problem *p, int form,
                            struct gen__fill_options options)
{
    struct mla_tensors m;
    struct gen__key key;
    double *exact[MLA_DECODE_NUM_TENSORS] = {NULL};
    assert_int_equal(gen__family_mla_decode.check(&p->base, &key), GEN_OK);
    if (!mla_tensors_make(&m, &gen__family_mla_decode, &p->base, form, options))
        return;
    exact[MLA_DECODE_O] = calloc((size_t)m.tensor[MLA_DECODE_O].count + 1, sizeof(double));
    assert_non_null(exact[MLA_DECODE_O]);
    const gen_plan plan = mla_cpu_plan(&m);
    assert_int_equal(gen__family_mla_decode.exact(&plan, &m.args.base, exact), GEN_OK);
    compare(&m, exact[MLA_DECODE_O]);
    free(exact[MLA_DECODE_O]);
    mla_tensors_free(&m);
}

static int32_t pick(uint64_t *state, const int32_t *values, size_t count)
{
    return values[random_bits(state) % count];
}
#define PICK(state, ...)                        \
    pick(state, (const int32_t[]){__VA_ARGS__}, \
         sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* Every form, with NaN where no kernel may read and pages that are not there. */
static void random_problems_against_the_definition(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int form = -1; form < MLA_DECODE_NUM_FORMS; form++) {
        for (int i = 0; i < 6; i++) {
            gen_mla_decode_problem p = mla_problem(PICK(&seed, 1, 2, 3, 5), PICK(&seed, 1, 3, 8),
                                                   PICK(&seed, 0, 1, 17, 63, 64, 65, 140));
            p.q_len = PICK(&seed, 1, 2, 4);
            p.max_kv_len = PICK(&seed, 0, 1) ? p.max_kv_len : p.kv_len + 30;
            p.page_size = PICK(&seed, 1, 7, 16, 64, 128);
            p.rope_dim = PICK(&seed, 0, 64);
            p.dtype = PICK(&seed, GEN_DTYPE_BF16, GEN_DTYPE_FP16);
            p.cache = PICK(&seed, GEN_MLA_CACHE_SAME, GEN_MLA_CACHE_E4M3, GEN_MLA_CACHE_E4M3_Q);
            p.causal = PICK(&seed, 0, 1);
            const struct gen__fill_options options = {.seed = seed,
                                                      .padding = random_bits(&seed) & 1,
                                                      .non_finite = random_bits(&seed) & 1,
                                                      .ordered = random_bits(&seed) & 1};
            run_and_compare(&p, form, options);
        }
    }
}

/* Tokens numbered backwards, and more of them than q_len: the rest is left alone. */
static void odd_token_numbers(void **state)
{
    (void)state;
    struct small s;
    const int32_t indptr[] = {3, 1};
    const int32_t long_one[] = {1, 4};
    small_make(&s, 2, 2);
    s.args.q_indptr = indptr;
    small_run(&s);
    assert_true(isnan(out(&s, 0, 0)) && isnan(out(&s, 3, 0)));
    s.args.q_indptr = long_one;
    small_run(&s);
    assert_true(isnan(out(&s, 0, 0)) && isnan(out(&s, 3, 0)));
    assert_true(out(&s, 1, 0) == 0 && out(&s, 2, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_row_is_its_own_average),
        cmocka_unit_test(three_rows_over_two_pages),
        cmocka_unit_test(no_row),
        cmocka_unit_test(causal_rows_are_right_aligned),
        cmocka_unit_test(lengths_are_cut_to_the_greatest),
        cmocka_unit_test(pages_that_are_not_there_read_as_zeros),
        cmocka_unit_test(without_rotary_part),
        cmocka_unit_test(extreme_logits),
        cmocka_unit_test(odd_token_numbers),
        cmocka_unit_test(random_problems_against_the_definition),
    };
    return cmocka_run_group_tests_name("mla_decode reference", tests, NULL, NULL);
}
