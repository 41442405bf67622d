/* Builds: the gates, subsets, limits and tables, and the plan against the
 * build. */
#include "support.h"

#include <unistd.h>

#include <math.h>
#include <sys/stat.h>

#define BUILD(...) attngen("build", "--templates", FIXTURES, "-q", __VA_ARGS__, NULL)

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

/* The catalog g.tsv with a row of bad__sm90a_stack in place of its refusal, as e.tsv. */
static void expect_stack(const char *digest)
{
    char *text = get(in_scratch("g.tsv"), NULL),
         *refused = strstr(text, "# refused\tbad__sm90a_stack");
    char *row = strstr(text, "\nbad__sm90a_none\t"), all[8192], digest_there[17] = "";
    assert_non_null(refused);
    assert_non_null(row);
    memcpy(digest_there, refused + strlen("# refused\tbad__sm90a_stack\t"), 16);
    snprintf(all, sizeof all, "%.*s", (int)(strchr(refused, '\n') + 1 - text), text);
    char *cut = strstr(all, "# refused\tbad__sm90a_stack");
    int size = (int)(strchr(row + 1, '\n') - row - 34); /* without both digests */
    snprintf(cut, sizeof all - (size_t)(cut - all), "bad__sm90a_stack%.*s\t%s\t-\n%s",
             size - (int)strlen("\nbad__sm90a_none"), row + strlen("\nbad__sm90a_none"),
             digest != NULL ? digest : digest_there, strchr(refused, '\n') + 1);
    put("e.tsv", all);
    free(text);
}

static void a_toolkit_that_refuses_more(void **state)
{
    (void)state;
    put("g/bad/family.lua", faulty_family);
    put("g/bad/bad.cu.in", faulty_template);
    struct outcome o = attngen("build", "--templates", "g", "-t", "sm_90a", "-q", "-o", "g.fatbin",
                               "--catalog", "g.tsv", "--expect", "e.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "e.tsv: cannot read it");
    outcome_free(&o);
    o = attngen("build", "--templates", "g", "-t", "sm_90a", "-q", "-o", "g.fatbin", "--catalog",
                "g.tsv", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    o = attngen("build", "--templates", "g", "-t", "sm_90a", "-q", "-o", "e.fatbin", "--expect",
                "g.tsv", NULL); /* four refused, as the catalog says */
    assert_run(o, 0);
    outcome_free(&o);
    unlink(in_scratch("e.fatbin"));
    expect_stack(NULL);
    o = attngen("build", "--templates", "g", "-t", "sm_90a", "-q", "-o", "e.fatbin", "--expect",
                "e.tsv", NULL);
    assert_run(o, 1);
    assert_holds(o.err, "attngen: CUDA toolkit ");
    assert_holds(o.err, " refuses 1 variants that e.tsv has, made with toolkit ");
    assert_holds(o.err, "; allowed: 0 (--allow-refused N makes the product without them):\n"
                        "  bad__sm90a_stack: uses local memory: a stack frame of 256 bytes\n");
    outcome_free(&o);
    assert_int_equal(count_files(in_scratch("e.fatbin")), 0);
    o = attngen("build", "--templates", "g", "-t", "sm_90a", "-q", "-o", "e.fatbin", "--expect",
                "e.tsv", "--allow-refused", "1", NULL);
    assert_run(o, 0);
    outcome_free(&o);
    expect_stack("0123456789abcdef"); /* of another source: an edit may well spill */
    o = attngen("build", "--templates", "g", "-t", "sm_90a", "-q", "-o", "e.fatbin", "--expect",
                "e.tsv", "--allow-refused", "0", NULL);
    assert_run(o, 0);
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
    /* Several tables count together, in any order. */
    put("pick2.tsv", "family\tvariant\ntiny\ttiny_fp32__sm90a_v2_w4_ring\n");
    static const char *const orders[][2] = {{"pick.tsv", "pick2.tsv"}, {"pick2.tsv", "pick.tsv"}};
    for (int i = 0; i < 2; i++) {
        o = BUILD("-t", "sm_90a", "-o", "f.fatbin", "--format", "tsv", "--from-table", orders[i][0],
                  "--from-table", orders[i][1]);
        assert_run(o, 0);
        assert_int_equal(built(&o), 4);
        outcome_free(&o);
    }
    o = BUILD("-t", "sm_90a", "--from-table", "pick.tsv", "--from-table", "gone.tsv");
    assert_run(o, 1);
    assert_holds(o.err, "--from-table: gone.tsv: cannot read it: No such file");
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
        cmocka_unit_test(gates_refuse_with_a_reason),
        cmocka_unit_test(a_toolkit_that_refuses_more),
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
