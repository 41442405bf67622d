/*
 * wgmma, warp by warp: warp w of a group of four works out rows 16 w to 16 w + 15
 * of the product. In eager mode it does so when it issues the instruction, not
 * waiting for the other three; in late mode when it waits for the instruction's
 * group, and until then its accumulators read as NaN. That the four warps issued
 * the same is checked when the block ends.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 256
#define MAX_ACCUMULATORS 16
#define WARPS 4
#define SLICE 16 /* rows of one warp */

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
};

static struct matrix read_descriptor(unsigned long long d, bool mn_major)
{
    const struct matrix m = {(unsigned)(d & 0x3fff) << 4, (unsigned)(d >> 16 & 0x3fff) << 4,
                             (unsigned)(d >> 32 & 0x3fff) << 4};
    if (d >> 62 != 1)
        emul_fault("wgmma: a descriptor (%#llx) without the 128-byte swizzle", d);
    if (d >> 49 & 7)
        emul_fault("wgmma: a descriptor (%#llx) with a base offset", d);
    if (m.address & (mn_major ? 0x3ff : 0x380))
        emul_fault("wgmma: a matrix at shared address %#x, not at the begin of %s", m.address,
                   mn_major ? "1,024 bytes" : "a row of the first 8 of 1,024 bytes");
    if (m.group_bytes % 1024 || (mn_major && m.row_bytes % 1024))
        emul_fault("wgmma: cells %u and %u bytes apart; allowed are multiples of 1,024",
                   m.row_bytes, m.group_bytes);
    return m;
}

/* Eight elements, along the row that the matrix keeps together. */
static void read_eight(unsigned address, bool is_bf16, float *to)
{
    uint16_t bits[8];
    address ^= (address >> 7 & 7) << 4;
    memcpy(bits, emul__async_read(address, 16, "wgmma"), 16);
    for (int i = 0; i < 8; i++)
        to[i] = emul__element(bits[i], is_bf16);
}

/* Rows [first, first + count) of a K-major matrix, 16 wide. */
static void read_k_major(struct matrix m, unsigned first, unsigned count, bool is_bf16,
                         float (*to)[16])
{
    for (unsigned r = 0; r < count; r++) {
        const unsigned row = first + r;
        const unsigned at = m.address + row / 8 * m.group_bytes + row % 8 * 128;
        read_eight(at, is_bf16, to[r]);
        read_eight(at + 16, is_bf16, to[r] + 8);
    }
}

/* B as [16][columns]. */
static void read_b(const struct emul_product *w, float (*b)[MAX_COLUMNS])
{
    const struct matrix m = read_descriptor(w->b, w->b_mn);
    const unsigned columns = (unsigned)w->columns;
    if (w->b_mn) {
        for (unsigned k = 0; k < 16; k++)
            for (unsigned n = 0; n < columns; n += 8)
                read_eight(m.address + n / 64 * m.row_bytes + k / 8 * m.group_bytes + k % 8 * 128 +
                               n % 64 * 2,
                           w->is_bf16, &b[k][n]);
        return;
    }
    float rows[MAX_COLUMNS][16];
    read_k_major(m, 0, columns, w->is_bf16, rows);
    for (unsigned n = 0; n < columns; n++)
        for (int k = 0; k < 16; k++)
            b[k][n] = rows[n][k];
}

static void read_a(const struct operation *o, unsigned warp, float (*a)[16])
{
    if (!o->a_in_registers) {
        read_k_major(read_descriptor(o->what.a, false), warp % WARPS * SLICE, SLICE,
                     o->what.is_bf16, a);
        return;
    }
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 8; i++)
            a[lane / 4 + 8 * (i / 2 % 2)][lane % 4 * 2 + i % 2 + 8 * (i / 4)] =
                emul__element((unsigned short)(o->a[lane][i / 2] >> 16 * (i % 2)), o->what.is_bf16);
}

static void compute(const struct operation *o, unsigned warp)
{
    float a[SLICE][16], b[16][MAX_COLUMNS], d[SLICE][MAX_COLUMNS] = {{0}};
    fragment *value = o->accumulator->value;
    const int columns = o->what.columns;
    read_a(o, warp, a);
    read_b(&o->what, b);
    for (int lane = 0; lane < WARP && o->what.accumulate; lane++)
        for (int i = 0; i < columns / 2; i++)
            d[lane / 4 + 8 * (i / 2 % 2)][8 * (i / 4) + lane % 4 * 2 + i % 2] = value[lane][i];
    for (int row = 0; row < SLICE; row++)
        for (int k = 0; k < 16; k++)
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
            w->accumulate != first->accumulate || w->is_bf16 != first->is_bf16)
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
    s->hash = mix(
        mix(mix(s->hash, first->b), o.a_in_registers ? 1 : first->a),
        (uint64_t)(first->columns * 8 + first->b_mn * 4 + first->accumulate * 2 + first->is_bf16));
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
