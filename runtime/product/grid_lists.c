/* Which rows the cells of a grid list: boxes of cells are halved, and of the rows near
 * a box those are near its halves that are not far from all of it. */
#include "product/grid_build.h"

#define UNSIFTED 3 /* depths whose boxes are so large that nearly every row is near */

struct box {
    uint32_t first[GEN__MAX_COORDS], end[GEN__MAX_COORDS]; /* slabs */
};

/* The rows' box is all there is: beyond it distances grow alike. */
static float slab_begin(const struct gen__builder *b, uint32_t c, uint32_t slab)
{
    return slab ? b->begin[c][slab] : b->low[c];
}

/* The last place of the slabs before `end`. */
static float slabs_end(const struct gen__builder *b, uint32_t c, uint32_t end)
{
    return end < b->num_slabs[c] ? b->begin[c][end] - GEN__LOG_UNIT : b->high[c];
}

/*
 * How far the candidates are from the box's two ends, and four referees: in each
 * lane the row whose farthest place in the box is nearest. Fewer only where there
 * are fewer rows.
 */
__attribute__((always_inline)) static inline gen__int_lanes
pick_referees(struct gen__builder *b, uint32_t num_coords, const struct gen__candidates *all,
              const struct box *box)
{
    gen__lanes low[GEN__MAX_COORDS], high[GEN__MAX_COORDS];
    gen__lanes least = gen__lanes_all(INFINITY);
    gen__int_lanes referees = {-1, -1, -1, -1}, here = {0, 1, 2, 3};
    for (uint32_t c = 0; c < num_coords; c++) {
        low[c] = gen__lanes_all(slab_begin(b, c, box->first[c]));
        high[c] = gen__lanes_all(slabs_end(b, c, box->end[c]));
    }
    for (uint32_t i = 0; i < all->count; i += 4, here += 4) {
        gen__lanes farthest = {0};
        for (uint32_t c = 0; c < num_coords; c++) {
            const gen__lanes row = gen__lanes_load(all->logs[c] + i);
            const gen__lanes from_low = gen__lanes_distance(row, low[c]);
            const gen__lanes from_high = gen__lanes_distance(row, high[c]);
            gen__lanes_store(b->from_low[c] + i, from_low);
            gen__lanes_store(b->from_high[c] + i, from_high);
            farthest += gen__lanes_max(from_low, from_high);
        }
        const gen__int_lanes nearer = farthest < least;
        least = gen__lanes_min(farthest, least);
        referees = (here & nearer) | (referees & ~nearer);
    }
    return referees;
}

/*
 * Against how many of the referees a row loses: they are nearer everywhere in the
 * box, or equally near and in front of it. Along one coordinate the difference of
 * two rows' distances rises or falls all the way, so it is greatest at one of the ends.
 */
__attribute__((always_inline)) static inline void judge(struct gen__builder *b, uint32_t num_coords,
                                                        uint32_t count, gen__int_lanes referees)
{
    gen__lanes low[4][GEN__MAX_COORDS], high[4][GEN__MAX_COORDS];
    uint32_t num = 0;
    gen__int_lanes place[4];
    for (uint32_t r = 0; r < 4; r++) {
        if (referees[r] < 0)
            continue;
        place[num] = (gen__int_lanes){0} + referees[r];
        for (uint32_t c = 0; c < num_coords; c++) {
            low[num][c] = gen__lanes_all(b->from_low[c][referees[r]]);
            high[num][c] = gen__lanes_all(b->from_high[c][referees[r]]);
        }
        num++;
    }
    gen__int_lanes here = {0, 1, 2, 3};
    for (uint32_t i = 0; i < count; i += 4, here += 4) {
        gen__int_lanes lost = {0};
        for (uint32_t r = 0; r < num; r++) {
            gen__lanes lead = {0};
            for (uint32_t c = 0; c < num_coords; c++)
                lead += gen__lanes_max(low[r][c] - gen__lanes_load(b->from_low[c] + i),
                                       high[r][c] - gen__lanes_load(b->from_high[c] + i));
            lost += (lead < 0.0f) | ((lead == 0.0f) & (here > place[r]));
        }
        memcpy(b->lost + i, &lost, sizeof(lost));
    }
}

/* Those that lose at most once. */
__attribute__((always_inline)) static inline void
sift_of(struct gen__builder *b, uint32_t num_coords, const struct gen__candidates *all,
        const struct box *box, struct gen__candidates *kept)
{
    uint32_t to = 0;
    judge(b, num_coords, all->count, pick_referees(b, num_coords, all, box));
    for (uint32_t i = 0; i < all->count; i++) {
        kept->rows[to] = all->rows[i];
        for (uint32_t c = 0; c < num_coords; c++)
            kept->logs[c][to] = all->logs[c][i];
        to += b->lost[i] > -2;
    }
    kept->count = to;
    for (; to % 4; to++) /* no referee */
        kept->logs[0][to] = INFINITY;
}

static void sift(struct gen__builder *b, const struct gen__candidates *all, const struct box *box,
                 struct gen__candidates *kept)
{
    if (b->num_coords == 2)
        sift_of(b, 2, all, box, kept);
    else if (b->num_coords == 3)
        sift_of(b, 3, all, box, kept);
    else
        sift_of(b, 4, all, box, kept);
}

void gen__grid_write(const struct gen__builder *b, const struct gen__candidates *rows,
                     unsigned char *to)
{
    const size_t size = gen__block_size(b->num_coords);
    for (uint32_t first = 0; first < rows->count; first += GEN__GRID_BLOCK, to += size) {
        const uint32_t left = rows->count - first;
        const uint32_t here = left < GEN__GRID_BLOCK ? left : GEN__GRID_BLOCK;
        if (here < GEN__GRID_BLOCK)
            gen__grid_clear(to, b->num_coords);
        int32_t *logs = (int32_t *)(void *)to;
        for (uint32_t c = 0; c < b->num_coords; c++, logs += GEN__GRID_BLOCK)
            for (uint32_t i = 0; i < here; i++)
                logs[i] = gen__grid_units(rows->logs[c][first + i]);
        memcpy(logs, rows->rows + first, here * sizeof(rows->rows[0]));
    }
}

/* What cells say of the list. Where there is no room for it, or little to be saved by it, all rows
 * are. */
static uint32_t keep_list(struct gen__builder *b, const struct gen__candidates *rows)
{
    const size_t at = b->lists_size;
    const uint32_t blocks = gen__blocks_of(rows->count), all = gen__blocks_of(b->of_depth[0].count);
    const size_t size = blocks * gen__block_size(b->num_coords);
    if (blocks > GEN__GRID_BLOCKS || at + size > GEN__MAX_LISTS(b->num_coords) ||
        (blocks > 1 && 4 * blocks > 3 * all))
        return GEN__GRID_ALL;
    gen__grid_write(b, rows, b->lists + at);
    b->lists_size += size;
    /* They come behind the cells. */
    const size_t vectors = (at + gen__grid_cells_size(b->num_cells)) / sizeof(gen__lanes);
    return (uint32_t)vectors << GEN__GRID_BLOCK_BITS | (blocks - 1);
}

/* Every cell of a box gets the list. */
static void fill_box(struct gen__builder *b, const struct box *box, uint32_t list)
{
    uint32_t at[GEN__MAX_COORDS];
    memcpy(at, box->first, sizeof(at));
    for (;;) {
        uint32_t cell = 0, c = 0;
        for (uint32_t k = 0; k < b->num_coords; k++)
            cell += at[k] * b->stride[k];
        b->cells[cell] = list;
        while (c < b->num_coords && ++at[c] == box->end[c]) {
            at[c] = box->first[c];
            c++;
        }
        if (c == b->num_coords)
            return;
    }
}

/* The coordinate along which the box is longest, of those it has several slabs of;
 * num_coords for a cell. */
static uint32_t longest_side(const struct gen__builder *b, const struct box *box)
{
    uint32_t longest = b->num_coords;
    float length = -1.0f;
    for (uint32_t c = 0; c < b->num_coords; c++) {
        const float here = slabs_end(b, c, box->end[c]) - slab_begin(b, c, box->first[c]);
        if (box->end[c] - box->first[c] > 1 && here > length) {
            longest = c;
            length = here;
        }
    }
    return longest;
}

/* Halves boxes until few rows remain or one cell. `all` are those of the box around. */
static void fill(struct gen__builder *b, const struct box *box, const struct gen__candidates *all,
                 uint32_t depth)
{
    struct gen__candidates *kept = &b->of_depth[depth];
    const uint32_t c = longest_side(b, box);
    if (depth > UNSIFTED || c == b->num_coords || all->count <= GEN__GRID_BLOCK) {
        sift(b, all, box, kept);
        all = kept;
    }
    if (c == b->num_coords && all->count > GEN__GRID_BLOCK) { /* other referees */
        sift(b, all, box, kept + 1);
        all = kept + 1;
    }
    if (all->count <= GEN__GRID_BLOCK || c == b->num_coords) {
        fill_box(b, box, keep_list(b, all));
        return;
    }
    const uint32_t middle = (box->first[c] + box->end[c]) / 2;
    struct box half = *box;
    half.end[c] = middle;
    fill(b, &half, all, depth + 1);
    half = *box;
    half.first[c] = middle;
    fill(b, &half, all, depth + 1);
}

void gen__grid_fill(struct gen__builder *b)
{
    struct box all = {{0}, {0}};
    memcpy(all.end, b->num_slabs, sizeof(all.end));
    fill(b, &all, &b->of_depth[0], 1);
}
