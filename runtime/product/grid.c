/* Finding the nearest rows in lists of several blocks: those of a grid's larger cells, and all. */
#include "product/grid_find.h"

#define FAR ((float)GEN__GRID_FAR)
/* Blocks that are looked at together: a bit for each of their rows fills a word. */
#define AT_ONCE 8
_Static_assert(AT_ONCE *GEN__GRID_BLOCK == 64, "a word");
/* Of variants' rows: their distances are kept. */
#define MANY 32

/* gen__grid_look() in floats, which take fewer steps where many rows are looked at (3 ns of 126 of
 * mla_decode's selection): exact as far as anything is looked for. */
__attribute__((always_inline)) static inline void look(const unsigned char *block,
                                                       uint32_t num_coords, gen__int_lanes logs,
                                                       gen__lanes d[GEN__GRID_VECTORS])
{
    block = __builtin_assume_aligned(block, sizeof(gen__lanes));
#pragma GCC unroll 4
    for (uint32_t c = 0; c < num_coords; c++) {
        const gen__int_lanes x = {logs[c], logs[c], logs[c], logs[c]};
        gen__int_lanes more[GEN__GRID_VECTORS];
        memcpy(more, block + c * sizeof(more), sizeof(more));
#pragma GCC unroll 2
        for (uint32_t v = 0; v < GEN__GRID_VECTORS; v++) {
            const gen__lanes apart = gen__lanes_of_bits(
                gen__bits_of_lanes(__builtin_convertvector(more[v] - x, gen__lanes)) &
                gen__lanes_terms.distance);
            d[v] = c ? d[v] + apart : apart;
        }
    }
}

/* Of four lanes the least and the second, of which `next` has candidates, too. */
static inline void least_two(gen__lanes least, gen__lanes next, float found[2])
{
    gen__lanes other = gen__lanes_halves(least), other_next = gen__lanes_halves(next);
    next = gen__lanes_min(gen__lanes_max(least, other), gen__lanes_min(next, other_next));
    least = gen__lanes_min(least, other);
    other = gen__lanes_pairs(least), other_next = gen__lanes_pairs(next);
    next = gen__lanes_min(gen__lanes_max(least, other), gen__lanes_min(next, other_next));
    found[0] = gen__lanes_min(least, other)[0];
    found[1] = next[0];
}

/* A bit for each row of a block where it holds. */
static inline uint32_t bits_of(gen__int_lanes first, gen__int_lanes second)
{
    return gen__lanes_bits(first) | gen__lanes_bits(second) << 4;
}

struct two {
    uint32_t row[2];
    float distance[2];
};

/* Of the blocks, at most AT_ONCE. Distances first, then, a bit for each place, which rows have the
 * least two of them: without a branch, for every problem would take another. */
__attribute__((always_inline)) static inline struct two
nearest_of_blocks(const unsigned char *block, uint32_t count, uint32_t num_coords,
                  gen__int_lanes logs)
{
    const size_t size = gen__block_size(num_coords);
    gen__lanes d[AT_ONCE][GEN__GRID_VECTORS];
    gen__lanes least = gen__lanes_all(INFINITY), next = least;
    for (uint32_t i = 0; i < count; i++) {
        look(block + i * size, num_coords, logs, d[i]);
        const gen__lanes low = gen__lanes_min(d[i][0], d[i][1]);
        const gen__lanes high = gen__lanes_max(d[i][0], d[i][1]);
        next = gen__lanes_min(gen__lanes_min(next, high), gen__lanes_max(least, low));
        least = gen__lanes_min(least, low);
    }
    struct two found;
    least_two(least, next, found.distance);
    const gen__lanes first = gen__lanes_all(found.distance[0]);
    const gen__lanes second = gen__lanes_all(found.distance[1]);
    uint64_t nearest = 0, near = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t shift = i * GEN__GRID_BLOCK;
        nearest |= (uint64_t)bits_of(d[i][0] == first, d[i][1] == first) << shift;
        near |= (uint64_t)bits_of(d[i][0] <= second, d[i][1] <= second) << shift;
    }
    near &= ~(nearest & -nearest);
    for (int i = 0; i < 2; i++) {
        const uint32_t place = (uint32_t)__builtin_ctzll(i ? near : nearest);
        const unsigned char *in = block + place / GEN__GRID_BLOCK * size;
        found.row[i] = gen__grid_rows(in, num_coords)[place % GEN__GRID_BLOCK];
    }
    return found;
}

/* The rows of `b` come later: of equal distances the first's count. */
static struct two nearer_two(struct two a, struct two b)
{
    const bool other = b.distance[0] < a.distance[0];
    const struct two x = other ? b : a, y = other ? a : b;
    const bool swap = other ? !(x.distance[1] < y.distance[0]) : y.distance[0] < x.distance[1];
    return (struct two){{x.row[0], swap ? y.row[0] : x.row[1]},
                        {x.distance[0], swap ? y.distance[0] : x.distance[1]}};
}

__attribute__((always_inline)) static inline struct gen__nearest
nearest_of(const unsigned char *block, uint32_t count, uint32_t num_coords, gen__int_lanes logs)
{
    const uint32_t now = count < AT_ONCE ? count : AT_ONCE;
    struct two found = nearest_of_blocks(block, now, num_coords, logs);
    for (uint32_t i = now; i < count; i += AT_ONCE) {
        const uint32_t more = count - i < AT_ONCE ? count - i : AT_ONCE;
        const unsigned char *at = block + i * gen__block_size(num_coords);
        found = nearer_two(found, nearest_of_blocks(at, more, num_coords, logs));
    }
    return (struct gen__nearest){{found.row[0], found.row[1]},
                                 gen__part(found.distance[0], found.distance[1]),
                                 {found.distance[0] >= FAR, found.distance[1] >= FAR}};
}

struct gen__nearest gen__nearest_of_list(const struct gen__range *range, uint32_t num_coords,
                                         uint32_t cell, gen__int_lanes logs)
{
    const unsigned char *block = gen__grid_list(&range->place, cell);
    uint32_t count = cell % (1u << GEN__GRID_BLOCK_BITS) + 1;
    if (cell == GEN__GRID_ALL) {
        block = gen__grid_all(range, num_coords);
        count = gen__blocks_of(range->num_rows);
    }
    if (num_coords == 2)
        return nearest_of(block, count, 2, logs);
    if (num_coords == 3)
        return nearest_of(block, count, 3, logs);
    return nearest_of(block, count, 4, logs);
}

const struct gen__row *gen__grid_find_scaled(const struct gen__range *range, uint32_t num_coords,
                                             const float *counts, float first)
{
    const float at[GEN__MAX_COORDS] = {first, counts[1], num_coords > 2 ? counts[2] : 1.0f,
                                       num_coords > 3 ? counts[3] : 1.0f};
    float us;
    const struct gen__row *next;
    if (num_coords == 2)
        return gen__grid_find(range, 2, at, &us, &next);
    if (num_coords == 3)
        return gen__grid_find(range, 3, at, &us, &next);
    return gen__grid_find(range, 4, at, &us, &next);
}

/* ---- the nearest that is eligible -------------------------------------- */

/* Blocks of the rows of variants, whose distances are known. */
struct looked_at {
    uint32_t count;
    const uint16_t *rows[MANY];
    gen__lanes d[MANY][GEN__GRID_VECTORS], least;
};

struct best {
    float distance;
    uint32_t row;
};

/* They are in the order of variants, not of rows: of equal distances the first row counts. */
static void take_best(const struct looked_at *seen, struct best *best)
{
    float least[2];
    least_two(seen->least, seen->least, least);
    if (least[0] > best->distance)
        return;
    const gen__lanes all = gen__lanes_all(least[0]);
    for (uint32_t i = 0; i < seen->count; i++) {
        uint32_t same = bits_of(seen->d[i][0] == all, seen->d[i][1] == all);
        for (; same; same &= same - 1) {
            const uint32_t row = seen->rows[i][(unsigned)__builtin_ctz(same)];
            if (least[0] < best->distance || row < best->row)
                *best = (struct best){least[0], row};
        }
    }
}

__attribute__((always_inline)) static inline const struct gen__row *
eligible_of(const struct gen__range *range, uint32_t num_coords, gen__int_lanes logs,
            uint32_t eligible)
{
    const struct gen__slots *slots = range->slots;
    const unsigned char *const blocks = (const unsigned char *)(slots + 1);
    struct best best = {FAR, 0};
    struct looked_at seen;
    seen.count = 0;
    seen.least = gen__lanes_all(INFINITY);
    for (; eligible; eligible &= eligible - 1) {
        const uint32_t slot = (uint32_t)__builtin_ctz(eligible);
        for (uint32_t i = slot ? slots->end[slot - 1] : 0; i < slots->end[slot]; i++) {
            const unsigned char *block = blocks + i * gen__block_size(num_coords);
            gen__lanes *d = seen.d[seen.count];
            seen.rows[seen.count++] = gen__grid_rows(block, num_coords);
            look(block, num_coords, logs, d);
            seen.least = gen__lanes_min(seen.least, gen__lanes_min(d[0], d[1]));
            if (seen.count < MANY)
                continue;
            take_best(&seen, &best);
            seen.count = 0;
            seen.least = gen__lanes_all(INFINITY);
        }
    }
    take_best(&seen, &best);
    return best.distance < FAR ? &range->rows[best.row] : NULL;
}

const struct gen__row *gen__grid_find_eligible(const struct gen__range *range, uint32_t num_coords,
                                               const float *at, float first, uint32_t eligible)
{
    gen__lanes counts = gen__grid_counts(at, num_coords);
    counts[0] = first;
    const gen__int_lanes logs = gen__lanes_log2(counts);
    if (num_coords == 2)
        return eligible_of(range, 2, logs, eligible);
    if (num_coords == 3)
        return eligible_of(range, 3, logs, eligible);
    return eligible_of(range, 4, logs, eligible);
}
