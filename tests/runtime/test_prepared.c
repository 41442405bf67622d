/*
 * Prepared tuning tables: a library opened with them must be the one that is opened
 * by their text, to the last byte of every plan; one that another maker prepared is
 * left alone; and a damaged one is refused or does no harm. An argument multiplies
 * the number of problems.
 */
#include "draw.h"
#include "test.h"

#include "family/family.h"
#include "product/grid.h"
#include "product/prepared.h"
#include "wide.h"

#include "la_decode/args.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned multiple = 1;

/* ---- products ---------------------------------------------------------- */

/* A family of one coordinate beside the wide ones, with PTX beside machine code. */
static void add_la(struct product *product)
{
    const struct gen__family *family = gen__family_by_name("la_decode");
    const uint32_t f = product_family(product, "la_decode", "dtype,head_dim,layout", family->facts);
    /* The wide ones' target is number 0. */
    const uint32_t group = product_group(product, "la_decode_bf16_d128_vk", "bf16,128,vk", f, 0);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof(name), "la_decode_bf16_d128_vk__sm90a_%d", i);
        struct product_variant v = {
            .name = name, .fallback = i == 0, .facts = {1 << i, 0, 1024, 4096}};
        product_variant(product, group, v);
    }
    const uint32_t target = product_target(product, "compute_80", 80, GEN_PACK_PTX);
    product_variant(
        product, product_group(product, "la_decode_bf16_d128_vk", "bf16,128,vk", f, target),
        (struct product_variant){
            .name = "la_decode_bf16_d128_vk__ptx80_0", .fallback = 1, .facts = {1, 0, 1024, 4096}});
}

static void add_la_rows(struct wide_text *table, unsigned holes)
{
    char line[256];
    for (int states = 8; states <= 65536; states *= 2) {
        char name[64];
        const bool ptx = !draw(4); /* such rows are dropped */
        snprintf(name, sizeof(name), "la_decode_bf16_d128_vk__%s_%u", ptx ? "ptx80" : "sm90a",
                 ptx ? 0 : draw(4));
        snprintf(line, sizeof(line),
                 "la_decode\tla_decode_bf16_d128_vk\tstates=%d\t%s\t%.3f\t%016llx\n", states, name,
                 2 + states / 300.0 + draw(100) / 99.0,
                 (unsigned long long)gen_pack_hash(name, strlen(name)));
        if (draw(100) >= holes)
            wide_add(table, line);
    }
}

/* Keys with the same coordinates and with others, rows in any order, bad and expired ones; few
 * enough rows for a grid, and in `lone` a row alone. */
static void add_wide_rows(struct wide_text *table, unsigned most, bool lone)
{
    static const double largest[4] = {2048, 262144, 2048, 64};
    double counts[400][4];
    for (unsigned n = 2; n <= 4; n++) {
        const unsigned count = lone ? 1 : 2 + draw(most);
        for (unsigned i = 0; i < count; i++)
            for (unsigned c = 0; c < 4; c++)
                counts[i][c] = draw(3) ? exp2(draw((unsigned)log2(largest[c]) + 1))
                                       : 1 + draw((unsigned)largest[c]);
        for (unsigned key = 0; key < 4; key++)
            for (unsigned i = 0; i < count; i++) {
                if (key == 2)
                    counts[i][0] *= 2;
                wide_row(table, n, key, counts[i], draw(WIDE_VARIANTS), 2 + draw(9999) / 77.0);
            }
    }
    wide_add(table, "wide2\tnone\trequests=1,kv_len=1\tnone\t1\t0000000000000000\n");
    wide_add(table,
             "wide2\twide2_bf16_same_r64\trequests=1,kv_len=1\twide2_bf16_same_r64__sm90a_1\t1"
             "\t0000000000000000\n");
}

static void make_table(struct wide_text *table, unsigned num_sms, unsigned most, bool lone)
{
    wide_head(table, num_sms);
    add_la_rows(table, lone ? 90 : 20);
    add_wide_rows(table, most, lone);
}

/* Without prepared tables; of two classes, or `again` two of one, and one that is refused. */
static void *make_product(struct wide_text tables[2], bool again, unsigned most, bool lone,
                          size_t *size)
{
    struct product *product = wide_product();
    add_la(product);
    for (unsigned t = 0; t < 2; t++) {
        make_table(&tables[t], t && !again ? 80 : 132, most, lone);
        product_table(product, t ? "other" : "own", tables[t].at);
    }
    product_table(product, "refused", "# attngen tuning table\n# format: 7\nfamily\n");
    void *bytes = product_bytes(product, size);
    product_free(product);
    return bytes;
}

static void free_tables(struct wide_text tables[2])
{
    for (unsigned t = 0; t < 2; t++) {
        free(tables[t].at);
        tables[t] = (struct wide_text){NULL, 0, 0};
    }
}

static gen_library *open_bytes(const void *bytes, size_t size, const char *const *paths,
                               size_t num_paths)
{
    const gen_open_options options = {.size = sizeof(options),
                                      .data = bytes,
                                      .data_size = size,
                                      .table_paths = paths,
                                      .num_table_paths = num_paths};
    gen_library *library = NULL;
    assert_status(gen_open(&options, &library), GEN_OK);
    return library;
}

/* ---- equality ---------------------------------------------------------- */

/* Grids that were built when the library opened. */
static unsigned num_built(const gen_library *library)
{
    unsigned count = 0;
    for (const struct gen__grid *grid = library->grids; grid; grid = grid->next)
        count++;
    return count;
}

static void same_tables(const gen_library *a, const gen_library *b)
{
    assert_int_equal(a->num_tables, b->num_tables);
    assert_int_equal(a->num_rows, b->num_rows);
    assert_int_equal(a->num_ranges, b->num_ranges);
    assert_int_equal(a->num_rows_bad, b->num_rows_bad);
    assert_int_equal(a->num_rows_expired, b->num_rows_expired);
    assert_int_equal(a->num_rows_ptx, b->num_rows_ptx);
    for (uint32_t i = 0; i < a->num_tables; i++) {
        const struct gen__table *x = &a->tables[i], *y = &b->tables[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->class_name, y->class_name);
        assert_string_equal(x->reason, y->reason);
        assert_int_equal(x->reason_line, y->reason_line);
        assert_int_equal(x->num_used, y->num_used);
        assert_int_equal(x->num_bad, y->num_bad);
        assert_int_equal(x->num_expired, y->num_expired);
        assert_int_equal(x->num_ptx, y->num_ptx);
        assert_int_equal(x->num_shadowed, y->num_shadowed);
        assert_int_equal(x->same_as, y->same_as);
        assert_int_equal(x->refused, y->refused);
    }
}

static union any_problem {
    gen_problem base;
    gen_wide_problem wide;
    gen_la_decode_problem la;
} draw_problem(void)
{
    union any_problem p;
    if (draw(5) == 0) {
        p.la = (gen_la_decode_problem){.base = {sizeof(p.la), GEN_LA_DECODE, 0, 0},
                                       .batch = 1 + (int32_t)draw(4096),
                                       .num_qk_heads = 8,
                                       .num_v_heads = 8 << draw(3),
                                       .head_dim = 128};
        return p;
    }
    p.wide = wide_problem(2 + draw(3), draw(5));
    for (unsigned c = 0; c < 4; c++)
        p.wide.counts[c] = draw(2) ? 1 << draw(12) : (int32_t)exp2(draw(1200) / 100.0);
    return p;
}

static unsigned same_plans(const gen_library *a, const gen_library *b, unsigned problems)
{
    static const char *const names[] = {"h200", "h20", "sm_90:80", "sm_90:104"};
    gen_device devices[4];
    unsigned by_table = 0;
    for (unsigned d = 0; d < 4; d++)
        assert_status(gen_device_named(names[d], &devices[d]), GEN_OK);
    for (unsigned i = 0; i < problems; i++) {
        union any_problem problem = draw_problem();
        problem.base.max_workspace_mib = draw(8) ? 0 : 1 + draw(64);
        const gen_device *device = &devices[draw(2) ? 0 : draw(4)];
        gen_plan plans[2];
        memset(plans, 0, sizeof(plans));
        const enum gen_status status = gen_select(a, device, &problem.base, &plans[0]);
        assert_status(gen_select(b, device, &problem.base, &plans[1]), status);
        assert_memory_equal(&plans[0], &plans[1], sizeof(plans[0]));
        by_table += status == GEN_OK && plans[0].why <= GEN_WHY_NEAREST;
        if (i % 64 == 0) {
            char text[2][4096];
            size_t needed;
            assert_status(gen_explain(a, device, &problem.base, text[0], sizeof(text[0]), &needed),
                          gen_explain(b, device, &problem.base, text[1], sizeof(text[1]), &needed));
            assert_string_equal(text[0], text[1]);
        }
    }
    return by_table;
}

static void prepared_is_parsed(void **state)
{
    (void)state;
    unsigned by_table = 0, ptx = 0;
    for (unsigned round = 0; round < 40; round++) {
        struct wide_text tables[2] = {{0}, {0}};
        size_t size, prepared_size;
        void *bytes =
            make_product(tables, round % 4 == 3, round % 5 ? 60 : 390, round % 8 == 2, &size);
        prepared_size = size;
        void *prepared = product_prepare(bytes, &prepared_size);
        assert_true(prepared_size > size);
        gen_library *a = open_bytes(bytes, size, NULL, 0);
        gen_library *b = open_bytes(prepared, prepared_size, NULL, 0);
        assert_true(num_built(a) > 0);
        assert_int_equal(num_built(b), 0);
        same_tables(a, b);
        ptx += a->num_rows_ptx;
        by_table += same_plans(a, b, 1000 * multiple);
        gen_close(a);
        gen_close(b);
        free(bytes);
        free(prepared);
        free_tables(tables);
    }
    assert_true(by_table > 20000);
    assert_true(ptx > 40);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The caller's tables come first; where one is a built-in one to the letter, what was prepared of
 * that serves. */
static void callers_tables_come_first(void **state)
{
    (void)state;
    static const char *const paths[] = {SCRATCH_DIR "/prepared_0.tsv",
                                        SCRATCH_DIR "/prepared_1.tsv"};
    for (unsigned round = 0; round < 12; round++) {
        struct wide_text tables[2] = {{0}, {0}}, own = {0};
        size_t size, prepared_size;
        void *bytes = make_product(tables, false, 60, false, &size);
        prepared_size = size;
        void *prepared = product_prepare(bytes, &prepared_size);
        /* Of fewer keys: of the others the built-in rows hold. */
        wide_head(&own, 132);
        const double counts[4] = {64, 4096, 16, 64};
        wide_row(&own, 2 + round % 3, round % 4, counts, 1, 3.5);
        write_file(paths[0], round % 2 ? own.at : tables[round / 2 % 2].at);
        write_file(paths[1], round % 2 ? tables[round / 2 % 2].at : own.at);
        const size_t num_paths = 1 + round % 3 % 2;
        gen_library *a = open_bytes(bytes, size, paths, num_paths);
        gen_library *b = open_bytes(prepared, prepared_size, paths, num_paths);
        same_tables(a, b);
        assert_true(num_built(b) <= 1); /* of the one row */
        assert_true(same_plans(a, b, 1000 * multiple) > 300);
        gen_close(a);
        gen_close(b);
        free(bytes);
        free(prepared);
        free_tables(tables);
        free(own.at);
    }
    for (unsigned i = 0; i < 2; i++)
        remove(paths[i]);
}

/* ---- damage ------------------------------------------------------------ */

/* A product whose prepared tables may be tampered with. */
struct sample {
    unsigned char *bytes;
    size_t size;
    struct gen_pack_footer footer;
    struct gen_pack_index index;
    struct gen_pack_table table; /* the first */
};

static void read_sample(struct sample *s)
{
    memcpy(&s->footer, s->bytes + s->size - sizeof(s->footer), sizeof(s->footer));
    memcpy(&s->index, s->bytes + s->footer.index_offset, sizeof(s->index));
    memcpy(&s->table, s->bytes + s->index.tables_offset, sizeof(s->table));
}

/* Writes the table's entry, and hashes that fit. */
static void write_sample(struct sample *s)
{
    if (s->table.prepared_offset + s->table.prepared_size <= s->size)
        s->table.prepared_hash =
            gen_pack_hash(s->bytes + s->table.prepared_offset, s->table.prepared_size);
    memcpy(s->bytes + s->index.tables_offset, &s->table, sizeof(s->table));
    s->footer.index_hash = gen_pack_hash(s->bytes + s->footer.index_offset, s->footer.index_size);
    memcpy(s->bytes + s->size - sizeof(s->footer), &s->footer, sizeof(s->footer));
}

static struct sample make_sample(unsigned most)
{
    struct wide_text tables[2] = {{0}, {0}};
    struct sample s;
    void *bytes = make_product(tables, false, most, false, &s.size);
    s.bytes = product_prepare(bytes, &s.size);
    read_sample(&s);
    assert_true(s.table.prepared_size > sizeof(struct gen__prepared_head));
    free(bytes);
    free_tables(tables);
    return s;
}

/* Opens it where it ends at a page that may not be read, and selects by what was opened. */
static enum gen_status try_sample(const struct sample *s, unsigned problems)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (s->size + page - 1) / page * page;
    unsigned char *map =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map + room, page, PROT_NONE), 0);
    unsigned char *copy = map + room - s->size;
    memcpy(copy, s->bytes, s->size);
    const gen_open_options options = {.size = sizeof(options), .data = copy, .data_size = s->size};
    gen_library *library = NULL;
    const enum gen_status status = gen_open(&options, &library);
    if (!status) {
        gen_device device;
        assert_status(gen_device_named("h200", &device), GEN_OK);
        for (unsigned i = 0; i < problems; i++) {
            const union any_problem problem = draw_problem();
            gen_plan plan;
            assert_status(gen_select(library, &device, &problem.base, &plan), GEN_OK);
        }
    }
    gen_close(library);
    munmap(map, room + page);
    return status;
}

static void flipped_bytes(void **state)
{
    (void)state;
    struct sample s = make_sample(6);
    assert_status(try_sample(&s, 10), GEN_OK);
    for (size_t i = 0; i < s.table.prepared_size; i++) {
        unsigned char *at = s.bytes + s.table.prepared_offset + i;
        *at ^= 0x10;
        assert_status(try_sample(&s, 0), GEN_STATUS_FORMAT);
        assert_message("prepared tuning table own is damaged");
        *at ^= 0x10;
    }
    assert_status(try_sample(&s, 10), GEN_OK);
    free(s.bytes);
}

/* Nonsense with hashes that fit it: only the checks of every number stand between it and a crash.
 */
static void nonsense_with_the_right_hash(void **state)
{
    (void)state;
    static const uint32_t values[] = {0,          1,          2,          31,         255,
                                      0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff, 4096};
    struct sample s = make_sample(12);
    unsigned refused = 0, opened = 0;
    unsigned char *at = s.bytes + s.table.prepared_offset;
    for (size_t i = 8; i + 4 <= s.table.prepared_size; i += 4) {
        uint32_t before;
        memcpy(&before, at + i, 4);
        /* All of them in front, where every number is of another kind, and some behind. */
        for (size_t v = i < 1024 ? 0 : draw(6); v < 10; v += i < 1024 ? 1 : 1 + draw(9)) {
            memcpy(at + i, &values[v], 4);
            write_sample(&s);
            if (try_sample(&s, 40))
                refused++;
            else
                opened++;
        }
        memcpy(at + i, &before, 4);
    }
    print_message("%u refused, %u opened\n", refused, opened);
    assert_true(refused > 1000 && opened > 100);
    write_sample(&s);
    assert_status(try_sample(&s, 10), GEN_OK);
    free(s.bytes);
}

/* A row of PTX beside machine code, which no maker writes. */
static void ptx_beside_machine_code(void **state)
{
    (void)state;
    struct sample s = make_sample(12);
    gen_library *library = open_bytes(s.bytes, s.size, NULL, 0);
    static const char name[] = "la_decode_bf16_d128_vk__ptx80_0";
    const uint32_t ptx = gen__pack_find(&library->pack, name, strlen(name));
    assert_true(ptx < library->pack.index->num_variants);
    struct gen__prepared_head head;
    unsigned char *at = s.bytes + s.table.prepared_offset;
    memcpy(&head, at, sizeof(head));
    unsigned changed = 0;
    for (uint32_t i = 0; i < head.num_rows; i++) {
        struct gen__prepared_row row, wrong;
        unsigned char *place = at + sizeof(head) + i * sizeof(row);
        memcpy(&row, place, sizeof(row));
        if (strncmp(gen__variant_name(&library->pack, row.variant), "la_decode", 9) != 0)
            continue;
        wrong = row;
        wrong.variant = ptx;
        memcpy(place, &wrong, sizeof(wrong));
        write_sample(&s);
        assert_status(try_sample(&s, 0), GEN_STATUS_FORMAT);
        assert_message("prepared tuning table own is malformed");
        memcpy(place, &row, sizeof(row));
        changed++;
    }
    assert_true(changed > 0);
    write_sample(&s);
    assert_status(try_sample(&s, 10), GEN_OK);
    gen_close(library);
    free(s.bytes);
}

static void cut_and_misplaced(void **state)
{
    (void)state;
    struct sample s = make_sample(12);
    const struct gen_pack_table good = s.table;
    for (uint64_t size = 1; size < good.prepared_size; size += size < 1024 ? 1 : 64) {
        s.table.prepared_size = size;
        write_sample(&s);
        assert_status(try_sample(&s, 0), GEN_STATUS_FORMAT);
        assert_message("prepared tuning table own is malformed");
    }
    const uint64_t wrong[][2] = {{good.prepared_offset + 8, good.prepared_size},
                                 {good.prepared_offset, s.size},
                                 {UINT64_MAX - 63, good.prepared_size},
                                 {good.prepared_offset, UINT64_MAX},
                                 {s.footer.index_offset / 64 * 64 + 64, 8}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        s.table.prepared_offset = wrong[i][0];
        s.table.prepared_size = wrong[i][1];
        s.table.prepared_hash = 0;
        memcpy(s.bytes + s.index.tables_offset, &s.table, sizeof(s.table));
        s.footer.index_hash = gen_pack_hash(s.bytes + s.footer.index_offset, s.footer.index_size);
        memcpy(s.bytes + s.size - sizeof(s.footer), &s.footer, sizeof(s.footer));
        assert_status(try_sample(&s, 0), GEN_STATUS_FORMAT);
        assert_message("a prepared tuning table lies outside the file");
    }
    free(s.bytes);
}

/* Prepared by another version of the runtime, or for other families: the text is read. */
static void another_maker(void **state)
{
    (void)state;
    struct sample s = make_sample(60);
    gen_library *a = open_bytes(s.bytes, s.size, NULL, 0);
    s.bytes[s.table.prepared_offset] ^= 1;
    memset(s.bytes + s.table.prepared_offset + 8, 0xff, s.table.prepared_size - 8);
    write_sample(&s);
    gen_library *b = open_bytes(s.bytes, s.size, NULL, 0);
    assert_int_equal(num_built(a), 0);
    assert_true(num_built(b) > 0);
    same_tables(a, b);
    assert_true(same_plans(a, b, 1000 * multiple) > 300);
    gen_close(a);
    gen_close(b);
    free(s.bytes);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_is_parsed),      cmocka_unit_test(callers_tables_come_first),
        cmocka_unit_test(flipped_bytes),           cmocka_unit_test(nonsense_with_the_right_hash),
        cmocka_unit_test(ptx_beside_machine_code), cmocka_unit_test(cut_and_misplaced),
        cmocka_unit_test(another_maker),
    };
    if (argc > 1)
        multiple = (unsigned)strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests_name("prepared", tests, NULL, NULL);
}
