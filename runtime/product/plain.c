/*
 * Ranges without the rows of choosy variants: those that a family refuses, often all of
 * them, for causes that hang on the problem alone. Where it does, the nearest row that
 * fits is found by a grid of these, as any nearest row is, and not by a look at all rows.
 */
#include "product/grid.h"
#include "product/library.h"

static uint32_t num_plain(const struct gen__family *family, const struct gen__range *range)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < range->num_rows; i++)
        count += gen__is_plain(family, range->rows[i].facts);
    return count;
}

/* Copies of the rows, of the same range in all else. */
static uint32_t fill_plain(const struct gen__family *family, const struct gen__range *range,
                           struct gen__row *rows, struct gen__range *plain)
{
    const struct gen__place place = plain->place;
    uint32_t count = 0;
    for (uint32_t i = 0; i < range->num_rows; i++)
        if (gen__is_plain(family, range->rows[i].facts))
            rows[count++] = range->rows[i];
    *plain = *range;
    plain->rows = rows;
    plain->num_rows = count;
    plain->place = place;
    plain->slots = NULL;
    return count;
}

bool gen__plain_build(gen_library *library)
{
    size_t num_rows = 0;
    for (uint32_t i = 0; i < library->num_ranges; i++) {
        const struct gen__family *family = gen__family_of_range(library, &library->ranges[i]);
        if (family->choosy)
            num_rows += num_plain(family, &library->ranges[i]);
    }
    library->plain_rows = gen__calloc_lines(num_rows + 1, sizeof(*library->plain_rows));
    struct gen__row *rows = library->plain_rows;
    if (!rows)
        return false;
    for (uint32_t i = 0; i < library->num_ranges; i++) {
        struct gen__range *range = &library->ranges[i], *plain = &library->plain[i];
        const struct gen__family *family = gen__family_of_range(library, range);
        if (!family->choosy || !range->place.at)
            continue;
        const uint32_t count = fill_plain(family, range, rows, plain);
        if (count == 0 || count == range->num_rows) {
            plain->place.at = NULL;
            continue;
        }
        rows += count;
        if (!plain->place.at && !gen__grid_index(library, family->num_coords, plain))
            return false;
        range->plain = plain->place.at ? plain : NULL;
    }
    return true;
}
