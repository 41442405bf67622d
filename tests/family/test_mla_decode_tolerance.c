/*
 * The tolerances of mla_decode are what a plain kernel needs: one that computes in
 * fp32, rounds the probabilities to 16 bits before it multiplies the latents, and
 * rounds the output. Its errors are counted here, on problems as the verifier's.
 */
#include "mla.h"

/* Which probabilities the divisor adds up. */
enum sums { UNROUNDED, ROUNDED };

static double rounded(enum gen_dtype dtype, double x)
{
    return dtype == GEN_DTYPE_FP16 ? gen__fp16_to_double(gen__fp16_from_double(x))
                                   : gen__bf16_to_double(gen__bf16_from_double(x));
}

/* Row j of the default form's joint cache. */
static int64_t place_of(const gen_mla_decode_problem *p, const gen_mla_decode_args *a, int64_t b,
                        int64_t j)
{
    const int64_t page = a->page_indices[b * a->page_table_stride + j / p->page_size];
    return page * a->ckv_page_stride + j % p->page_size * a->ckv_row_stride;
}

/* One row the plain way, in tiles of 64; returns the base-2 log-sum-exp. */
static double plain_row(const struct mla_tensors *m, int64_t b, int64_t h, enum sums sums,
                        double *o)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)m->problem;
    const gen_mla_decode_args *a = &m->args.decode;
    const enum gen_dtype dtype = (enum gen_dtype)p->dtype;
    const float scale = (float)((double)a->scale / log(2));
    float max = -INFINITY, sum = 0, acc[512] = {0};
    for (int64_t first = 0; first < a->kv_len[b]; first += 64) {
        float s[64], top = max;
        const int64_t count = a->kv_len[b] - first < 64 ? a->kv_len[b] - first : 64;
        for (int64_t j = 0; j < count; j++) {
            const int64_t row = place_of(p, a, b, first + j);
            s[j] = 0;
            for (int64_t i = 0; i < 576; i++)
                s[j] +=
                    (float)(element_get(dtype, i < 512 ? a->q_nope : a->q_pe,
                                        (int64_t)((b * p->num_heads + h) * (i < 512 ? 512 : 64) +
                                                  (i < 512 ? i : i - 512))) *
                            element_get(dtype, a->ckv, row + i));
            s[j] *= scale;
            top = s[j] > top ? s[j] : top;
        }
        const float factor = max == -INFINITY ? 0 : exp2f(max - top);
        max = top;
        sum *= factor;
        for (int i = 0; i < 512; i++)
            acc[i] *= factor;
        for (int64_t j = 0; j < count; j++) {
            const float x = exp2f(s[j] - max), r = (float)rounded(dtype, (double)x);
            const int64_t row = place_of(p, a, b, first + j);
            sum += sums == ROUNDED ? r : x;
            for (int64_t i = 0; i < 512; i++)
                acc[i] += r * (float)element_get(dtype, a->ckv, row + i);
        }
    }
    for (int i = 0; i < 512; i++)
        o[i] = rounded(dtype, (double)(acc[i] / sum));
    return (double)max + log2((double)sum);
}

struct errors {
    double whole, row, element, lse; /* relative; relative to max(rms of the row, size); absolute */
};

static struct errors errors_of(enum gen_dtype dtype, int32_t kv_len, enum sums sums)
{
    gen_mla_decode_problem p = mla_problem(4, 8, kv_len);
    struct mla_tensors m;
    struct errors e = {0};
    double *exact[MLA_DECODE_NUM_TENSORS] = {NULL}, difference = 0, reference = 0;
    p.dtype = (int32_t)dtype;
    assert_true(mla_tensors_make(&m, &gen__family_mla_decode, &p.base, -1,
                                 (struct gen__fill_options){.seed = (uint64_t)kv_len}));
    exact[MLA_DECODE_O] = calloc(4 * 8 * 512, sizeof(double));
    assert_non_null(exact[MLA_DECODE_O]);
    const gen_plan plan = mla_cpu_plan(&m);
    assert_int_equal(gen__family_mla_decode.exact(&plan, &m.args.base, exact), GEN_OK);
    for (int64_t r = 0; r < 4 * 8; r++) {
        double o[512], d = 0, n = 0, worst = 0;
        const double lse = plain_row(&m, r / 8, r % 8, sums, o);
        const double *want = exact[MLA_DECODE_O] + r * 512;
        for (int i = 0; i < 512; i++) {
            d += (o[i] - want[i]) * (o[i] - want[i]);
            n += want[i] * want[i];
        }
        for (int i = 0; i < 512; i++)
            worst = fmax(worst, fabs(o[i] - want[i]) / fmax(sqrt(n / 512), fabs(want[i])));
        difference += d;
        reference += n;
        e.row = fmax(e.row, sqrt(d / n));
        e.element = fmax(e.element, worst);
        e.lse = fmax(e.lse, fabs(lse - (double)m.args.decode.lse[r]));
    }
    e.whole = sqrt(difference / reference);
    free(exact[MLA_DECODE_O]);
    mla_tensors_free(&m);
    return e;
}

static const int32_t lengths[] = {1, 2, 5, 17, 64, 140, 514, 2048};
enum { NUM_LENGTHS = sizeof lengths / sizeof *lengths };

static double tolerance_of(enum gen_dtype dtype)
{
    struct gen__tensor tensors[GEN__MAX_TENSORS];
    gen_mla_decode_problem p = mla_problem(4, 8, 100);
    p.dtype = (int32_t)dtype;
    gen__family_mla_decode.tensors(&p.base, tensors);
    assert_int_equal(tensors[MLA_DECODE_O].row, 512);
    assert_false(tensors[MLA_DECODE_O].rounded_once);
    return tensors[MLA_DECODE_O].tolerance;
}

/* About half the tolerance is what the whole is off; no row and no element comes
 * near its limit (4 tolerances, bench/verify/verify.c). */
static void the_outputs(void **state)
{
    (void)state;
    const enum gen_dtype dtypes[] = {GEN_DTYPE_BF16, GEN_DTYPE_FP16};
    for (int d = 0; d < 2; d++) {
        const double tolerance = tolerance_of(dtypes[d]);
        double most = 0;
        for (int i = 0; i < NUM_LENGTHS; i++) {
            for (int sums = UNROUNDED; sums <= ROUNDED; sums++) {
                const struct errors e = errors_of(dtypes[d], lengths[i], (enum sums)sums);
                print_message("%s %4d rows, %s sums: %.2e of the whole, %.2e of a row, %.2e of an "
                              "element; lse %.2e\n",
                              d ? "fp16" : "bf16", lengths[i], sums ? "rounded  " : "unrounded",
                              e.whole, e.row, e.element, e.lse);
                assert_true(e.whole <= 0.55 * tolerance);
                assert_true(e.row <= 0.8 * tolerance);
                assert_true(e.element <= 0.7 * 4 * tolerance);
                most = fmax(most, e.whole);
            }
        }
        assert_true(most >= 0.45 * tolerance);
    }
}

/* A sum of what was rounded is not the sum that the log-sum-exp is of. */
static void the_log_sum_exp(void **state)
{
    (void)state;
    struct gen__tensor tensors[GEN__MAX_TENSORS];
    const gen_mla_decode_problem p = mla_problem(4, 8, 100);
    double most[2] = {0, 0};
    gen__family_mla_decode.tensors(&p.base, tensors);
    for (int i = 0; i < NUM_LENGTHS; i++)
        for (int sums = UNROUNDED; sums <= ROUNDED; sums++)
            most[sums] =
                fmax(most[sums], errors_of(GEN_DTYPE_BF16, lengths[i], (enum sums)sums).lse);
    assert_true(most[UNROUNDED] < 0.02 * tensors[MLA_DECODE_LSE].absolute);
    assert_true(most[ROUNDED] > tensors[MLA_DECODE_LSE].absolute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_outputs),
        cmocka_unit_test(the_log_sum_exp),
    };
    return cmocka_run_group_tests_name("mla_decode tolerance", tests, NULL, NULL);
}
