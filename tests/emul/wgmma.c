/*
 * wgmma, warp by warp: warp w of a group of four computes rows 16 w to 16 w + 15
 * of the product. In eager mode it does so when it issues the instruction, not
 * waiting for the other three; in late mode when it waits for the instruction's
 * group, and until then its accumulators read as NaN. That the four warps issued
 * the same is checked when the block ends.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 256
#define MAX_ACCUMULATORS 16
#define WARPS 4
#define SLICE 16 /* rows of one warp */
#define MAX_DEPTH 32

typedef float fragment[MAX_COLUMNS / 2];

/* An accumulator of the warp: what the instructions made of it so far. */
struct accumulator {
    float *d[WARP]; /* d[0] names it; NULL: free */
    int columns;
    unsigned running; /* instructions that have not happened */
    uint64_t used;
    fragment *value; /* [WARP] */
};

struct operation {
    struct accumulator *accumulator;
    unsigned a[WARP][4];
    bool a_in_registers;
    struct emul_product what; /* of lane 0 */
    uint64_t group;
};

struct wgmma_state {
    struct accumulator accumulator[MAX_ACCUMULATORS];
    struct list operations;
    uint64_t groups, issued, clock;
    uint64_t hash; /* of all that was issued */
    bool fenced;   /* since registers may have been written by others */
};

/* ---- matrices in shared memory ------------------------------------------------------ */

struct matrix {
    unsigned address, row_bytes, group_bytes;
    unsigned line; /* bytes that are swizzled: 128 or 64 */
};

static struct matrix read_descriptor(unsigned long long d, bool mn_major)
{
    const struct matrix m = {(unsigned)(d & 0x3fff) << 4, (unsigned)(d >> 16 & 0x3fff) << 4,
                             (unsigned)(d >> 32 & 0x3fff) << 4, d >> 62 == 2 ? 64 : 128};
    if (d >> 62 != 1 && (d >> 62 != 2 || mn_major))
        emul_fault("wgmma: a descriptor (%#llx) without the 128-byte swizzle%s", d,
                   mn_major ? "" : " or that of 64 bytes");
    if (d >> 49 & 7)
        emul_fault("wgmma: a descriptor (%#llx) with a base offset", d);
    if (m.address & (mn_major ? 0x3ff : 7 * m.line))
        emul_fault("wgmma: a matrix at shared address %#x, not at the begin of %s%u bytes",
                   m.address, mn_major ? "" : "a row of the first 8 of ", 8 * m.line);
    if (m.group_bytes % (8 * m.line) || (mn_major && m.row_bytes % 1024))
        emul_fault("wgmma: cells %u and %u bytes apart; allowed are multiples of %u", m.row_bytes,
                   m.group_bytes, 8 * m.line);
    return m;
}

static unsigned depth_of(const struct emul_product *w)
{
    return w->a_type >= EMUL_E4M3 ? 32 : 16;
}

static float of_8_bits(uint8_t bits, enum emul_type type)
{
    return emul_from_fp16(type == EMUL_E4M3 ? emul_fp16_of_e4m3(bits)
                                            : (unsigned short)(bits << 8));
}

/* Sixteen bytes along the row that the matrix keeps together: eight elements, or sixteen. */
static void read_chunk(const struct matrix *m, unsigned address, enum emul_type type, float *to)
{
    uint8_t bytes[16];
    uint16_t bits[8];
    address ^= (address >> 7 & (m->line / 16 - 1)) << 4;
    memcpy(bytes, emul__async_read(address, 16, "wgmma"), 16);
    memcpy(bits, bytes, 16);
    for (int i = 0; i < 16 && type >= EMUL_E4M3; i++)
        to[i] = of_8_bits(bytes[i], type);
    for (int i = 0; i < 8 && type < EMUL_E4M3; i++)
        to[i] = emul__element(bits[i], type == EMUL_BF16);
}

/* Rows [first, first + count) of a K-major matrix, 32 bytes wide. */
static void read_k_major(struct matrix m, unsigned first, unsigned count, enum emul_type type,
                         float (*to)[MAX_DEPTH])
{
    for (unsigned r = 0; r < count; r++) {
        const unsigned row = first + r;
        const unsigned at = m.address + row / 8 * m.group_bytes + row % 8 * m.line;
        read_chunk(&m, at, type, to[r]);
        read_chunk(&m, at + 16, type, to[r] + (type >= EMUL_E4M3 ? 16 : 8));
    }
}

/* B as [depth][columns]. */
static void read_b(const struct emul_product *w, float (*b)[MAX_COLUMNS])
{
    const struct matrix m = read_descriptor(w->b, w->b_mn);
    const unsigned columns = (unsigned)w->columns;
    if (w->b_mn) {
        for (unsigned k = 0; k < 16; k++)
            for (unsigned n = 0; n < columns; n += 8)
                read_chunk(&m,
                           m.address + n / 64 * m.row_bytes + k / 8 * m.group_bytes + k % 8 * 128 +
                               n % 64 * 2,
                           w->b_type, &b[k][n]);
        return;
    }
    float rows[MAX_COLUMNS][MAX_DEPTH];
    read_k_major(m, 0, columns, w->b_type, rows);
    for (unsigned n = 0; n < columns; n++)
        for (unsigned k = 0; k < depth_of(w); k++)
            b[k][n] = rows[n][k];
}

static void read_a(const struct operation *o, unsigned warp, float (*a)[MAX_DEPTH])
{
    if (!o->a_in_registers) {
        read_k_major(read_descriptor(o->what.a, false), warp % WARPS * SLICE, SLICE, o->what.a_type,
                     a);
        return;
    }
    if (o->what.a_type >= EMUL_E4M3) {
        for (int lane = 0; lane < WARP; lane++)
            for (int i = 0; i < 16; i++)
                a[lane / 4 + 8 * (i / 4 % 2)][lane % 4 * 4 + i % 4 + 16 * (i / 8)] =
                    of_8_bits((uint8_t)(o->a[lane][i / 4] >> 8 * (i % 4)), o->what.a_type);
        return;
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 8; i++)
            a[lane / 4 + 8 * (i / 2 % 2)][lane % 4 * 2 + i % 2 + 8 * (i / 4)] = emul__element(
                (unsigned short)(o->a[lane][i / 2] >> 16 * (i % 2)), o->what.a_type == EMUL_BF16);
}

/*
 * Sums of 8-bit products as Hopper's tensor cores make them. The addend and the 32 products of a
 * step are aligned to the greatest exponent among them, a product's being the sum of its factors'.
 * Each keeps 13 bits below that exponent and is truncated toward zero there, the sum of them is
 * exact, and what is written is that sum truncated to 14 significant bits. So an accumulator that
 * is thousands of times as large as the products loses most of what they add, always in the same
 * direction. Sums of 16-bit products keep fp32's precision on the GPU as here.
 */
#define KEPT_BITS 13
#define LEAST_EXPONENT (-100) /* keeps scales finite; products of 8 bits are multiples of 2^-32 */
#define GREATEST_EXPONENT 127

static int exponent_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 23 & 0xff) - 127;
    return exponent > LEAST_EXPONENT ? exponent : LEAST_EXPONENT;
}

/* A number below the type's least normal one has that one's exponent. */
static int exponent_of_factor(float x, enum emul_type type)
{
    const int least = type == EMUL_E4M3 ? -6 : -14, exponent = exponent_of(x);
    return x == 0 ? LEAST_EXPONENT : exponent > least ? exponent : least;
}

static float power_of_2(int exponent)
{
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A term in units of the last bit kept. A finite one has 15 bits; the bound is for NaN and
 * infinities, whose sums multiply_8_bits() replaces. */
static int aligned(float x, float scale)
{
    const float bound = 0x1p20f, units = x * scale;
    const float below = units < bound ? units : bound;
    return (int)(below > -bound ? below : -bound);
}

static float truncated(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= ~0u << (23 - KEPT_BITS);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Adds row `a` times b to the numbers at `d`. */
static void add_step_of_8_bits(const struct emul_product *w, const float *a,
                               float (*b)[MAX_COLUMNS], int (*b_exponent)[MAX_COLUMNS], float *d)
{
    const int columns = w->columns;
    int greatest[MAX_COLUMNS], sum[MAX_COLUMNS];
    float scale[MAX_COLUMNS];
    for (int n = 0; n < columns; n++)
        greatest[n] = exponent_of(d[n]);
    for (int k = 0; k < MAX_DEPTH; k++) {
        const int exponent = exponent_of_factor(a[k], w->a_type);
        for (int n = 0; n < columns; n++) {
            const int x = exponent + b_exponent[k][n];
            greatest[n] = x > greatest[n] ? x : greatest[n];
        }
    }
    for (int n = 0; n < columns; n++) {
        greatest[n] = greatest[n] < GREATEST_EXPONENT ? greatest[n] : GREATEST_EXPONENT;
        scale[n] = power_of_2(KEPT_BITS - greatest[n]);
        sum[n] = aligned(d[n], scale[n]);
    }
    for (int k = 0; k < MAX_DEPTH; k++)
        for (int n = 0; n < columns; n++)
            sum[n] += aligned(a[k] * b[k][n], scale[n]);
    for (int n = 0; n < columns; n++)
        d[n] = truncated((float)sum[n] * power_of_2(greatest[n] - KEPT_BITS));
}

static void multiply_8_bits(const struct emul_product *w, float (*a)[MAX_DEPTH],
                            float (*b)[MAX_COLUMNS], float (*d)[MAX_COLUMNS])
{
    int b_exponent[MAX_DEPTH][MAX_COLUMNS];
    for (int k = 0; k < MAX_DEPTH; k++)
        for (int n = 0; n < w->columns; n++)
            b_exponent[k][n] = exponent_of_factor(b[k][n], w->b_type);
    for (int row = 0; row < SLICE; row++) {
        float plain[MAX_COLUMNS]; /* tells which sums are NaN or infinite */
        memcpy(plain, d[row], sizeof plain);
        for (int k = 0; k < MAX_DEPTH; k++)
            for (int n = 0; n < w->columns; n++)
                plain[n] += a[row][k] * b[k][n];
        add_step_of_8_bits(w, a[row], b, b_exponent, d[row]);
        for (int n = 0; n < w->columns; n++)
            d[row][n] = isfinite(plain[n]) ? d[row][n] : plain[n];
    }
}

static void compute(const struct operation *o, unsigned warp)
{
    float a[SLICE][MAX_DEPTH], b[MAX_DEPTH][MAX_COLUMNS], d[SLICE][MAX_COLUMNS] = {{0}};
    fragment *value = o->accumulator->value;
    const int columns = o->what.columns;
    read_a(o, warp, a);
    read_b(&o->what, b);
    for (int lane = 0; lane < WARP && o->what.accumulate; lane++)
        for (int i = 0; i < columns / 2; i++)
            d[lane / 4 + 8 * (i / 2 % 2)][8 * (i / 4) + lane % 4 * 2 + i % 2] = value[lane][i];
    if (o->what.a_type >= EMUL_E4M3)
        multiply_8_bits(&o->what, a, b, d);
    for (int row = 0; row < SLICE && o->what.a_type < EMUL_E4M3; row++)
        for (unsigned k = 0; k < depth_of(&o->what); k++)
            for (int n = 0; n < columns; n++)
                d[row][n] += a[row][k] * b[k][n];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < columns / 2; i++)
            value[lane][i] = d[lane / 4 + 8 * (i / 2 % 2)][8 * (i / 4) + lane % 4 * 2 + i % 2];
}

/* ---- accumulators -------------------------------------------------------------------- */

static size_t fragment_bytes(const struct accumulator *x)
{
    return (size_t)x->columns / 2 * sizeof(float);
}

static void give_back(const struct accumulator *x)
{
    for (int lane = 0; lane < WARP; lane++)
        memcpy(x->d[lane], x->value[lane], fragment_bytes(x));
}

static struct accumulator *find_accumulator(struct wgmma_state *s, const float *d)
{
    struct accumulator *oldest = NULL;
    for (int i = 0; i < MAX_ACCUMULATORS; i++) {
        struct accumulator *x = &s->accumulator[i];
        if (x->d[0] == d)
            return x;
        if (!x->running && (!oldest || x->used < oldest->used))
            oldest = x;
    }
    if (!oldest)
        emul_fault("wgmma: more than %d accumulators at work", MAX_ACCUMULATORS);
    if (!oldest->value)
        oldest->value = malloc(sizeof(fragment) * WARP);
    if (!oldest->value)
        abort();
    oldest->d[0] = NULL;
    return oldest;
}

/* The registers as the warp has them now, unless instructions are at work on them. */
static struct accumulator *take_accumulator(struct wgmma_state *s, void *const *payload)
{
    const struct emul_product *first = payload[0];
    struct accumulator *x = find_accumulator(s, first->d);
    const bool known = x->d[0] && x->columns == first->columns;
    x->used = ++s->clock;
    if (x->running) {
        if (!known)
            emul_fault("wgmma: registers of an instruction that is at work, as another shape");
        return x;
    }
    x->columns = first->columns;
    for (int lane = 0; lane < WARP; lane++) {
        float *d = ((const struct emul_product *)payload[lane])->d;
        const bool same =
            known && x->d[lane] == d && memcmp(x->value[lane], d, fragment_bytes(x)) == 0;
        if (!s->fenced && !same)
            emul_fault("wgmma: lane %d's accumulators were written and no wgmma.fence came since",
                       lane);
        x->d[lane] = d;
        memcpy(x->value[lane], d, fragment_bytes(x));
    }
    return x;
}

/* What reads them before it has waited reads this. */
static void hide(const struct accumulator *x)
{
    for (int lane = 0; lane < WARP; lane++)
        memset(x->d[lane], 0xff, fragment_bytes(x));
}

/* ---- instructions ---------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t x)
{
    return (hash ^ x) * 0x100000001b3u;
}

static void check_lanes(unsigned lanes, void *const *payload)
{
    const struct emul_product *first = payload[0];
    if (lanes != FULL_MASK)
        emul_fault("wgmma with lanes %#010x; all 32 must come", lanes);
    for (int lane = 1; lane < WARP; lane++) {
        const struct emul_product *w = payload[lane];
        if (w->a != first->a || w->b != first->b || w->columns != first->columns ||
            w->b_mn != first->b_mn || !w->a_registers != !first->a_registers ||
            w->accumulate != first->accumulate || w->a_type != first->a_type ||
            w->b_type != first->b_type)
            emul_fault("wgmma: lanes 0 and %d do different ones", lane);
    }
}

static void run_wgmma(unsigned warp, unsigned lanes, void *const *payload)
{
    struct block *b = emul__block;
    struct wgmma_state *s = &b->wgmma[warp];
    const struct emul_product *first = payload[0];
    check_lanes(lanes, payload);
    if ((warp / WARPS + 1) * WARPS > b->num_warps)
        emul_fault("wgmma in warp %u: a group is four warps, the block has %u warps", warp,
                   b->num_warps);
    struct accumulator *x = take_accumulator(s, payload);
    struct operation o = {.accumulator = x, .what = *first, .group = s->groups};
    o.a_in_registers = first->a_registers != NULL;
    for (int lane = 0; lane < WARP && o.a_in_registers; lane++)
        memcpy(o.a[lane], ((const struct emul_product *)payload[lane])->a_registers, sizeof o.a[0]);
    read_descriptor(first->b, first->b_mn);
    if (!o.a_in_registers)
        read_descriptor(first->a, false);
    s->issued++;
    s->hash = mix(mix(mix(s->hash, first->b), o.a_in_registers ? 1 : first->a),
                  (uint64_t)(first->columns * 64 + first->b_mn * 32 + first->accumulate * 16 +
                             (int)first->a_type * 4 + (int)first->b_type));
    if (b->cluster->options.late) {
        x->running++;
        hide(x);
        *(struct operation *)emul__list_add(&s->operations, sizeof o) = o;
    } else {
        compute(&o, warp);
        give_back(x);
    }
}

void emul_wgmma(const struct emul_product *operation)
{
    static const struct meeting_kind kind = {"wgmma.mma_async", run_wgmma};
    if (operation->columns < 8 || operation->columns > MAX_COLUMNS || operation->columns % 8)
        emul_fault("wgmma: %d columns; allowed are multiples of 8 up to 256", operation->columns);
    emul__meet(FULL_MASK, &kind, (void *)(uintptr_t)operation);
}

static void run_fence(unsigned warp, unsigned lanes, void *const *payload)
{
    (void)lanes, (void)payload;
    emul__block->wgmma[warp].fenced = true;
}

void emul_wgmma_fence(void)
{
    static const struct meeting_kind kind = {"wgmma.fence", run_fence};
    emul__meet(FULL_MASK, &kind, NULL);
}

static void run_commit(unsigned warp, unsigned lanes, void *const *payload)
{
    (void)lanes, (void)payload;
    emul__block->wgmma[warp].groups++;
}

void emul_wgmma_commit(void)
{
    static const struct meeting_kind kind = {"wgmma.commit_group", run_commit};
    emul__meet(FULL_MASK, &kind, NULL);
}

static void run_wait(unsigned warp, unsigned lanes, void *const *payload)
{
    struct wgmma_state *s = &emul__block->wgmma[warp];
    const unsigned pending = *(const unsigned *)payload[0];
    size_t n = 0;
    (void)lanes;
    for (; n < s->operations.count; n++) {
        const struct operation *o = (const struct operation *)s->operations.items + n;
        if (o->group + pending >= s->groups)
            break;
        compute(o, warp);
        if (--o->accumulator->running == 0)
            give_back(o->accumulator);
    }
    if (n)
        emul__list_cut(&s->operations, 0, n);
    s->fenced = false;
}

void emul_wgmma_wait(unsigned pending)
{
    static const struct meeting_kind kind = {"wgmma.wait_group", run_wait};
    emul__meet(FULL_MASK, &kind, &pending);
}

/* ---- a block's begin and end --------------------------------------------------------------- */

void emul__wgmma_open(struct block *b)
{
    if (!b->wgmma)
        b->wgmma = calloc(MAX_WARPS, sizeof *b->wgmma);
    if (!b->wgmma)
        abort();
    for (unsigned w = 0; w < b->num_warps; w++) {
        struct wgmma_state *s = &b->wgmma[w];
        s->operations.count = 0;
        s->groups = s->issued = s->clock = s->hash = 0;
        s->fenced = false;
        for (int i = 0; i < MAX_ACCUMULATORS; i++) {
            s->accumulator[i].d[0] = NULL;
            s->accumulator[i].running = 0;
            s->accumulator[i].used = 0;
        }
    }
}

void emul__wgmma_ends(struct block *b)
{
    for (unsigned w = 0; w < b->num_warps; w++) {
        const struct wgmma_state *s = &b->wgmma[w], *first = &b->wgmma[w / WARPS * WARPS];
        if (s->operations.count)
            emul__fail(b, "block (%u, %u, %u): warp %u ended with wgmma at work", b->index.x,
                       b->index.y, b->index.z, w);
        if (s->issued != first->issued || s->hash != first->hash)
            emul__fail(b,
                       "block (%u, %u, %u): warps %u and %u of a warp group issued different wgmma "
                       "(%llu and %llu of them)",
                       b->index.x, b->index.y, b->index.z, w / WARPS * WARPS, w,
                       (unsigned long long)first->issued, (unsigned long long)s->issued);
    }
}

void emul__wgmma_free(struct block *b)
{
    for (unsigned w = 0; w < MAX_WARPS && b->wgmma; w++) {
        for (int i = 0; i < MAX_ACCUMULATORS; i++)
            free(b->wgmma[w].accumulator[i].value);
        emul__list_free(&b->wgmma[w].operations);
    }
    free(b->wgmma);
    b->wgmma = NULL;
}
