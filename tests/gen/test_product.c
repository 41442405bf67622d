/* The product and the catalog: their bytes, what they say of a variant, and what
 * changes a digest. */
#include "format/product.h"
#include "support.h"

#define BUILD(...) attngen("build", "--templates", FIXTURES, "-q", __VA_ARGS__, NULL)

/* ---- the product -------------------------------------------------------------------- */

struct product {
    char *data;
    size_t size;
    struct gen_pack_footer footer;
    struct gen_pack_index index;
};

static struct product open_product(const char *name)
{
    struct product p;
    p.data = get(in_scratch("%s", name), &p.size);
    assert_true(p.size > sizeof p.footer + sizeof p.index);
    memcpy(&p.footer, p.data + p.size - sizeof p.footer, sizeof p.footer);
    assert_memory_equal(p.footer.magic, GEN_PACK_MAGIC, 8);
    assert_int_equal(p.footer.version, GEN_PACK_VERSION);
    assert_int_equal(p.footer.index_offset + p.footer.index_size + sizeof p.footer, p.size);
    assert_true(gen_pack_seal(&p.footer, p.data + p.footer.index_offset) == p.footer.hash);
    memcpy(&p.index, p.data + p.footer.index_offset, sizeof p.index);
    return p;
}

static const char *string(const struct product *p, uint32_t offset)
{
    assert_true(offset < p->index.strings_size);
    return p->data + p->index.strings_offset + offset;
}

#define ROW(type, p, area, i) \
    ((const struct type *)(void *)((p)->data + (p)->index.area##_offset) + (i))

/* Of a group; *end: where the image in front of it ends. */
static void check_variant(const struct product *p, uint32_t i, uint32_t group, uint64_t *end)
{
    const struct gen_pack_variant *v = ROW(gen_pack_variant, p, variants, i);
    assert_int_equal(v->group, group);
    assert_string_equal(string(p, v->symbol), string(p, v->name));
    assert_true(i == 0 || strcmp(string(p, v[-1].name), string(p, v->name)) < 0);
    assert_true(gen_pack_image_follows(v, p->footer.index_offset, end));
    assert_true(gen_pack_hash(p->data + v->image_offset, gen_pack_room(v->image_size)) ==
                v->image_hash);
    /* A fatbin's magic number. */
    assert_memory_equal(p->data + v->image_offset, "\x50\xed\x55\xba", 4);
    assert_true(v->registers > 0 && v->registers <= 64);
    assert_int_equal(v->cluster, 1);
    assert_int_equal(v->facts[0] % 32, 0);
    assert_int_equal(v->shared_dynamic, v->facts[1] ? v->facts[0] * 8 : 0);
}

static void product_holds_what_was_built(void **state)
{
    (void)state;
    put("tables/sm90_132sm.tsv",
        "# attngen tuning table\n# format: 1\n# class: sm90_132sm\n# compute_capability: 90\n"
        "# num_sms: 132\n# memory_gbps: 4814\n# l2_bytes: 62914560\n"
        "family\trequired\tproblem\tvariant\tus\tdigest\n");
    put("tables/sm80_108sm.tsv", "# another\nrow\n");
    put("tables/readme.txt", "no table\n");
    struct outcome o = BUILD("-t", "sm_90a,sm_80,ptx", "-o", "all.fatbin", "--tables", "tables");
    assert_run(o, 0);
    outcome_free(&o);
    struct product p = open_product("all.fatbin");
    assert_int_equal(p.index.num_variants, 24 + 14 + 14);
    assert_int_equal(p.index.num_targets, 3);
    assert_int_equal(p.index.num_groups, 6);
    assert_int_equal(p.index.num_tables, 2);
    int major, minor;
    assert_int_equal(sscanf(string(&p, p.index.toolkit), "%d.%d", &major, &minor), 2);
    const struct gen_pack_family *family = ROW(gen_pack_family, &p, families, 0);
    assert_string_equal(string(&p, family->name), "tiny");
    assert_string_equal(string(&p, family->required), "dtype");
    assert_string_equal(string(&p, family->facts), "elements,ring");
    const struct gen_pack_table *table = ROW(gen_pack_table, &p, tables, 0);
    assert_string_equal(string(&p, table[0].name), "sm80_108sm");
    assert_int_equal(table[0].refused, 1);
    assert_string_equal(string(&p, table[0].reason),
                        "the first line is not \"# attngen tuning table\"");
    assert_string_equal(string(&p, table[1].name), "sm90_132sm");
    assert_string_equal(string(&p, table[1].class_name), "sm90_132sm");
    assert_int_equal(table[1].num_sms, 132);
    assert_int_equal(table[1].refused + table[1].num_rows + table[1].num_bad, 0);

    uint32_t next = 0;
    uint64_t end = 0;
    for (uint32_t g = 0; g < p.index.num_groups; g++) {
        const struct gen_pack_group *group = ROW(gen_pack_group, &p, groups, g);
        assert_int_equal(group->first_variant, next);
        next += group->num_variants;
        const struct gen_pack_variant *fallback =
            ROW(gen_pack_variant, &p, variants, group->fallback_variant);
        assert_holds(string(&p, fallback->name), "_v1_w4_plain");
        for (uint32_t i = group->first_variant; i < next; i++)
            check_variant(&p, i, g, &end);
    }
    assert_int_equal(next, p.index.num_variants);
    assert_int_equal(end, p.footer.index_offset);
    free(p.data);
}

static void product_hangs_on_the_sources_alone(void **state)
{
    (void)state;
    copy_fixtures("here/templates");
    copy_fixtures("there/a/much/longer/way/templates");
    environment("LC_ALL", "de_DE.UTF-8");
    environment("TZ", "Asia/Tokyo");
    struct outcome o =
        attngen("build", "--templates", "here/templates", "-t", "sm_90a,ptx", "-j1", "-o",
                "here/p.fatbin", "--catalog", "here/c.tsv", "--cache", "here/cache", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    environment("LC_ALL", "C");
    environment("TZ", NULL);
    o = attngen("build", "--templates", in_scratch("there/a/much/longer/way/templates"), "-t",
                "compute_80,90a", "-j8", "-o", "there/p.fatbin", "--catalog", "there/c.tsv",
                "--cache", "there/cache", NULL);
    assert_run(o, 0);
    assert_holds(o.err, "cached 0");
    outcome_free(&o);
    assert_true(same_files(in_scratch("here/p.fatbin"), in_scratch("there/p.fatbin")));
    assert_true(same_files(in_scratch("here/c.tsv"), in_scratch("there/c.tsv")));
    environment("LC_ALL", NULL);
}

static void catalog_says_it_all(void **state)
{
    (void)state;
    struct outcome o =
        BUILD("-t", "sm_90a", "-o", "c.fatbin", "--catalog", "c.tsv", "--only", "*_v2_*");
    assert_run(o, 0);
    outcome_free(&o);
    char *text = get(in_scratch("c.tsv"), NULL);
    assert_int_equal(strncmp(text, "# attngen catalog 2\n# generated by attngen ", 43), 0);
    assert_holds(text, ": do not edit\n");
    assert_holds(text,
                 "\n# regenerate: attngen build --targets sm_90a --only '*_v2_*' --catalog FILE\n");
    const char *rows = strstr(text, "\nname\tfamily") + 1;
    /* Four of v2 for each type, and the fallback of each. */
    assert_int_equal(count_rows(rows), 10);
    static const struct {
        const char *column, *value;
    } cells[] = {{"name", "tiny_fp32__sm90a_v2_w1_ring"},
                 {"family", "tiny"},
                 {"required", "tiny_fp32"},
                 {"target", "sm_90a"},
                 {"axes", "dtype=fp32;width=2;warps=1;path=ring"},
                 {"threads", "32"},
                 {"shared_dynamic", "512"},
                 {"shared_static", "0"},
                 {"cluster", "1"},
                 {"fallback", "0"}};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        char *value = cell(rows, 2, cells[i].column);
        assert_string_equal(value, cells[i].value);
        free(value);
    }
    char *digest = cell(rows, 2, "digest"), *code = cell(rows, 2, "code");
    assert_int_equal(strlen(digest), 16);
    assert_int_equal(strlen(code), 16);
    struct product p = open_product("c.fatbin");
    for (uint32_t i = 0; i < p.index.num_variants; i++) {
        const struct gen_pack_variant *v = ROW(gen_pack_variant, &p, variants, i);
        if (strcmp(string(&p, v->name), "tiny_fp32__sm90a_v2_w1_ring") == 0) {
            assert_int_equal(v->source_digest, strtoull(digest, NULL, 16));
            assert_int_equal(v->code_digest, strtoull(code, NULL, 16));
        }
    }
    free(p.data);
    free(digest);
    free(code);
    free(text);
}

static void catalog_says_line_info(void **state)
{
    (void)state;
    struct outcome o = BUILD("-t", "sm_90a", "-o", "l.fatbin", "--catalog", "l.tsv", "--line-info");
    assert_run(o, 0);
    outcome_free(&o);
    char *text = get(in_scratch("l.tsv"), NULL);
    assert_holds(text, "\n# selection: targets=sm_90a line-info\n"
                       "# regenerate: attngen build --targets sm_90a --line-info --catalog FILE\n");
    free(text);
    o = attngen("check", "--templates", FIXTURES, "--catalog", "l.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
}

static uint64_t product_digest(const char *templates, const char *tables)
{
    struct outcome o = attngen("build", "--templates", templates, "-t", "sm_90a", "-q", "-o",
                               "digest.fatbin", tables != NULL ? "--tables" : NULL, tables, NULL);
    assert_run(o, 0);
    outcome_free(&o);
    struct product p = open_product("digest.fatbin");
    free(p.data);
    return p.footer.product_digest;
}

/* A plan made with one product is refused by another that has the same kernels
 * but launches them in another way; tables make no difference. */
static void product_digest_covers_the_launch(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"shared = v.path == \"ring\" and threads * v.width * 8 or 0", "shared = 1024"},
        {"ring = v.path == \"ring\" and 1 or 0", "ring = 7"},
        {"v.width == 1 and v.warps == 4", "v.width == 2 and v.warps == 4"},
        {"{ name = \"dtype\"", "{ name = \"type\""},
    };
    put("digest-tables/sm90_132sm.tsv", "# attngen tuning table\n");
    uint64_t before = product_digest(copy_fixtures("d"), NULL);
    assert_true(product_digest(copy_fixtures("d"), "digest-tables") == before);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        const char *folder = copy_fixtures("d");
        edit("d/tiny/family.lua", edits[i][0], edits[i][1]);
        if (strstr(edits[i][1], "\"type\"") != NULL)
            edit("d/tiny/family.lua", "v.dtype", "v.type");
        if (product_digest(folder, NULL) == before)
            fail_msg("the same digest with '%s'", edits[i][1]);
    }
}

/* ---- digests ------------------------------------------------------------------------- */

static char *digest_of(const char *templates)
{
    struct outcome o = attngen("why", "tiny_fp32__sm90a_v1_w4_plain", "--templates", templates,
                               "--format", "tsv", NULL);
    assert_run(o, 0);
    const char *line = strstr(o.out, "\ndigest\t");
    assert_non_null(line);
    char *digest = strndup(line + 8, 16);
    outcome_free(&o);
    return digest;
}

static void digest_follows_what_is_compiled(void **state)
{
    (void)state;
    static const struct {
        const char *file, *old, *new;
        bool changes;
    } cases[] = {
        {"tiny/tiny.cu.in", "p.count)", "p.count )", false},
        {"tiny/tiny.cu.in", "p.count)", "p.count + 1)", true},
        {"lib/scale.cuh", "* x", "* (x)", true},
        {"tiny/args.h", "long long count", "long count", true},
        {"tiny/args.h", "long long count", "long long /* of items */\n     count", false},
        {"tiny/tiny.cu.in", "// y = x / 2", "// y = x / 2\n\n// that is all", false},
        {"lib/scale.cuh", "#pragma once", "// why\n#pragma  once // what", false},
        {"tiny/family.lua", "f32(0.5)", "f32(0.25)", true},
        {"tiny/family.lua", "is never the best", "never wins", false},
        {"tiny/tiny.cu.in", "$ assert(WIDTH <= 8)", "$ assert(WIDTH <= 9)", false},
    };
    char *before = digest_of(copy_fixtures("d"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[64];
        const char *folder = copy_fixtures("d");
        snprintf(name, sizeof name, "d/%s", cases[i].file);
        edit(name, cases[i].old, cases[i].new);
        char *after = digest_of(folder);
        if ((strcmp(before, after) != 0) != cases[i].changes)
            fail_msg("%s: '%s' to '%s': digest %s, then %s", cases[i].file, cases[i].old,
                     cases[i].new, before, after);
        free(after);
    }
    put("d/lib/unused.cuh", "#error\n");
    char *after = digest_of(copy_fixtures("d"));
    assert_string_equal(before, after);
    free(after);
    free(before);
}

/* The compiler would read it, and a change of it would go unnoticed. */
static void an_include_from_the_root_is_refused(void **state)
{
    (void)state;
    char line[512];
    put("outside.cuh", "\n");
    snprintf(line, sizeof line, "#include \"%s\"\n// y", in_scratch("outside.cuh"));
    copy_fixtures("d");
    edit("d/tiny/tiny.cu.in", "// y", line);
    struct outcome o = attngen("check", "--templates", "d", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "tiny/tiny.cu.in:1: #include \"/");
    assert_holds(o.err, "outside.cuh\": its path leads out of the templates folder; allowed: "
                        "#include \"FILE\" with a file below the templates folder, as "
                        "\"lib/x.cuh\", or <FILE>, in a line by itself");
    outcome_free(&o);
    static const char *const lines[][2] = {
        {"# include </usr/include/math.h>", "its path leads out"},
        {"#include \"lib/../../outside.cuh\"", "its path leads out"},
        {"#include \"..\"", "its path leads out"},
        {"#/**/include \"/usr/include/math.h\"", "a comment is within it"},
        {"#define WHICH \"lib/x.cuh\"\n#include WHICH", "its file is not named in it"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char place[64];
        copy_fixtures("d");
        snprintf(line, sizeof line, "\n#pragma once\n%s", lines[i][0]);
        edit("d/lib/scale.cuh", "#pragma once", line);
        o = attngen("check", "--templates", "d", NULL);
        assert_run(o, 1);
        snprintf(place, sizeof place, "lib/scale.cuh:%d: ", i < 4 ? 3 : 4);
        assert_holds(o.err, place);
        assert_holds(o.err, lines[i][1]);
        outcome_free(&o);
    }
    /* Names that only look like a way out. */
    copy_fixtures("d");
    put("d/lib/..x", "");
    edit("d/lib/scale.cuh", "#pragma once", "#pragma once\n#include \"lib/..x\"");
    o = attngen("check", "--templates", "d", NULL);
    assert_run(o, 0);
    outcome_free(&o);
}

/* A header named in angle brackets is read from the templates, too, and its text counts. */
static void headers_in_angle_brackets_count(void **state)
{
    (void)state;
    const char *folder = copy_fixtures("d");
    edit("d/tiny/tiny.cu.in", "\"lib/scale.cuh\"", "<lib/scale.cuh>");
    char *before = digest_of(folder);
    edit("d/lib/scale.cuh", "* x", "* (x)");
    char *after = digest_of(folder);
    assert_string_not_equal(before, after);
    free(before);
    free(after);
    struct outcome o = attngen("build", "--templates", "d", "-t", "sm_90a", "-q", "--only",
                               "tiny_fp32*v1_w1_plain", "-o", "angle.fatbin", NULL);
    assert_run(o, 0);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product_holds_what_was_built),
        cmocka_unit_test(product_hangs_on_the_sources_alone),
        cmocka_unit_test(catalog_says_it_all),
        cmocka_unit_test(catalog_says_line_info),
        cmocka_unit_test(product_digest_covers_the_launch),
        cmocka_unit_test(digest_follows_what_is_compiled),
        cmocka_unit_test(an_include_from_the_root_is_refused),
        cmocka_unit_test(headers_in_angle_brackets_count),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
