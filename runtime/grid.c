/* Finding the nearest rows in lists of several blocks: those of a grid's larger cells, and all. */
#include "grid_find.h"

#define FAR GEN__GRID_FAR
/* Blocks that are looked at together: their distances are kept. */
#define MANY 16

/* A bit for each row of a block that is no farther. */
static inline uint32_t no_farther(const gen__int_lanes d[GEN__GRID_VECTORS], gen__int_lanes than)
{
    return gen__lanes_bits(d[0] <= than) | gen__lanes_bits(d[1] <= than) << 4;
}

/* Of the blocks, at most MANY. Distances first, then which rows have the least two of them. */
__attribute__((always_inline)) static inline struct gen__nearest
nearest_of_blocks(const unsigned char *block, uint32_t count, uint32_t num_coords,
                  gen__int_lanes logs)
{
    const size_t size = gen__block_size(num_coords);
    gen__int_lanes d[MANY][GEN__GRID_VECTORS];
    gen__int_lanes least = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, next = least;
    for (uint32_t i = 0; i < count; i++) {
        gen__grid_look(block + i * size, num_coords, logs, d[i]);
        gen__int_lanes low = d[i][0], high = d[i][1];
        gen__lanes_sort(&low, &high);
        gen__lanes_sort(&least, &low);
        next = gen__lanes_least(next, gen__lanes_least(low, high));
    }
    gen__grid_least_two(&least, &next);
    struct gen__nearest found = {{0, 0}, {(float)least[0], (float)next[0]}, least[0] >= FAR};
    bool first = false, second = false;
    for (uint32_t i = 0; i < count && !(first && second); i++) {
        uint32_t near = no_farther(d[i], next);
        for (; near; near &= near - 1) {
            const uint32_t place = (uint32_t)__builtin_ctz(near);
            const uint32_t row = gen__grid_rows(block + i * size, num_coords)[place];
            if (!first && d[i][place / 4][place % 4] == least[0]) {
                found.row[0] = row;
                first = true;
            } else if (!second) {
                found.row[1] = row;
                second = true;
            }
        }
    }
    return found;
}

/* The rows of `b` come later: of equal distances the first's count. */
static struct gen__nearest nearer_two(struct gen__nearest a, struct gen__nearest b)
{
    const bool other = b.distance[0] < a.distance[0];
    const struct gen__nearest x = other ? b : a, y = other ? a : b;
    const bool swap = other ? !(x.distance[1] < y.distance[0]) : y.distance[0] < x.distance[1];
    return (struct gen__nearest){{x.row[0], swap ? y.row[0] : x.row[1]},
                                 {x.distance[0], swap ? y.distance[0] : x.distance[1]},
                                 x.far};
}

__attribute__((always_inline)) static inline struct gen__nearest
nearest_of(const unsigned char *block, uint32_t count, uint32_t num_coords, gen__int_lanes logs)
{
    const uint32_t now = count < MANY ? count : MANY;
    struct gen__nearest found = nearest_of_blocks(block, now, num_coords, logs);
    for (uint32_t i = now; i < count; i += MANY) {
        const uint32_t more = count - i < MANY ? count - i : MANY;
        const unsigned char *at = block + i * gen__block_size(num_coords);
        found = nearer_two(found, nearest_of_blocks(at, more, num_coords, logs));
    }
    return found;
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

/* ---- the nearest that is eligible -------------------------------------- */

/* In each lane the nearest row so far. */
struct lanes_best {
    gen__int_lanes distance, row;
};

/* Blocks are in the order of variants, not of rows: of equal distances the first row counts. */
__attribute__((always_inline)) static inline void look_for_best(const unsigned char *block,
                                                                uint32_t num_coords,
                                                                gen__int_lanes logs,
                                                                struct lanes_best *best)
{
    typedef uint16_t numbers __attribute__((vector_size(8)));
    gen__int_lanes d[GEN__GRID_VECTORS] = {{0}};
    gen__grid_look(block, num_coords, logs, d);
    for (uint32_t v = 0; v < GEN__GRID_VECTORS; v++) {
        numbers rows;
        memcpy(&rows, gen__grid_rows(block, num_coords) + 4 * v, sizeof(rows));
        const gen__int_lanes row = __builtin_convertvector(rows, gen__int_lanes);
        const gen__int_lanes nearer =
            (d[v] < best->distance) | ((d[v] == best->distance) & (row < best->row));
        best->distance = (d[v] & nearer) | (best->distance & ~nearer);
        best->row = (row & nearer) | (best->row & ~nearer);
    }
}

__attribute__((always_inline)) static inline const struct gen__row *
eligible_of(const struct gen__range *range, uint32_t num_coords, gen__int_lanes logs,
            uint32_t eligible)
{
    const struct gen__slots *slots = range->slots;
    const unsigned char *const blocks = (const unsigned char *)(slots + 1);
    struct lanes_best best = {{FAR, FAR, FAR, FAR}, {0, 0, 0, 0}};
    for (; eligible; eligible &= eligible - 1) {
        const uint32_t slot = (uint32_t)__builtin_ctz(eligible);
        for (uint32_t i = slot ? slots->end[slot - 1] : 0; i < slots->end[slot]; i++)
            look_for_best(blocks + i * gen__block_size(num_coords), num_coords, logs, &best);
    }
    uint32_t at = 0;
    for (uint32_t i = 1; i < 4; i++)
        if (best.distance[i] < best.distance[at] ||
            (best.distance[i] == best.distance[at] && best.row[i] < best.row[at]))
            at = i;
    return best.distance[at] < FAR ? &range->rows[best.row[at]] : NULL;
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
