/* Do tensors lie apart? Ranges of addresses say so nearly always; where these overlap, tensors may
 * still be columns, or heads, of one buffer. */
#include "family/overlap.h"

/* Bytes from `begin` to before `end`, counted from a tensor's address. */
struct range {
    int64_t begin, end;
};

/* What a step in a dimension comes to; 0 where there is none. */
static int64_t step_of(const struct gen__extent *e, int dimension)
{
    const bool steps = dimension < e->rank && e->count[dimension] > 1;
    const int64_t step = steps ? e->stride[dimension] : 0;
    return step < 0 ? -step : step;
}

/* Of the dimensions whose steps are below `limit`. */
static struct range range_of(const struct gen__extent *e, int64_t limit)
{
    struct range r = {0, e->width};
    for (int i = 0; i < e->rank; i++) {
        const int64_t step = step_of(e, i);
        if (!step || step >= limit)
            continue;
        const int64_t reach = (e->count[i] - 1) * e->stride[i];
        *(reach < 0 ? &r.begin : &r.end) += reach;
    }
    return r;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Of the steps from `limit` on, of both: addresses repeat by it. */
static int64_t period_of(const struct gen__extent *a, const struct gen__extent *b, int64_t limit)
{
    int64_t period = 0;
    for (int i = 0; i < GEN__EXTENT_RANK; i++) {
        if (step_of(a, i) >= limit)
            period = common_divisor(period, step_of(a, i));
        if (step_of(b, i) >= limit)
            period = common_divisor(period, step_of(b, i));
    }
    return period;
}

/* Are they columns of rows that are `limit` bytes or more from each other? */
static bool are_columns(const struct gen__extent *a, const struct gen__extent *b, int64_t limit)
{
    const int64_t period = period_of(a, b, limit);
    const struct range x = range_of(a, limit), y = range_of(b, limit);
    const int64_t size_a = x.end - x.begin, size_b = y.end - y.begin;
    /* From the first of a's bytes to the first of b's, in a circle of the period's length. */
    const int64_t from = (int64_t)((uintptr_t)a->at % (uintptr_t)period) + x.begin % period;
    const int64_t to = (int64_t)((uintptr_t)b->at % (uintptr_t)period) + y.begin % period;
    const int64_t ahead = ((to - from) % period + period) % period;
    return ahead >= size_a && ahead + size_b <= period;
}

static bool lie_apart(const struct gen__extent *a, const struct gen__extent *b)
{
    for (int i = 0; i < GEN__EXTENT_RANK; i++)
        if ((step_of(a, i) && are_columns(a, b, step_of(a, i))) ||
            (step_of(b, i) && are_columns(a, b, step_of(b, i))))
            return true;
    return false;
}

/* Does the family let the one be the other? */
static bool are_one(const struct gen__extent *a, const struct gen__extent *b)
{
    return a->at == b->at && (a->may_be == b->at || b->may_be == a->at);
}

static inline bool ranges_overlap(const struct gen__extent *a, const struct gen__extent *b)
{
    return (a->begin < b->end) & (a->end > b->begin);
}

/* Of what is written and something else. */
static enum gen_status __attribute__((noinline, cold))
check_pair(const char *family, const struct gen__extent *written, const struct gen__extent *other)
{
    if (!ranges_overlap(written, other) || are_one(written, other) || lie_apart(written, other))
        return GEN_OK;
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: %s, from %p to %p, overlaps %s, from %p to %p; allowed: memory of its "
                     "own for what is written",
                     family, written->name, (const void *)written->begin,
                     (const void *)written->end, other->name, (const void *)other->begin,
                     (const void *)other->end);
}

enum gen_status gen__check_apart(const char *family, const struct gen__extent *extents,
                                 uint32_t count)
{
    enum gen_status status = GEN_OK;
    for (uint32_t w = 0; w < count; w++) {
        const struct gen__extent *written = &extents[w];
        if (!written->written)
            continue;
        uint32_t overlapping = 0; /* itself among them; counted without a jump */
        for (uint32_t i = 0; i < count; i++)
            overlapping += ranges_overlap(&extents[i], written);
        for (uint32_t i = 0; __builtin_expect(overlapping > 1, 0) && !status && i < count; i++)
            if (i != w)
                status = check_pair(family, written, &extents[i]);
    }
    return status;
}
