/*
 * The tuning rows of one required key and one class of GPU, and the search for the two that are
 * nearest to a problem: by the sum of |log2| distances of the coordinates, eight rows at once. Of
 * rows that are equally near the first counts.
 */
#ifndef GEN_NEAREST_H
#define GEN_NEAREST_H

#include "family/family.h"
#include "core/simd.h"

#include "format/product.h"

#define GEN__NO_ROW UINT32_MAX
#define GEN__OCTAVE 65536 /* distances are in so many parts of an octave */

/* Variants of a class are distinguished by slots. Those beyond share the last one, and are passed
 * over together. */
#define GEN__MAX_SLOTS 256

/* Octaves of the first coordinate that are distinguished, from 1 on. */
#define GEN__OCTAVES 40

struct gen__class_rows {
    struct gen__class_rows *next; /* of the same key: the next class */
    const struct gen__family *family;
    const struct gen_pack_row *rows; /* sorted by their coordinates */
    const int32_t *logs;             /* of coordinate c: from c * stride on */
    const float *log2_us;
    const uint8_t *slots; /* by row: of its variant */
    uint32_t num_rows, stride, num_slots;
    uint32_t table; /* that the rows come from */
    uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
    uint32_t octave_begins[GEN__OCTAVES + 1]; /* its first row, by the first coordinate */
};

/* The rows of the family, laid out for the search, to be freed; NULL: out of memory. */
struct gen__class_rows *gen__class_rows_new(const struct gen__family *family,
                                            const struct gen_pack_row *rows, uint32_t num_rows);

/* Where in the space of coordinates a problem is. */
struct gen__position {
    int32_t logs[GEN__MAX_COORDS];
};

/* `scale` multiplies the first coordinate. */
static inline struct gen__position gen__position_of(const float counts[GEN__MAX_COORDS],
                                                    float scale)
{
    const gen__lanes x = {GEN__FRESH(counts[0]) * scale, GEN__FRESH(counts[1]),
                          GEN__FRESH(counts[2]), GEN__FRESH(counts[3])};
    struct gen__position at;
    _Static_assert(sizeof(x) == GEN__MAX_COORDS * sizeof(*counts), "as many lanes as coordinates");
    const gen__int_lanes logs = gen__lanes_log2(x);
    memcpy(at.logs, &logs, sizeof(at.logs));
    return at;
}

struct gen__nearest {
    uint32_t row, second;               /* GEN__NO_ROW: there is none */
    uint32_t distance, second_distance; /* in parts of an octave */
};

/* refused[slot] is UINT32_MAX for variants that are passed over, else 0; NULL: none is. */
struct gen__nearest gen__nearest_rows(const struct gen__class_rows *rows,
                                      const struct gen__position *at, const uint32_t *refused);

/* The measured time at a position. With several coordinates it is the mean of the times of the two
 * nearest rows, weighted by the inverse of their distances, all logarithmic. With one it is
 * interpolated between the neighbours, constant below the first row, because there a launch is all
 * there is, and proportional to the coordinate above the last. */
float gen__rows_time(const struct gen__class_rows *rows, const struct gen__position *at,
                     const struct gen__nearest *nearest);

#endif /* GEN_NEAREST_H */
