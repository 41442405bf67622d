/* Problems of the bench programs: shape files, grids, random ones, and their buffers. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/buffers.h"
#include "common/problems.h"
#include "common/util.h"
#include "tune/log_file.h"
#include "verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct gen__family gen__family_attn_fwd;

static char *scratch(const char *name)
{
    return xasprintf("%s/%s", SCRATCH_DIR, name);
}

static void write_text(const char *path, const char *text)
{
    assert_true(file_write(path, text, strlen(text)));
}

static const struct gen__family *family(void)
{
    return gen__family_by_name("la_decode");
}

#define LOGGED(status, problem)                                                                  \
    "select family=la_decode class=sm90_132sm status=" status " variant=- us=- why=- octaves=- " \
    "part_of=- flags=0 workspace_mib=0 problem=" problem "\n"

static void a_log_gives_the_problems_that_were_asked(void **state)
{
    (void)state;
    const struct gen__family *families[] = {family()};
    struct shape_list list = {0};
    struct log_counts n = {0};
    char *path = scratch("service.log");
    write_text(path,
               "starting\n"
               "12:00:01 INFO attngen: " LOGGED("OK", "batch=3 num_qk_heads=4 @serial")
                   LOGGED("UNSUPPORTED", "batch=4 num_qk_heads=4") LOGGED(
                       "OK", "batch=x") "attngen: load variant=la_decode bytes=7\n"
                                        "select family=mla_merge status=OK problem=num_records=1\n"
                                        "select family=nobody status=OK problem=batch=1\n"
                                        "select family=la_decode status=OK");
    assert_true(log_read(&list, families, 1, path, &n));
    assert_int_equal(n.selections, 6);
    assert_int_equal(n.unsupported, 1);
    assert_int_equal(n.other, 1);
    assert_int_equal(n.bad, 3);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.item[0].problem->flags, GEN_SERIAL_LAUNCH);
    assert_non_null(strstr(list.item[0].where, "service.log:2"));
    assert_false(log_read(&list, families, 1, "/nonexistent", &n));
    shapes_free(&list);
    free(path);
}

static void what_the_runtime_logs_is_read(void **state)
{
    (void)state;
    char problem[1024], line[1200];
    struct shape_list list = {0};
    struct log_counts n = {0};
    const struct gen__family *families[64];
    char *path = scratch("all.log");
    for (uint32_t i = 0; i < gen__num_families; i++) {
        struct shape_list shapes = {0};
        families[0] = gen__families[i];
        assert_int_equal(shapes_read_default(&shapes, families[0], SHAPES_TIMED), 0);
        gen__problem_format(families[0], shapes.item[0].problem, problem, sizeof problem);
        snprintf(line, sizeof line, "select family=%s class=sm90_132sm status=OK problem=%s\n",
                 families[0]->name, problem);
        write_text(path, line);
        const size_t before = list.count;
        assert_true(log_read(&list, families, 1, path, &n));
        assert_int_equal(list.count, before + 1);
        assert_memory_equal(&list.item[before].key, &shapes.item[0].key, sizeof(struct gen__key));
        shapes_free(&shapes);
    }
    shapes_free(&list);
    free(path);
}

static void shape_files_name_their_bad_lines(void **state)
{
    struct shape_list list = {0};
    char *path = scratch("shapes.txt");
    (void)state;
    write_text(path, "# a comment\n\nbatch=2 num_qk_heads=4 @pad # a model\n"
                     "batch=-1\nnonsense\nbatch=3 num_qk_heads=4 layout=kv\n");
    assert_int_equal(shapes_read(&list, family(), SHAPES_VERIFIED, path), 2);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.item[0].controls, "@pad");
    assert_string_equal(list.item[0].note, "a model");
    assert_string_equal(list.item[1].name, "B3-H4-K128-V128-kv");
    assert_int_equal(shapes_read(&list, family(), SHAPES_TIMED, "/nonexistent"), -1);
    shapes_free(&list);
    free(path);
}

/* A word that no program would heed is an error, with the words of its kind. */
static void unknown_words_are_errors(void **state)
{
    static const struct {
        enum shape_use use;
        const char *word, *message;
    } bad[] = {
        {SHAPES_TIMED, "@scatterd",
         "unknown word '@scatterd' in a list of shapes; allowed: "
         "@scattered, @serial"},
        {SHAPES_TIMED, "@serially", "unknown word '@serially'"},
        {SHAPES_TIMED, "@", "unknown word '@'"},
        {SHAPES_TIMED, "@name=", "unknown word '@name='"},
        {SHAPES_TIMED, "@name=a/b", "unknown word '@name=a/b'"},
        {SHAPES_TIMED, "@name=a23456789b123456789c12345", "unknown word '@name=a23456789b"},
        {SHAPES_VERIFIED, "@name=D1", "unknown word '@name=D1' in a list of checks"},
        {SHAPES_TIMED, "@pad", "unknown word '@pad' in a list of shapes"},
        {SHAPES_VERIFIED, "@serial",
         "unknown word '@serial' in a list of checks; allowed: @pad, "
         "@nan, @poison, @tiny, @invariant, @steps=N, @data=normal"},
        {SHAPES_VERIFIED, "@steps=0", "unknown word '@steps=0'"},
        {SHAPES_VERIFIED, "@steps=1x", "unknown word '@steps=1x'"},
        {SHAPES_VERIFIED, "@steps=", "unknown word '@steps='"},
        {SHAPES_VERIFIED, "@form=none", "unknown word '@form=none'"},
        {SHAPES_VERIFIED, "@form=", "unknown word '@form='"},
        {SHAPES_VERIFIED, "@pad @pad @pad @pad @pad @pad @pad @pad @pad @pad @pad @pad @pad",
         "take 64 bytes; allowed: 63"},
    };
    struct shape_list list = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *words = xasprintf("batch=2 %s num_qk_heads=4", bad[i].word);
        assert_false(shapes_parse(&list, family(), bad[i].use, words));
        if (!strstr(gen_last_error(), bad[i].message))
            fail_msg("'%s' is not in '%s'", bad[i].message, gen_last_error());
        free(words);
    }
    assert_int_equal(list.count, 0);
    assert_true(shapes_parse(&list, family(), SHAPES_TIMED, "batch=2 @scattered,@serial"));
    assert_string_equal(list.item[0].controls, "@scattered @serial");
    assert_true(list.item[0].problem->flags & GEN_SERIAL_LAUNCH);
    assert_true(shapes_parse(&list, family(), SHAPES_TIMED, "batch=2 @name=D1.a-b_c @serial"));
    assert_string_equal(list.item[1].name, "D1.a-b_c-serial");
    assert_true(shapes_parse(&list, family(), SHAPES_VERIFIED, "@form=strides batch=2 @nan"));
    assert_string_equal(list.item[2].controls, "@form=strides @nan");
    shapes_free(&list);
}

/* A line's problem of another dtype: what follows the dtype goes along, what was set does not. */
static void what_follows_a_field_goes_along(void **state)
{
    const struct gen__family *prefill = gen__family_by_name("kda_prefill");
    gen_problem *p = xmalloc(prefill->problem_size);
    char text[512];
    (void)state;
    assert_int_equal(gen__problem_parse(prefill, "beta_dtype=bf16", p), GEN_OK);
    assert_true(problem_set(prefill, p, "dtype", "fp16"));
    gen__problem_format(prefill, p, text, sizeof text);
    assert_non_null(strstr(text, " dtype=fp16 gate_dtype=fp16 beta_dtype=bf16 "));
    assert_int_equal(gen__problem_parse(prefill, "gate_dtype=fp32", p), GEN_OK);
    assert_true(problem_set(prefill, p, "dtype", "fp16"));
    gen__problem_format(prefill, p, text, sizeof text);
    assert_non_null(strstr(text, " dtype=fp16 gate_dtype=fp32 beta_dtype=fp32 "));
    assert_false(problem_set(prefill, p, "dtype", "fp8"));
    free(p);
}

static void the_shape_file_holds_the_published_cases(void **state)
{
    static const int batches[] = {1, 4, 16, 32, 64, 128, 256};
    struct shape_list list = {0};
    (void)state;
    assert_int_equal(shapes_read_default(&list, family(), SHAPES_TIMED), 0);
    assert_string_equal(list.item[0].name, "B64-H64-K128-V128-vk");
    for (size_t b = 0; b < 7; b++) {
        static const char *const forms[] = {"B%d-H64-K128-V128-vk", "B%d-H32-K128-V128-vk",
                                            "B%d-H64-K128-V128-kv"};
        for (size_t f = 0; f < 3; f++) {
            char name[64];
            bool found = false;
            snprintf(name, sizeof name, forms[f], batches[b]);
            for (size_t i = 0; i < list.count; i++)
                found = found || strcmp(list.item[i].name, name) == 0;
            if (!found)
                fail_msg("no case %s", name);
        }
    }
    shapes_free(&list);
}

/* The twelve keys of packed states, and for each half-octaves from 8 to 16384 states where small
 * whole numbers allow. Keys of pools have the range of their own shapes. */
static void the_grid_spans_the_shapes(void **state)
{
    struct shape_list shapes = {0}, grid = {0};
    size_t per_key = 0;
    (void)state;
    assert_int_equal(shapes_read_default(&shapes, family(), SHAPES_TIMED), 0);
    shapes_grid(&grid, &shapes, family());
    for (size_t i = 0; i < grid.count; i++)
        per_key += memcmp(grid.item[i].key.codes, grid.item[0].key.codes,
                          sizeof grid.item[0].key.codes) == 0;
    size_t packed = 0;
    assert_true(per_key >= 20);
    float low = INFINITY, high = 0;
    for (size_t i = 0; i < grid.count; i++) {
        if (grid.item[i].key.codes[3] != 0)
            continue;
        packed++;
        low = fminf(low, gen__key_log2(&grid.item[i].key, 0));
        high = fmaxf(high, gen__key_log2(&grid.item[i].key, 0));
    }
    assert_int_equal(packed, 12 * per_key);
    assert_true(low == 3);
    assert_true(high == 14);
    shapes_free(&grid);
    shapes_free(&shapes);
}

/* What a row of a table names, and nothing near it. */
static void a_problem_is_found_by_its_coordinates(void **state)
{
    static const char *const wrong[] = {"states=0",  "states=40,",    "states=40 ", "states=",
                                        "rows=40",   "states=40,a=1", "states=nan", "",
                                        "states=1e9"}; /* beyond what fits: not added */
    struct shape_list shapes = {0}, list = {0};
    char coords[64];
    (void)state;
    assert_int_equal(shapes_read_default(&shapes, family(), SHAPES_TIMED), 0);
    const struct shape *keyed = &shapes.item[shapes.count - 1];
    assert_true(shapes_at(&list, &shapes, keyed, "states=40"));
    assert_int_equal(list.count, 1);
    coords_format(family(), &list.item[0].key, coords, sizeof coords);
    assert_string_equal(coords, "states=40");
    assert_memory_equal(list.item[0].key.codes, keyed->key.codes, sizeof keyed->key.codes);
    assert_false(shapes_at(&list, &shapes, keyed, "states=40")); /* the list has it */
    assert_false(shapes_at(&list, &shapes, keyed, "states=37")); /* 36 would be the nearest */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(shapes_at(&list, &shapes, keyed, wrong[i]));
    assert_int_equal(list.count, 1);
    shapes_free(&list);
    shapes_free(&shapes);
}

static void random_problems_are_new_and_repeatable(void **state)
{
    struct shape_list shapes = {0}, a = {0}, b = {0};
    (void)state;
    assert_int_equal(shapes_read_default(&shapes, family(), SHAPES_TIMED), 0);
    shapes_random(&a, &shapes, &shapes, family(), 100, 3);
    shapes_random(&b, &shapes, &shapes, family(), 100, 3);
    assert_int_equal(a.count, 100);
    assert_int_equal(b.count, 100);
    for (size_t i = 0; i < 100; i++) {
        assert_memory_equal(a.item[i].problem, b.item[i].problem, family()->problem_size);
        for (size_t k = 0; k < shapes.count; k++)
            assert_false(memcmp(a.item[i].key.codes, shapes.item[k].key.codes,
                                sizeof a.item[i].key.codes) == 0 &&
                         fabsf(gen__key_log2(&a.item[i].key, 0) -
                               gen__key_log2(&shapes.item[k].key, 0)) < 1e-4f);
    }
    shapes_free(&a);
    shapes_free(&b);
    shapes_free(&shapes);
}

static int32_t value_of(const struct shape *shape, const struct gen__field *field)
{
    return gen__field_get(field, shape->problem);
}

/* Segments of one chunk, for one, which no problem of the file asks for and which are far slower.
 */
static void random_problems_leave_what_no_shape_sets(void **state)
{
    (void)state;
    int unset = 0;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        const struct gen__family *one = gen__families[f];
        struct shape_list shapes = {0}, random = {0}, none = {0};
        shapes_load(&shapes, one, SHAPES_TIMED, NULL);
        shapes_random(&random, &shapes, &none, one, 50, 1);
        for (uint32_t i = 0; i < one->num_fields; i++) {
            const struct gen__field *field = &one->fields[i];
            bool set = field->values != NULL;
            for (size_t k = 0; k < shapes.count; k++)
                set = set || value_of(&shapes.item[k], field) > 0;
            unset += !set;
            for (size_t k = 0; k < random.count && !set; k++)
                if (value_of(&random.item[k], field) != value_of(&shapes.item[0], field))
                    fail_msg("%s: %s is %d", one->name, field->name,
                             (int)value_of(&random.item[k], field));
        }
        shapes_free(&shapes);
        shapes_free(&random);
    }
    assert_true(unset > 0);
}

/* ---- buffers ----------------------------------------------------------- */

/* What the tuner verifies variants with; the timed problem itself may take the reference hours. */
static void every_tuned_key_has_a_small_problem(void **state)
{
    (void)state;
    for (uint32_t f = 0; f < gen__num_families; f++) {
        struct shape_list shapes = {0}, small = {0};
        shapes_load(&shapes, gen__families[f], SHAPES_TIMED, NULL);
        verify_small(&small, gen__families[f]);
        for (size_t i = 0; i < shapes.count; i++)
            if (!shapes_of_key(&small, &shapes.item[i]))
                fail_msg("%s: no small problem", shapes.item[i].name);
        for (size_t i = 0; i < small.count; i++) {
            double bytes, flops;
            small.item[i].family->cost(small.item[i].problem, &bytes, &flops);
            if (!(flops < 2e9 && bytes < 1e8 && !small.item[i].key.empty))
                fail_msg("%s: %g FLOPs, %g bytes", small.item[i].name, flops, bytes);
        }
        shapes_free(&shapes);
        shapes_free(&small);
    }
}

static void the_footprint_is_the_state(void **state)
{
    struct shape_list list = {0};
    uint64_t inplace, touched;
    (void)state;
    assert_true(
        shapes_parse(&list, family(), SHAPES_TIMED, "batch=16 num_qk_heads=64 head_dim=128"));
    problem_footprint(family(), list.item[0].problem, &inplace, &touched);
    assert_int_equal(inplace, 16ull * 64 * 128 * 128 * 4);
    assert_true(touched > inplace && touched < inplace + (2u << 20));
    assert_int_equal(sets_beyond_cache(inplace, 60u << 20, 1000), 3);
    assert_int_equal(sets_beyond_cache(1ull << 30, 60u << 20, 1000), 2);
    assert_int_equal(sets_beyond_cache(1, 60u << 20, 1000), 1000);
    shapes_free(&list);
}

/* Rests are for what the tensor cores bound, not for what the memory does. */
static void tensor_bound_problems_rest(void **state)
{
    (void)state;
    struct shape_list list = {0};
    assert_true(shapes_parse(&list, &gen__family_attn_fwd, SHAPES_TIMED,
                             "batch=4 num_q_heads=32 q_len=2048 head_dim=128"));
    assert_true(shapes_parse(&list, &gen__family_attn_fwd, SHAPES_TIMED,
                             "batch=4 num_q_heads=32 q_len=1 kv_len=2048 head_dim=128"));
    assert_true(
        shapes_parse(&list, family(), SHAPES_TIMED, "batch=16 num_qk_heads=64 head_dim=128"));
    assert_true(shape_rest_ms(&list.item[0], 20) == 20 && shape_rest_ms(&list.item[0], 0) == 0);
    assert_true(shape_rest_ms(&list.item[1], 20) == 0);
    assert_true(shape_rest_ms(&list.item[2], 20) == 0);
    shapes_free(&list);
}

static void tensors_do_not_overlap(void **state)
{
    struct shape_list list = {0};
    struct buffers b;
    (void)state;
    assert_true(shapes_parse(&list, family(), SHAPES_TIMED, "batch=3 num_qk_heads=2 head_dim=64"));
    assert_true(buffers_init(&b, family(), list.item[0].problem, BUFFERS_DEFAULT_FORM, 3, true));
    uint8_t *block = xmalloc(b.total_bytes), *seen = xmalloc(b.total_bytes);
    memset(seen, 0, b.total_bytes);
    buffers_fill(&b, &(struct fill_options){.seed = 1, .padding = true}, block);
    for (uint32_t set = 0; set < b.num_sets; set++) {
        for (uint32_t t = 0; t < b.num_tensors; t++) {
            const uint64_t at = buffers_at(&b, set, t);
            assert_int_equal(at % 256, 16);
            if (set && !b.tensor[t].cold)
                continue;
            assert_true(at >= BUFFERS_GUARD);
            assert_true(at + b.bytes[t] + BUFFERS_GUARD <= b.total_bytes);
            for (uint64_t i = 0; i < b.bytes[t]; i++)
                assert_int_equal(seen[at + i]++, 0);
            assert_int_equal(block[at - 1], BUFFERS_CANARY);
            assert_int_equal(block[at + b.bytes[t]], BUFFERS_CANARY);
        }
    }
    free(block);
    free(seen);
    buffers_free(&b);
    shapes_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_log_gives_the_problems_that_were_asked),
        cmocka_unit_test(what_the_runtime_logs_is_read),
        cmocka_unit_test(shape_files_name_their_bad_lines),
        cmocka_unit_test(unknown_words_are_errors),
        cmocka_unit_test(what_follows_a_field_goes_along),
        cmocka_unit_test(the_shape_file_holds_the_published_cases),
        cmocka_unit_test(the_grid_spans_the_shapes),
        cmocka_unit_test(a_problem_is_found_by_its_coordinates),
        cmocka_unit_test(random_problems_are_new_and_repeatable),
        cmocka_unit_test(random_problems_leave_what_no_shape_sets),
        cmocka_unit_test(every_tuned_key_has_a_small_problem),
        cmocka_unit_test(the_footprint_is_the_state),
        cmocka_unit_test(tensor_bound_problems_rest),
        cmocka_unit_test(tensors_do_not_overlap),
    };
    util_set_program("test-problems");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
