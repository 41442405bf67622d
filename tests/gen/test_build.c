/* Builds: the product's bytes, the gates, subsets, limits, what changes a
 * digest, and the plan against the build. */
#include "pack_format.h"
#include "support.h"

#include <math.h>
#include <sys/stat.h>

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
    assert_int_equal(gen_pack_hash(p.data + p.footer.index_offset, p.footer.index_size),
                     p.footer.index_hash);
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

static void product_holds_what_was_built(void **state)
{
    (void)state;
    put("tables/sm90_132sm.tsv", "# attngen tuning table\n");
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
    assert_int_equal(table[0].size, 14);
    assert_memory_equal(p.data + table[0].offset, "# another\nrow\n", 14);
    assert_string_equal(string(&p, table[1].name), "sm90_132sm");

    uint32_t next = 0;
    for (uint32_t g = 0; g < p.index.num_groups; g++) {
        const struct gen_pack_group *group = ROW(gen_pack_group, &p, groups, g);
        assert_int_equal(group->first_variant, next);
        next += group->num_variants;
        const struct gen_pack_variant *fallback =
            ROW(gen_pack_variant, &p, variants, group->fallback_variant);
        assert_holds(string(&p, fallback->name), "_v1_w4_plain");
        for (uint32_t i = group->first_variant; i < next; i++) {
            const struct gen_pack_variant *v = ROW(gen_pack_variant, &p, variants, i);
            assert_int_equal(v->group, g);
            assert_string_equal(string(&p, v->symbol), string(&p, v->name));
            assert_true(i == 0 || strcmp(string(&p, v[-1].name), string(&p, v->name)) < 0);
            assert_int_equal(v->image_offset % 16, 0);
            assert_true(v->image_offset + v->image_size <= p.footer.index_offset);
            /* A fatbin's magic number. */
            assert_memory_equal(p.data + v->image_offset, "\x50\xed\x55\xba", 4);
            assert_true(v->registers > 0 && v->registers <= 64);
            assert_int_equal(v->cluster, 1);
            assert_int_equal(v->facts[0] % 32, 0);
            assert_int_equal(v->shared_dynamic, v->facts[1] ? v->facts[0] * 8 : 0);
        }
    }
    assert_int_equal(next, p.index.num_variants);
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
    assert_int_equal(strncmp(text, "# attngen catalog 1\n# generated by attngen ", 43), 0);
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
    char *digest = cell(rows, 2, "digest");
    assert_int_equal(strlen(digest), 16);
    struct product p = open_product("c.fatbin");
    for (uint32_t i = 0; i < p.index.num_variants; i++) {
        const struct gen_pack_variant *v = ROW(gen_pack_variant, &p, variants, i);
        if (strcmp(string(&p, v->name), "tiny_fp32__sm90a_v2_w1_ring") == 0)
            assert_int_equal(v->digest, strtoull(digest, NULL, 16));
    }
    free(p.data);
    free(digest);
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
        {"tiny/tiny.cu.in", "p.count)", "p.count )", true},
        {"lib/scale.cuh", "* x", "* (x)", true},
        {"tiny/args.h", "long long count", "long long  count", true},
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
    assert_holds(o.err, "tiny/tiny.cu.in: #include \"/");
    assert_holds(o.err, "outside.cuh\": a path from the root; allowed: files below the templates "
                        "folder, as \"lib/x.cuh\"");
    outcome_free(&o);
    copy_fixtures("d");
    edit("d/lib/scale.cuh", "#pragma once", "#pragma once\n # include </usr/include/math.h>");
    o = attngen("check", "--templates", "d", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "lib/scale.cuh: #include </usr/include/math.h>: a path from the root");
    outcome_free(&o);
}

/* ---- gates --------------------------------------------------------------------------- */

/* Kernels that a gate must catch: which, by the axis `fault`. */
static const char faulty_family[] =
    "return family {\n"
    "  name = \"bad\", required = {}, facts = {},\n"
    "  free = { { name = \"fault\", values = { \"none\", \"spill\", \"stack\", \"smem\", \"regs\" "
    "} } },\n"
    "  legal = function(v, arch) return true end,\n"
    "  plan = function(v, arch) return { threads = v.fault == \"spill\" and 1024 or 32,\n"
    "    shared = v.fault == \"smem\" and arch.shared_per_block or 0, cluster = 1,\n"
    "    max_registers = v.fault == \"regs\" and 24 or 255, facts = {} } end,\n"
    "  template = function(v) return \"bad.cu.in\" end,\n"
    "  fallback = function(v) return v.fault == \"none\" end,\n"
    "}\n";
static const char faulty_template[] =
    "extern \"C\" __global__ void __launch_bounds__(${THREADS}) ${NAME}(float *x, int n)\n"
    "{\n"
    "$ if FAULT == \"stack\" then\n"
    "    float a[64];\n"
    "    for (int i = 0; i < 64; i++)\n"
    "        a[(i * n) & 63] = x[i];\n"
    "    x[n] = a[n & 63];\n"
    "$ elseif FAULT == \"spill\" or FAULT == \"regs\" then\n"
    "    float a[${FAULT == \"spill\" and 160 or 48}];\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < ${FAULT == \"spill\" and 160 or 48}; i++)\n"
    "        a[i] = x[i * n];\n"
    "    __syncthreads();\n"
    "    asm volatile(\"\" ::: \"memory\");\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < ${FAULT == \"spill\" and 160 or 48}; i++)\n"
    "        x[i * n + threadIdx.x] = a[i];\n"
    "$ else\n"
    "    __shared__ float s[32];\n"
    "    s[threadIdx.x] = x[threadIdx.x];\n"
    "    __syncthreads();\n"
    "    x[threadIdx.x] = s[threadIdx.x ^ n];\n"
    "$ end\n"
    "}\n";

static void gates_refuse_with_a_reason(void **state)
{
    (void)state;
    put("g/bad/family.lua", faulty_family);
    put("g/bad/bad.cu.in", faulty_template);
    struct outcome o = attngen("build", "--templates", "g", "-t", "sm_90a", "-o", "g.fatbin",
                               "--catalog", "g.tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.err, "refused: bad__sm90a_spill: spills registers: ");
    assert_holds(o.err, "refused: bad__sm90a_stack: uses local memory: a stack frame of 256 bytes");
    assert_holds(o.err,
                 "refused: bad__sm90a_smem: needs 232576 bytes of shared memory (128 static, "
                 "232448 dynamic), sm_90a allows 232448");
    assert_holds(o.err, "refused: bad__sm90a_regs: uses ");
    assert_holds(o.err, "registers, its plan allows 24");
    assert_holds(o.err, "g.fatbin: 1 variants");
    assert_holds(o.err, "compiled 5, cached 0, refused 4");
    outcome_free(&o);
    char *catalog = get(in_scratch("g.tsv"), NULL);
    assert_int_equal(count_rows(strstr(catalog, "\nname\t") + 1), 5); /* one row, four refused */
    assert_holds(catalog, "\n# refused\tbad__sm90a_stack\t");
    free(catalog);
    o = attngen("why", "bad__sm90a_stack", "--templates", "g", "--format", "tsv", NULL);
    assert_run(o, 0);
    assert_holds(o.out,
                 "compiled\trefused\nreason\tuses local memory: a stack frame of 256 bytes\n");
    outcome_free(&o);
    /* On PTX the facts come from a compile for sm_80. */
    o = attngen("build", "--templates", "g", "-t", "ptx", "-o", "g.fatbin", NULL);
    assert_run(o, 0);
    assert_holds(o.err, "refused: bad__ptx80_stack: uses local memory");
    outcome_free(&o);
}

static void a_key_needs_its_fallback(void **state)
{
    (void)state;
    put("g/bad/family.lua", faulty_family);
    put("g/bad/bad.cu.in", faulty_template);
    edit("g/bad/family.lua", "v.fault == \"none\" end", "v.fault == \"stack\" end");
    struct outcome o =
        attngen("build", "--templates", "g", "-t", "sm_90a", "-o", "no.fatbin", NULL);
    assert_run(o, 1);
    assert_holds(o.err,
                 "bad/family.lua: required key bad is left with no fallback on sm_90a: "
                 "bad__sm90a_stack was refused: uses local memory: a stack frame of 256 bytes");
    outcome_free(&o);
    edit("g/bad/family.lua", "\"none\", \"spill\", ", "");
    o = attngen("build", "--templates", "g", "-t", "sm_90a", "-o", "no.fatbin", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "required key bad is left with no variant on sm_90a");
    outcome_free(&o);
    assert_int_equal(count_files(in_scratch("no.fatbin")), 0);
}

/* ---- subsets and limits --------------------------------------------------------------- */

static int built(const struct outcome *o)
{
    char *value = cell(o->out, 0, "variants");
    int count = atoi(value);
    free(value);
    return count;
}

static void subsets(void **state)
{
    (void)state;
    struct outcome o =
        BUILD("-t", "sm_90a", "-o", "s.fatbin", "--format", "tsv", "--only", "*fp32*_v8_*");
    assert_run(o, 0);
    assert_int_equal(built(&o), 3); /* v8_w4_plain, v8_w4_ring and the fallback */
    outcome_free(&o);
    o = BUILD("-t", "sm_90a", "-o", "s.fatbin", "--only", "nothing*");
    assert_run(o, 1);
    assert_holds(o.err,
                 "--only: 'nothing*' matches none of 24 variants, such as tiny_fp32__sm90a_");
    outcome_free(&o);
    o = BUILD("-t", "sm_90a", "-f", "tiny,giant", "-o", "s.fatbin");
    assert_run(o, 1);
    assert_holds(o.err, "there is no family 'giant'");
    outcome_free(&o);
}

static void from_a_table(void **state)
{
    (void)state;
    static const char table[] = "# attngen tuning table\n"
                                "family\trequired\tproblem\tvariant\tus\tdigest\n"
                                "tiny\ttiny_fp32\tcount=1\ttiny_fp32__sm90a_v4_w4_ring\t1\t0\n"
                                "tiny\ttiny_fp32\tcount=2\ttiny_fp32__sm90a_v4_w4_ring\t1\t0\n"
                                "tiny\ttiny_fp32\tcount=3\ttiny_fp32__sm90a_v3_w4_gone\t1\t0\n";
    put("pick.tsv", table);
    struct outcome o = attngen("build", "--templates", FIXTURES, "-t", "sm_90a", "-o", "f.fatbin",
                               "--format", "tsv", "--from-table", "pick.tsv", NULL);
    assert_run(o, 0);
    assert_int_equal(built(&o), 3); /* the pick and two fallbacks */
    assert_holds(o.err, "pick.tsv: 1 rows name no variant of these families and targets");
    outcome_free(&o);
    put("pick.tsv", "# attngen tuning table\nfamily\tname\nx\ty\n");
    o = BUILD("-t", "sm_90a", "--from-table", "pick.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "pick.tsv:2: no column 'variant' in the line of column names");
    outcome_free(&o);
    put("pick.tsv", "family\tvariant\ntiny\tnone\n");
    o = BUILD("-t", "sm_90a", "--from-table", "pick.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "pick.tsv: none of its 1 rows names a variant");
    outcome_free(&o);
    o = BUILD("-t", "sm_90a", "--from-table", "gone.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "--from-table: gone.tsv: cannot read it: No such file");
    outcome_free(&o);
}

static void max_bytes(void **state)
{
    (void)state;
    put("limit.fatbin", "the old one");
    struct outcome o = BUILD("-t", "sm_90a", "-o", "limit.fatbin", "--max-bytes", "10K");
    assert_run(o, 1);
    assert_holds(o.err, "--max-bytes: ");
    assert_holds(o.err, "allowed: 10000");
    outcome_free(&o);
    char *old = get(in_scratch("limit.fatbin"), NULL);
    assert_string_equal(old, "the old one");
    free(old);
    o = BUILD("-t", "sm_90a", "-o", "limit.fatbin", "--max-bytes", "10MiB");
    assert_run(o, 0);
    outcome_free(&o);
    o = attngen("plan", "--templates", FIXTURES, "-t", "sm_90a", "--max-bytes", "10K", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "bytes are planned; allowed: 10000");
    outcome_free(&o);
}

static void bad_tables(void **state)
{
    (void)state;
    put("t1/a.tsv", "x\n");
    put("t2/a.tsv", "y\n");
    struct outcome o = BUILD("-t", "sm_90a", "--tables", "t1", "--tables", "t2/a.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "--tables: two tables are named a");
    outcome_free(&o);
    o = BUILD("-t", "sm_90a", "--tables", "nowhere.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "--tables: nowhere.tsv: cannot read it");
    outcome_free(&o);
    o = BUILD("-t", "sm_90a", "--tables", "no-such-folder");
    assert_run(o, 1);
    assert_holds(o.err, "--tables: no-such-folder: cannot read it: No such file or directory");
    outcome_free(&o);
    assert_int_equal(mkdir(in_scratch("t3"), 0777), 0);
    o = BUILD("-t", "sm_90a", "-o", "no-table.fatbin", "--tables", "t3");
    assert_run(o, 0);
    outcome_free(&o);
    put("t1/a.txt", "x\n");
    o = BUILD("-t", "sm_90a", "--tables", "t1/a.txt");
    assert_run(o, 1);
    assert_holds(o.err, "--tables: t1/a.txt is no table; allowed: files named <class>.tsv, folders "
                        "of them");
    outcome_free(&o);
}

/* A plan packs tables without variants. */
static void many_tables(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/sm90_%dsm.tsv", i);
        put(name, "x\n");
    }
    struct outcome o =
        attngen("plan", "--templates", FIXTURES, "-t", "sm_90a", "--tables", "many", NULL);
    assert_run(o, 0);
    outcome_free(&o);
}

static void output_that_cannot_be_written(void **state)
{
    (void)state;
    put("file", "x");
    struct outcome o = BUILD("-t", "sm_90a", "-o", "file/p.fatbin");
    assert_run(o, 1);
    assert_holds(o.err, "file/p.fatbin: cannot write it: ");
    outcome_free(&o);
    o = BUILD("-t", "sm_90a", "--cache", "file/cache");
    assert_run(o, 1);
    assert_holds(o.err, "file/cache: cannot make the cache folder: ");
    outcome_free(&o);
}

/* ---- plan and build --------------------------------------------------------------------- */

static double number(const struct outcome *o, int row, const char *column)
{
    char *text = cell(o->out, row, column);
    double value = strtod(text, NULL);
    free(text);
    return value;
}

/* A hundred variants of widely different cost, of which the plan compiles a
 * quarter. */
static void plan_predicts_the_build(void **state)
{
    (void)state;
    put("p/cost/family.lua",
        "return family {\n"
        "  name = \"cost\", required = {}, facts = {},\n"
        "  free = { { name = \"n\", values = { 1, 2, 4, 8, 16, 32, 48, 64, 80, 96 } },\n"
        "    { name = \"m\", values = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 } } },\n"
        "  legal = function(v, arch) return true end,\n"
        "  plan = function(v, arch) return { threads = 32, shared = 0, cluster = 1, max_registers "
        "= 255,\n"
        "    facts = {} } end,\n"
        "  template = function(v) return \"cost.cu.in\" end,\n"
        "  fallback = function(v) return v.n == 1 and v.m == 1 end,\n"
        "}\n");
    put("p/cost/cost.cu.in", "extern \"C\" __global__ void ${NAME}(float *x)\n"
                             "{\n"
                             "$ for i = 1, N do\n"
                             "    x[${i * M}] = sqrtf(x[${i * i}]) + ${i};\n"
                             "$ end\n"
                             "}\n");
    struct outcome plan =
        attngen("plan", "--templates", "p", "-t", "sm_90a", "--format", "tsv", NULL);
    assert_run(plan, 0);
    assert_int_equal((int)number(&plan, 0, "variants"), 100);
    assert_int_equal((int)number(&plan, 0, "cached"), 24);
    struct outcome build =
        attngen("build", "--templates", "p", "-t", "sm_90a", "--format", "tsv", NULL);
    assert_run(build, 0);
    assert_int_equal((int)number(&build, 0, "compiled"), 76);
    double planned = number(&plan, 1, "cpu_seconds"), left = number(&plan, 1, "cpu_seconds_left");
    double total = number(&build, 0, "cpu_seconds_total"), spent = number(&build, 0, "cpu_seconds");
    double bytes = number(&plan, 1, "bytes"), size = number(&build, 0, "bytes");
    print_message(
        "CPU-seconds: planned %.2f, %.2f left; took %.2f, %.2f. Bytes: planned %.0f, took %.0f\n",
        planned, left, total, spent, bytes, size);
    assert_true(fabs(planned - total) <= 0.3 * total);
    assert_true(fabs(left - spent) <= 0.3 * spent);
    assert_true(fabs(bytes - size) <= 0.3 * size);
    outcome_free(&plan);
    outcome_free(&build);
    plan = attngen("plan", "--templates", "p", "-t", "sm_90a", "--format", "tsv", NULL);
    assert_run(plan, 0);
    assert_int_equal((int)number(&plan, 1, "cached"), 100);
    assert_true(number(&plan, 1, "cpu_seconds_left") == 0);
    outcome_free(&plan);
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
        cmocka_unit_test(gates_refuse_with_a_reason),
        cmocka_unit_test(a_key_needs_its_fallback),
        cmocka_unit_test(subsets),
        cmocka_unit_test(from_a_table),
        cmocka_unit_test(max_bytes),
        cmocka_unit_test(bad_tables),
        cmocka_unit_test(many_tables),
        cmocka_unit_test(output_that_cannot_be_written),
        cmocka_unit_test(plan_predicts_the_build),
    };
    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
