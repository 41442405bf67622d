/*
 * The emulation's engine: what instructions compute, against plain loops, and
 * that what kernels get wrong is found. The kernels are those in kernels/,
 * compiled by compile.sh to the folder that the first argument names.
 */
#define _GNU_SOURCE
#include "test_emul.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;
char message[1024];

static const struct emul_kernel *load(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    const struct emul_kernel *kernel = dlsym(library, "emul_kernel");
    assert_non_null(kernel);
    return kernel;
}

int run_grid(const char *name, const char *mode, struct emul_dim blocks, unsigned threads,
             unsigned shared, void *params)
{
    void *list[] = {params};
    const struct emul_launch launch = {.kernel = load(name),
                                       .blocks = blocks,
                                       .threads = {threads, 1, 1},
                                       .shared = shared,
                                       .params = list};
    assert_int_equal(setenv("EMUL_MODE", mode, 1), 0);
    message[0] = '\0';
    return emul_run(&launch, message, sizeof message);
}

int run(const char *name, const char *mode, unsigned blocks, unsigned threads, unsigned shared,
        void *params)
{
    return run_grid(name, mode, (struct emul_dim){blocks, 1, 1}, threads, shared, params);
}

const char *const modes[NUM_MODES] = {
    "eager", "eager,ahead", "late", "late,reverse", "random", "random=7", "late,ahead,reverse"};

/* ---- matrices ------------------------------------------------------------- */

/* Small whole numbers: every product and sum is exact. */
static int a_value(unsigned row, unsigned k)
{
    return (int)((row * 7 + k * 3) % 11) - 5;
}

static int b_value(unsigned k, unsigned n)
{
    return (int)((k * 5 + n * 13 + k * n % 3) % 9) - 4;
}

static unsigned short encode(int value, int is_bf16)
{
    return is_bf16 ? emul_to_bf16((float)value) : emul_to_fp16((float)value);
}

static unsigned short *new_elements(size_t count)
{
    unsigned short *p = aligned_alloc(64, (count * 2 + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

/* Two-dimensional, as one page of a tensor of four dimensions; boxes of 64 x 64. */
static void encode_map(void *map, int is_bf16, void *data, unsigned columns, unsigned rows)
{
    const unsigned long long bytes = (unsigned long long)columns * rows * 2;
    const unsigned long long dims[] = {columns, rows, 1, 1};
    const unsigned long long strides[] = {columns * 2, bytes, bytes};
    const unsigned box[] = {64, 64, 1, 1}, element[] = {1, 1, 1, 1};
    assert_int_equal(
        emul_tensor_map(map, is_bf16 ? 9 : 6, 4, data, dims, strides, box, element, 0, 3, 0), 0);
}

struct product {
    int what;
    unsigned rows, columns, depth;
    int b_by_column; /* [n][k] */
};

static void check_product(const struct product *c, int is_bf16, const char *mode)
{
    _Alignas(64) struct matrix_params p = {.what = c->what, .is_bf16 = is_bf16};
    unsigned short *a = new_elements(c->rows * c->depth), *b = new_elements(c->columns * c->depth);
    float *d = malloc(c->rows * c->columns * sizeof *d);
    assert_non_null(d);
    for (unsigned r = 0; r < c->rows; r++)
        for (unsigned k = 0; k < c->depth; k++)
            a[r * c->depth + k] = encode(a_value(r, k), is_bf16);
    for (unsigned k = 0; k < c->depth; k++)
        for (unsigned n = 0; n < c->columns; n++)
            b[c->b_by_column ? n * c->depth + k : k * c->columns + n] =
                encode(b_value(k, n), is_bf16);
    if (c->depth == 64) {
        encode_map(p.a_map, is_bf16, a, 64, 64);
        encode_map(p.b_map, is_bf16, b, c->b_by_column ? 64 : c->columns,
                   c->b_by_column ? c->columns : 64);
    }
    p.a = a;
    p.b = b;
    p.d = d;
    if (run("emul_matrix", mode, 1, 128, 5 * 8192, &p))
        fail_msg("%s: %s", mode, message);
    for (unsigned r = 0; r < c->rows; r++) {
        for (unsigned n = 0; n < c->columns; n++) {
            int sum = 0;
            for (unsigned k = 0; k < c->depth; k++)
                sum += a_value(r, k) * b_value(k, n);
            if (d[r * c->columns + n] != (float)sum)
                fail_msg("%s, product %d, %s: [%u][%u] is %g, not %d", mode, c->what,
                         is_bf16 ? "bf16" : "fp16", r, n, (double)d[r * c->columns + n], sum);
        }
    }
    free(a);
    free(b);
    free(d);
}

static void test_products(void **state)
{
    static const struct product products[] = {{MATRIX_MMA, 16, 8, 16, 1},
                                              {MATRIX_MMA_TRANS, 16, 16, 16, 0},
                                              {MATRIX_WGMMA_64, 64, 64, 64, 1},
                                              {MATRIX_WGMMA_256_REG, 64, 256, 64, 0}};
    (void)state;
    for (size_t m = 0; m < NUM_MODES; m++)
        for (size_t i = 0; i < sizeof products / sizeof *products; i++)
            for (int is_bf16 = 0; is_bf16 < 2; is_bf16++)
                check_product(&products[i], is_bf16, modes[m]);
}

/* ---- tensor copies ----------------------------------------------------------- */

#define COLUMNS 100
#define ROWS 40
#define PAGES 3

/* Boxes of 64 x 32 x 2 x 1 from a tensor of 100 x 40 x 3 x 2: what lies outside is zeros, and
 * 16-byte chunks stand where the 128-byte swizzle has them. */
static void check_box(const int *at, const char *mode)
{
    static _Alignas(64) unsigned short data[2][PAGES][ROWS][COLUMNS + 4];
    unsigned short got[2][32][64];
    _Alignas(64) struct matrix_params p = {.what = MATRIX_BOX, .d = got};
    const unsigned long long dims[] = {COLUMNS, ROWS, PAGES, 2};
    const unsigned long long strides[] = {sizeof data[0][0][0], sizeof data[0][0], sizeof data[0]};
    const unsigned box[] = {64, 32, 2, 1}, element[] = {1, 1, 1, 1};
    for (int w = 0; w < 2; w++)
        for (int z = 0; z < PAGES; z++)
            for (int y = 0; y < ROWS; y++)
                for (int x = 0; x < COLUMNS + 4; x++)
                    data[w][z][y][x] = x < COLUMNS
                                           ? (unsigned short)(1 + x + 128 * y + 8192 * (z + 4 * w))
                                           : 0xdead;
    assert_int_equal(emul_tensor_map(p.a_map, 9, 4, data, dims, strides, box, element, 0, 3, 0), 0);
    memcpy(p.at, at, sizeof p.at);
    if (run("emul_matrix", mode, 1, 128, 5 * 8192, &p))
        fail_msg("%s: %s", mode, message);
    for (int z = 0; z < 2; z++) {
        for (int y = 0; y < 32; y++) {
            for (int x = 0; x < 64; x++) {
                const int tx = x + at[0], ty = y + at[1], tz = z + at[2];
                const int inside = tx >= 0 && tx < COLUMNS && ty >= 0 && ty < ROWS && tz >= 0 &&
                                   tz < PAGES && at[3] >= 0 && at[3] < 2;
                const int swizzled = (x / 8 ^ y % 8) * 8 + x % 8;
                assert_int_equal(got[z][y][swizzled], inside ? data[at[3]][tz][ty][tx] : 0);
            }
        }
    }
}

static void test_boxes(void **state)
{
    static const int at[][4] = {{0, 0, 0, 0},    {64, 0, 1, 1},  {-8, 30, 2, 0},
                                {3, -31, -1, 1}, {200, 0, 0, 0}, {0, 0, 0, 2}};
    (void)state;
    for (size_t m = 0; m < NUM_MODES; m++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++)
            check_box(at[i], modes[m]);
}

static void test_refused_maps(void **state)
{
    _Alignas(64) unsigned char map[192], data[64];
    const unsigned long long dims[] = {64, 8, 8}, strides[] = {128, 1024}, odd[] = {120, 1024};
    const unsigned box[] = {64, 8, 1}, wide[] = {72, 8, 1}, one[] = {1, 1, 1}, two[] = {1, 2, 1};
    (void)state;
    assert_int_equal(emul_tensor_map(map, 9, 3, data, dims, strides, box, one, 0, 3, 0), 0);
    assert_int_equal(emul_tensor_map(map + 16, 9, 3, data, dims, strides, box, one, 0, 3, 0), -1);
    assert_int_equal(emul_tensor_map(map, 9, 3, data + 8, dims, strides, box, one, 0, 3, 0), -1);
    assert_int_equal(emul_tensor_map(map, 9, 3, data, dims, odd, box, one, 0, 3, 0), -1);
    assert_int_equal(emul_tensor_map(map, 9, 3, data, dims, strides, wide, one, 0, 3, 0), -1);
    assert_int_equal(emul_tensor_map(map, 9, 3, data, dims, strides, box, two, 0, 3, 0), -1);
    assert_int_equal(emul_tensor_map(map, 99, 3, data, dims, strides, box, one, 0, 3, 0), -1);
}

/* ---- threads that meet --------------------------------------------------------- */

static void run_sync(int what, const char *mode, unsigned blocks, unsigned threads, int *out)
{
    struct sync_params p = {out, what};
    memset(out, 0xee, 1024 * sizeof *out);
    if (run("emul_sync", mode, blocks, threads, 0, &p))
        fail_msg("%s: %s", mode, message);
}

static void check_shuffles(const char *mode)
{
    int out[1024];
    run_sync(SYNC_SHUFFLES, mode, 1, 32, out);
    for (int lane = 0; lane < 32; lane++) {
        const int up16 = lane % 16 < 3 ? lane : lane - 3;
        assert_int_equal(out[lane], 105);
        assert_int_equal(out[32 + lane], 100 + lane / 8 * 8 + lane / 2 % 8);
        assert_int_equal(out[64 + lane], 100 + (lane < 3 ? lane : lane - 3));
        assert_int_equal(out[96 + lane], 100 + up16);
        assert_int_equal(out[128 + lane], 100 + (lane > 27 ? lane : lane + 4));
        assert_int_equal(out[160 + lane], 100 + (lane ^ 9));
        assert_int_equal(out[192 + lane], lane ? lane - 1 : 0);
        assert_int_equal(out[224 + lane], 100 + (lane ^ (lane < 16 ? 1 : 2)));
    }
}

static void check_votes(const char *mode)
{
    int out[1024];
    run_sync(SYNC_VOTES, mode, 1, 32, out);
    for (int lane = 0; lane < 32; lane++) {
        assert_int_equal(out[lane], 0x49249249);
        assert_int_equal(out[32 + lane], 0);
        assert_int_equal(out[64 + lane] != 0, 1);
        assert_int_equal(out[96 + lane] != 0, 1);
        assert_int_equal(out[128 + lane], 0);
        assert_int_equal(out[160 + lane], -5);
        assert_int_equal(out[192 + lane], 496);
        assert_int_equal((unsigned)out[224 + lane], 0xffu << lane / 8 * 8);
    }
}

static void check_block(const char *mode)
{
    int out[1024];
    run_sync(SYNC_BLOCK, mode, 1, 100, out); /* the last warp is not whole */
    for (int t = 0; t < 100; t++)
        assert_int_equal(out[t], 99 - t + 1000 * 34 + 1000000 * (1 + 4));
    run_sync(SYNC_NAMED, mode, 1, 256, out);
    for (int w = 1; w < 8; w++)
        assert_int_equal(out[w], 1000 + w);
    run_sync(SYNC_EARLY_EXIT, mode, 1, 64, out);
    for (int t = 0; t < 64; t += 2)
        assert_int_equal(out[t], 5 + (t ^ 2));
    run_sync(SYNC_SHARED, mode, 3, 32, out);
    for (int b = 0; b < 3; b++) {
        assert_int_equal(out[2 * b], -1); /* poison */
        assert_int_equal(out[2 * b + 1], 77);
    }
}

static void test_sync(void **state)
{
    (void)state;
    for (size_t m = 0; m < NUM_MODES; m++) {
        check_shuffles(modes[m]);
        check_votes(modes[m]);
        check_block(modes[m]);
    }
}

/* ---- what kernels get wrong ---------------------------------------------------------- */

/* What a mode makes of it: the right output (""), a wrong one (WRONG), or a message with this. */
#define RIGHT ""
#define WRONG "wrong"

struct expectation {
    enum hazard what;
    const char *name, *eager, *late;
};

static const char *outcome(int what, const char *mode)
{
    static _Alignas(16) unsigned char in[HAZARD_BYTES], out[HAZARD_BYTES];
    struct hazard_params p = {in, out, what};
    for (int i = 0; i < HAZARD_BYTES; i++)
        in[i] = (unsigned char)(i * 7 + i / 256);
    memset(out, 0xcc, sizeof out);
    if (run("emul_hazard", mode, 1, 128, 20480, &p))
        return message;
    return memcmp(in, out, sizeof in) == 0 ? RIGHT : WRONG;
}

static void expect(const struct expectation *e, const char *mode, const char *want)
{
    const char *got = outcome((int)e->what, mode);
    if (strcmp(want, RIGHT) == 0 ? *got != '\0' : strstr(got, want) == NULL)
        fail_msg("%s in mode %s: '%s', not '%s'", e->name, mode, got, want);
}

static void test_hazards(void **state)
{
#define E(name, eager, late)              \
    {                                     \
        HAZARD_##name, #name, eager, late \
    }
    static const struct expectation all[] = {
        E(NOTHING, RIGHT, RIGHT),
        E(COPY_UNWAITED, RIGHT, WRONG),
        E(COPY_OF_OTHERS, WRONG, WRONG),
        /* Early, the next phase is over before the others have looked at this one. */
        E(REFILL_EARLY, "is stuck", RIGHT),
        E(STORE_REUSE, RIGHT, "no fence.proxy.async"),
        E(STORE_UNWAITED, RIGHT, "thread 0 ended while a bulk store"),
        E(STORE_UNFENCED, "no fence.proxy.async", "no fence.proxy.async"),
        E(LOAD_UNWAITED, WRONG, "1 copies into its shared memory on their way"),
        E(PREFETCH_ADDRESS, "no multiple of 16", "no multiple of 16"),
        E(PREFETCH_LENGTH, "24 bytes", "24 bytes"),
        E(WGMMA_UNWAITED, RIGHT, WRONG),
        E(WGMMA_OVERWRITE, RIGHT, "wgmma reads shared address"),
        E(WGMMA_UNFENCED, "no wgmma.fence", "no wgmma.fence"),
        E(WGMMA_PROXY, "no fence.proxy.async", "no fence.proxy.async"),
        E(WGMMA_LONELY, "warps 0 and 3 of a warp group", "warps 0 and 3 of a warp group"),
        E(RUN_AHEAD, RIGHT, RIGHT),
        E(STUCK_MBARRIER, "threads 0-127: mbarrier wait", "threads 0-127: mbarrier wait"),
        E(STUCK_POLL, "is stuck: threads 0-127: poll", "is stuck: threads 0-127: poll"),
        E(STUCK_BARRIER, "threads 77-77: ended; threads 78-127: bar.sync of barrier 3: 127 of 128",
          "threads 77-77: ended; threads 78-127: bar.sync of barrier 3: 127 of 128"),
        E(DIVERGED, "__shfl_sync, while lanes", "__shfl_sync, while lanes"),
        E(OUTSIDE, "outside of the block's", "outside of the block's"),
        E(MISALIGNED, "no multiple of 16", "no multiple of 16"),
        E(MBARRIER_RAW, "there is no mbarrier", "there is no mbarrier"),
        E(MBARRIER_HIDDEN, "no fence.mbarrier_init", "no fence.mbarrier_init"),
        /* Early, the phase is over before the arrival, which then ends the next one, too. */
        E(MBARRIER_TOO_MANY, "is stuck", "has had all of its 1 arrivals"),
        E(SHARED_UNWRITTEN, WRONG, WRONG),
        E(ASM_UNKNOWN, "does not know brev.b64", "does not know brev.b64"),
        E(ASM_INPUT, "writes operand 1, which is an input", "writes operand 1, which is an input"),
    };
#define COUNT(name) +1
    (void)state;
    assert_int_equal(sizeof all / sizeof *all, 0 HAZARD_MAP(COUNT));
#undef COUNT
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        expect(&all[i], "eager", all[i].eager);
        expect(&all[i], "late", all[i].late);
    }
    for (size_t m = 0; m < NUM_MODES; m++)
        expect(&all[0], modes[m], RIGHT);
    const struct expectation ahead = E(RUN_AHEAD, RIGHT, RIGHT);
    expect(&ahead, "eager,ahead", WRONG);
    expect(&ahead, "random", WRONG);
#undef E
}

/* ---- launches ------------------------------------------------------------------------ */

static void test_launches(void **state)
{
    int out[1024];
    struct sync_params p = {out, SYNC_SHUFFLES};
    (void)state;
    assert_int_equal(run("emul_sync", "eager", 1, 1025, 0, &p), -1);
    assert_non_null(strstr(message, "1025 threads"));
    assert_int_equal(run("emul_sync", "eager", 0, 32, 0, &p), -1);
    assert_non_null(strstr(message, "grid of 0"));
    assert_int_equal(run("emul_sync", "eager", 1, 32, 232448, &p), -1);
    assert_non_null(strstr(message, "allowed are 232448 together"));
    assert_int_equal(run("emul_sync", "lazy", 1, 32, 0, &p), -1);
    assert_non_null(strstr(message, "'lazy'; allowed: eager, late, overtaken"));
    assert_int_equal(run("emul_sync", "", 1, 32, 0, &p), 0);
}

static void test_conversions(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        const float x = emul_from_fp16((unsigned short)bits);
        if ((bits & 0x7fff) > 0x7c00)
            assert_int_equal(emul_to_fp16(x), 0x7fff);
        else
            assert_int_equal(emul_to_fp16(x), bits);
    }
    assert_int_equal(emul_to_fp16(65519.f), 0x7bff);
    assert_int_equal(emul_to_fp16(65520.f), 0x7c00);
    assert_int_equal(emul_to_fp16(0x1p-25f), 0); /* ties to even */
    assert_int_equal(emul_to_fp16(0x1.8p-24f), 2);
    assert_int_equal(emul_to_fp16(1 + 0x1p-11f), 0x3c00);
    assert_int_equal(emul_to_fp16(1 + 0x1.8p-10f), 0x3c02);
    assert_int_equal(emul_to_bf16(1 + 0x1p-8f), 0x3f80);
    assert_int_equal(emul_to_bf16(1 + 0x1.8p-7f), 0x3f82);
    assert_int_equal(emul_fp16_of_e4m3(0x7e), emul_to_fp16(448));
    assert_int_equal(emul_fp16_of_e4m3(0x81), emul_to_fp16(-0x1p-9f));
    assert_int_equal(emul_fp16_of_e4m3(0x38), 0x3c00);
    assert_int_equal(emul_fp16_of_e4m3(0xff), 0x7fff);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_fp8_conversions),
        cmocka_unit_test(test_fp8_products),
        cmocka_unit_test(test_fp8_accumulator),
        cmocka_unit_test(test_fp8_not_finite),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_refused_maps),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_hazards),
        cmocka_unit_test(test_launches),
        cmocka_unit_test(test_cluster_data),
        cmocka_unit_test(test_cluster_multicast),
        cmocka_unit_test(test_cluster_shapes),
        cmocka_unit_test(test_cluster_hazards),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_emul FOLDER\n");
        return 2;
    }
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
