/*
 * How mla_decode shares a batch out: over random batches every block of every
 * request is covered once, every slot that the merge reads was written once, and
 * the merged pieces are the whole.
 */
#include "mla.h"
#include "mla_schedule.h"

#define MAX_BATCH 160
#define MAX_BLOCKS 40
#define MAX_PARTS 140
#define MAX_SLOTS (MAX_BATCH * MAX_BLOCKS)

static int draw(uint64_t *state, int low, int high)
{
    return low + (int)(random_bits(state) % (uint64_t)(high - low + 1));
}

/* What became of a batch. */
struct outcome {
    int covered[MAX_BATCH][MAX_BLOCKS];
    int pieces[MAX_BATCH];
    int written[MAX_SLOTS]; /* times; by pieces of `owner`, or as empty */
    int owner[MAX_SLOTS];
    struct gen_mla_record records[MAX_BATCH + MAX_PARTS];
    int64_t heaviest; /* cost of a part */
};

static void run_part(const struct gen_mla_schedule *s, const int32_t *kv_len, int p,
                     struct outcome *o)
{
    struct schedule_cut next = schedule_cut_at(s, kv_len, p);
    struct schedule_piece piece;
    int64_t cost = 0;
    while (schedule_step(s, kv_len, p, &next, &piece)) {
        const int blocks = schedule_blocks(s, kv_len, piece.request);
        assert_true(piece.request < s->batch && piece.first < piece.last && piece.last <= blocks);
        for (int i = piece.first; i < piece.last; i++)
            o->covered[piece.request][i]++;
        o->pieces[piece.request]++;
        cost += piece.last - piece.first + s->visit;
        assert_int_equal(piece.slot == -1, piece.first == 0 && piece.last == blocks);
        if (piece.slot < 0)
            continue;
        assert_true(piece.slot < (s->chunk ? s->batch * s->max_chunks : 2 * s->num_parts));
        o->written[piece.slot]++;
        o->owner[piece.slot] = piece.request;
        if (!s->chunk) /* nothing smaller than what is snapped at a request's ends */
            assert_true((piece.first > 0 || piece.last > s->snap) &&
                        (piece.last < blocks || piece.last - piece.first > s->snap));
    }
    if (schedule_empty(s, kv_len, p)) {
        o->written[2 * p]++;
        o->owner[2 * p] = schedule_cut_at(s, kv_len, p).request;
    }
    o->heaviest = cost > o->heaviest ? cost : o->heaviest;
    schedule_tell(s, kv_len, p, o->records);
}

/* The record of a request; NULL: there is none. */
static const struct gen_mla_record *record_of(const struct gen_mla_schedule *s,
                                              const struct outcome *o, int request)
{
    const struct gen_mla_record *found = NULL;
    for (int i = 0; i < (s->by_request ? s->batch : s->num_parts); i++) {
        if (o->records[i].request != request)
            continue;
        assert_null(found);
        found = &o->records[i];
    }
    return found;
}

static void check_request(const struct gen_mla_schedule *s, const int32_t *kv_len,
                          const struct outcome *o, int request)
{
    const int blocks = schedule_blocks(s, kv_len, request);
    for (int i = 0; i < MAX_BLOCKS; i++)
        assert_int_equal(o->covered[request][i], i < blocks);
    const struct gen_mla_record *record = record_of(s, o, request);
    if (s->by_request)
        assert_ptr_equal(record, &o->records[request]);
    const bool cut = o->pieces[request] > 1;
    assert_int_equal(record && record->num_pieces > 1, cut);
    int slots = 0;
    for (int slot = 0; slot < MAX_SLOTS; slot++)
        slots += o->written[slot] && o->owner[slot] == request;
    assert_int_equal(slots, cut ? record->num_pieces : 0);
    for (int i = 0; cut && i < record->num_pieces; i++) {
        const int slot = schedule_slot(s, record, i);
        assert_int_equal(o->written[slot], 1);
        assert_int_equal(o->owner[slot], request);
    }
}

static void check_batch(const struct gen_mla_schedule *s, const int32_t *kv_len)
{
    static struct outcome o;
    memset(&o, 0, sizeof o);
    memset(o.records, 0xff, sizeof o.records);
    for (int p = 0; p < s->num_parts; p++)
        run_part(s, kv_len, p, &o);
    for (int b = 0; b < s->batch; b++)
        check_request(s, kv_len, &o, b);
    for (int slot = 0; slot < MAX_SLOTS; slot++)
        assert_true(o.written[slot] <= 1);
    /* No part has more than its length of the line, what the cuts were moved by, and one visit
     * that a cut adds. */
    const int64_t moved = s->chunk       ? s->chunk + s->visit
                          : s->snap < 64 ? s->snap + 1
                                         : 2 * MAX_BLOCKS;
    const int64_t share = schedule_total(s, kv_len) / s->num_parts + 1;
    assert_true(o.heaviest <= share + 2 * (moved + s->visit));
}

static struct gen_mla_schedule draw_schedule(uint64_t *state, int max_kv_len)
{
    struct gen_mla_schedule s = {.batch = draw(state, 1, 3) > 1 ? draw(state, 1, 20)
                                                                : draw(state, 1, MAX_BATCH),
                                 .num_parts = draw(state, 0, 2) ? draw(state, 1, 132) : 132,
                                 .visit = draw(state, 0, 3),
                                 .max_kv_len = max_kv_len,
                                 .by_request = draw(state, 0, 1)};
    if (draw(state, 0, 2) == 0) {
        s.chunk = draw(state, 1, 9);
        s.by_request = 1;
        s.max_chunks = ((max_kv_len + MLA_BLOCK - 1) / MLA_BLOCK + s.chunk - 1) / s.chunk;
    } else {
        const int snaps[] = {0, 0, 1, 2, 5, INT32_MAX};
        s.snap = snaps[draw(state, 0, 5)];
    }
    return s;
}

static void random_batches(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int i = 0; i < 4000; i++) {
        int32_t kv_len[MAX_BATCH];
        const int max_kv_len = draw(&seed, 1, MAX_BLOCKS * MLA_BLOCK), kind = draw(&seed, 0, 3);
        const struct gen_mla_schedule s = draw_schedule(&seed, max_kv_len);
        for (int b = 0; b < s.batch; b++)
            kv_len[b] = kind == 0   ? max_kv_len
                        : kind == 1 ? 0
                        : kind == 2 ? draw(&seed, -5, max_kv_len + 100) /* cut to what is allowed */
                                    : draw(&seed, 0, 3) * draw(&seed, 0, max_kv_len / 3);
        check_batch(&s, kv_len);
    }
}

/* Chunks lie where they lie whatever the batch and the parts. */
static void chunks_stay(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int i = 0; i < 300; i++) {
        int32_t kv_len[20];
        struct gen_mla_schedule s = {
            .batch = draw(&seed, 1, 20), .max_kv_len = 2000, .by_request = 1};
        s.chunk = draw(&seed, 1, 9);
        s.max_chunks = (32 + s.chunk - 1) / s.chunk;
        for (int b = 0; b < s.batch; b++)
            kv_len[b] = draw(&seed, 0, 2000);
        for (s.num_parts = 1; s.num_parts <= 132; s.num_parts += 17) {
            for (int p = 0; p < s.num_parts; p++) {
                struct schedule_cut next = schedule_cut_at(&s, kv_len, p);
                struct schedule_piece piece;
                while (schedule_step(&s, kv_len, p, &next, &piece)) {
                    const int blocks = schedule_blocks(&s, kv_len, piece.request);
                    const int end = piece.first + s.chunk;
                    assert_int_equal(piece.first % s.chunk, 0);
                    assert_int_equal(piece.last, end < blocks ? end : blocks);
                }
            }
        }
    }
}

/* Equal requests on as many parts, and more: at most one apart. */
static void whole_requests_are_dealt_evenly(void **state)
{
    (void)state;
    for (int batch = 1; batch <= MAX_BATCH; batch++) {
        int32_t kv_len[MAX_BATCH];
        struct gen_mla_schedule s = {
            .batch = batch, .visit = 1, .snap = INT32_MAX, .max_kv_len = 640};
        for (int b = 0; b < batch; b++)
            kv_len[b] = 640;
        for (s.num_parts = 1; s.num_parts <= batch && s.num_parts <= 132; s.num_parts++) {
            for (int p = 0; p < s.num_parts; p++) {
                struct schedule_cut next = schedule_cut_at(&s, kv_len, p);
                struct schedule_piece piece;
                int count = 0;
                while (schedule_step(&s, kv_len, p, &next, &piece)) {
                    assert_int_equal(piece.slot, -1);
                    count++;
                }
                assert_true(count >= batch / s.num_parts &&
                            count <= (batch + s.num_parts - 1) / s.num_parts);
            }
        }
    }
}

/* ---- cutting and merging gives the whole -------------------------------- */

/* A piece as a request of its own: pages of 64 rows, so it begins at a page. */
static void partial_result(const struct mla_tensors *m, const struct gen_mla_schedule *s,
                           const struct schedule_piece *piece, uint16_t *partial,
                           struct gen_mla_partial_row *partial_rows)
{
    gen_mla_decode_problem p = *(const gen_mla_decode_problem *)m->problem;
    gen_mla_decode_args a = m->args.decode;
    const int64_t rows = p.num_heads, end = (int64_t)piece->last * MLA_BLOCK;
    const int64_t length = schedule_length(s, a.kv_len, piece->request);
    const int32_t kv_len =
        (int32_t)((length < end ? length : end) - (int64_t)piece->first * MLA_BLOCK);
    uint16_t *o = calloc((size_t)rows * 512, sizeof *o);
    float *lse = calloc((size_t)rows, sizeof *lse);
    double *exact[MLA_DECODE_NUM_TENSORS] = {NULL};
    exact[MLA_DECODE_O] = calloc((size_t)rows * 512, sizeof(double));
    assert_true(o && lse && exact[MLA_DECODE_O]);
    gen_plan plan = {0};
    p.batch = 1;
    gen__family_mla_decode.plan(&p.base, &h200, NULL, &plan);
    a.q_nope = (const uint16_t *)a.q_nope + piece->request * rows * 512;
    a.q_pe = (const uint16_t *)a.q_pe + piece->request * rows * 64;
    a.o = o;
    a.lse = lse;
    a.kv_len = &kv_len;
    a.page_indices += piece->request * a.page_table_stride + piece->first;
    assert_int_equal(gen__family_mla_decode.exact(&plan, &a.base, exact), GEN_OK);
    /* As kernels leave it: before an e4m3 cache's scale. */
    const double unit = p.cache == GEN_MLA_CACHE_E4M3 ? (double)a.ckv_scale : 1;
    for (int64_t i = 0; i < rows * 512; i++)
        exact[MLA_DECODE_O][i] /= unit;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = piece->slot * rows + row;
        partial_rows[at].lse = lse[row];
        mla_put_partial(&partial_rows[at], exact[MLA_DECODE_O] + row * 512, partial + at * 512);
    }
    free(exact[MLA_DECODE_O]);
    free(lse);
    free(o);
}

/* The workspace as the main launch would leave it; everything else is NaN. */
static void run_pieces(const struct mla_tensors *m, const struct gen_mla_schedule *s,
                       uint16_t *partial, struct gen_mla_partial_row *partial_rows,
                       struct gen_mla_record *records)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)m->problem;
    const int32_t *kv_len = m->args.decode.kv_len;
    for (int part = 0; part < s->num_parts; part++) {
        struct schedule_cut next = schedule_cut_at(s, kv_len, part);
        struct schedule_piece piece;
        while (schedule_step(s, kv_len, part, &next, &piece))
            if (piece.slot >= 0)
                partial_result(m, s, &piece, partial, partial_rows);
        if (schedule_empty(s, kv_len, part))
            for (int h = 0; h < p->num_heads; h++)
                partial_rows[2 * part * p->num_heads + h].lse = -INFINITY;
        schedule_tell(s, kv_len, part, records);
    }
}

/* Merged outputs against those of the whole. */
static void check_same(const struct mla_tensors *m, const uint16_t *o, const float *lse)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)m->problem;
    const uint16_t *whole = m->data[MLA_DECODE_O];
    const size_t all = (size_t)p->batch * (size_t)p->num_heads;
    /* One rounding to 16 bits may fall either way, and the pieces, which may be of either sign,
     * have one of their own. */
    const double unit = p->dtype == GEN_DTYPE_FP16 ? 0x1p-10 : 0x1p-7;
    for (size_t row = 0; row < all; row++) {
        double most = 0;
        for (size_t i = row * 512; i < (row + 1) * 512; i++)
            most = fmax(most, fabs(element_get((enum gen_dtype)p->dtype, whole, (int64_t)i)));
        for (size_t i = row * 512; i < (row + 1) * 512; i++) {
            const double x = element_get((enum gen_dtype)p->dtype, o, (int64_t)i);
            const double y = element_get((enum gen_dtype)p->dtype, whole, (int64_t)i);
            if (!(fabs(x - y) <= unit * fabs(y) + 0x1p-12 * most))
                fail_msg("o[%zu]: %g is not %g", i, x, y);
        }
    }
    for (size_t i = 0; i < all; i++)
        assert_true(lse[i] == m->args.decode.lse[i] ||
                    fabsf(lse[i] - m->args.decode.lse[i]) < 1e-5f);
}

static void check_merged(const struct mla_tensors *m, const struct gen_mla_schedule *s)
{
    const gen_mla_decode_problem *p = (const gen_mla_decode_problem *)m->problem;
    const int64_t slots = s->chunk ? s->batch * s->max_chunks : 2 * s->num_parts;
    const size_t rows = (size_t)p->num_heads, all = (size_t)p->batch * rows;
    uint16_t *partial = malloc((size_t)slots * rows * 512 * sizeof *partial);
    struct gen_mla_partial_row *partial_rows = malloc((size_t)slots * rows * sizeof *partial_rows);
    struct gen_mla_record records[MAX_BATCH + MAX_PARTS];
    uint16_t *o = malloc(all * 512 * sizeof *o), *whole = m->data[MLA_DECODE_O];
    float *lse = malloc(all * sizeof *lse);
    assert_true(partial && partial_rows && o && lse);
    memset(partial, 0xff, (size_t)slots * rows * 512 * sizeof *partial);
    memset(partial_rows, 0xff, (size_t)slots * rows * sizeof *partial_rows);
    run_pieces(m, s, partial, partial_rows, records);
    memcpy(o, whole, all * 512 * sizeof *o); /* requests that are not cut stay */
    memcpy(lse, m->data[MLA_DECODE_LSE], all * sizeof *lse);
    for (int i = 0; i < (s->by_request ? s->batch : s->num_parts); i++) {
        if (records[i].num_pieces <= 1)
            continue;
        memset(o + (size_t)records[i].request * rows * 512, 0xff, rows * 512 * sizeof *o);
        memset(lse + (size_t)records[i].request * rows, 0xff, rows * sizeof *lse);
    }
    const gen_mla_merge_problem merge = {.base = {sizeof merge, GEN_MLA_MERGE, 0, 0},
                                         .num_records = s->by_request ? s->batch : s->num_parts,
                                         .num_heads = p->num_heads,
                                         .q_len = 1,
                                         .num_pieces = 2,
                                         .dtype = p->dtype};
    const gen_mla_merge_args a = {
        .base = {sizeof a, GEN_MLA_MERGE},
        .partial = partial,
        .partial_rows = partial_rows,
        .records = records,
        .o = o,
        .lse = lse,
        .num_slots = (int32_t)slots,
        .chunked = s->chunk > 0,
        .lse_base_2 = 1,
        .out_scale = p->cache == GEN_MLA_CACHE_E4M3 ? m->args.decode.ckv_scale : 1.0f};
    gen_plan plan = {0};
    gen__family_mla_merge.plan(&merge.base, &h200, NULL, &plan);
    assert_int_equal(gen__family_mla_merge.params(&plan, 0, &a.base, NULL, NULL), GEN_OK);
    assert_int_equal(gen__family_mla_merge.reference(&plan, &a.base), GEN_OK);
    check_same(m, o, lse);
    free(partial);
    free(partial_rows);
    free(o);
    free(lse);
}

static void merged_pieces_are_the_whole(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (int i = 0; i < 40; i++) {
        gen_mla_decode_problem p = mla_problem(draw(&seed, 1, 5), draw(&seed, 1, 2), 0);
        struct mla_tensors m;
        p.max_kv_len = draw(&seed, 1, 1200);
        p.kv_len = p.max_kv_len / 2;
        p.dtype = draw(&seed, 0, 1) ? GEN_DTYPE_FP16 : GEN_DTYPE_BF16;
        p.cache = draw(&seed, 0, 1) ? GEN_MLA_CACHE_E4M3 : GEN_MLA_CACHE_SAME;
        struct gen_mla_schedule s = draw_schedule(&seed, p.max_kv_len);
        s.batch = p.batch;
        assert_true(mla_tensors_make(&m, &gen__family_mla_decode, &p.base, -1,
                                     (struct gen__fill_options){.seed = seed, .non_finite = true}));
        m.args.decode.lse_base_2 = 1;
        mla_run_reference(&m);
        check_merged(&m, &s);
        mla_tensors_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_batches),
        cmocka_unit_test(chunks_stay),
        cmocka_unit_test(whole_requests_are_dealt_evenly),
        cmocka_unit_test(merged_pieces_are_the_whole),
    };
    return cmocka_run_group_tests_name("mla schedule", tests, NULL, NULL);
}
