#include "verify/compare.h"

#include <math.h>
#include <string.h>

/* Elements that are added at a time: both runs of them stay in the first-level cache. */
#define BLOCK 1024
/* Sums side by side, so that an addition need not wait for the last one. */
#define LANES 4

void sums_add(struct sums *s, uint64_t i, double r, double a)
{
    if (isfinite(r) && isfinite(a)) {
        double d = fabs(a - r);
        s->difference += d * d;
        s->reference += r * r;
        if (d > s->worst) {
            s->worst = d;
            s->worst_index = i;
        }
    } else if (!(isnan(r) && isnan(a)) && r != a && !s->any_misplaced) {
        s->any_misplaced = true;
        s->misplaced = i;
    }
}

/* Is there an infinity or a NaN among them? */
static bool any_special(const float *x, uint64_t count)
{
    uint32_t special = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        special |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return special;
}

/* A whole block of finite elements. */
static void add_block(struct sums *s, uint64_t first, const float *r, const float *a)
{
    double difference[LANES] = {0}, reference[LANES] = {0}, most[LANES] = {0};
    for (uint64_t i = 0; i < BLOCK; i += LANES)
        for (uint64_t k = 0; k < LANES; k++) {
            const double e = (double)r[i + k], d = fabs((double)a[i + k] - e);
            difference[k] += d * d;
            reference[k] += e * e;
            most[k] = d > most[k] ? d : most[k];
        }
    double worst = s->worst;
    for (uint64_t k = 0; k < LANES; k++) {
        s->difference += difference[k];
        s->reference += reference[k];
        worst = most[k] > worst ? most[k] : worst;
    }
    for (uint64_t i = 0; s->worst < worst; i++) { /* hardly ever: which one it is */
        const double d = fabs((double)a[i] - (double)r[i]);
        if (d == worst) {
            s->worst = d;
            s->worst_index = first + i;
        }
    }
}

void sums_add_floats(struct sums *s, uint64_t first, const float *r, const float *a, uint64_t count)
{
    uint64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        if (any_special(r + i, BLOCK) || any_special(a + i, BLOCK))
            for (uint64_t k = i; k < i + BLOCK; k++)
                sums_add(s, first + k, (double)r[k], (double)a[k]);
        else
            add_block(s, first + i, r + i, a + i);
    }
    for (; i < count; i++)
        sums_add(s, first + i, (double)r[i], (double)a[i]);
}
