/* Laying tuning rows out, and finding the nearest ones. */
#include "product/nearest.h"

#include <math.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Distances from here on, 128 octaves, are no distances: of the rows that only fill up a block, and
 * of those that are passed over. */
#define TOO_FAR ((1u << 23) - 1)
#define BLOCK 8u
/* Of so many rows or fewer all are searched. */
#define WINDOWED 96u

/* ---- the layout -------------------------------------------------------- */

/* The slot of a variant, a new one where it has none yet. Those beyond share the last one. */
static uint8_t slot_of(uint32_t variants[GEN__MAX_SLOTS], uint32_t *num_slots, uint32_t variant)
{
    uint32_t slot = 0;
    while (slot < *num_slots && slot < GEN__MAX_SLOTS - 1 && variants[slot] != variant)
        slot++;
    if (slot == *num_slots)
        variants[(*num_slots)++] = variant;
    return (uint8_t)slot;
}

/* Of a first coordinate, counted from 1 on; what is beyond counts to the last. */
static uint32_t octave_of(int32_t log)
{
    const int32_t octave = log / GEN__OCTAVE - 127;
    return octave < 0 ? 0 : octave < GEN__OCTAVES ? (uint32_t)octave : GEN__OCTAVES - 1;
}

struct gen__class_rows *gen__class_rows_new(const struct gen__family *family,
                                            const struct gen_pack_row *rows, uint32_t num_rows)
{
    const size_t stride = ((size_t)num_rows + BLOCK - 1) / BLOCK * BLOCK;
    const size_t head = (sizeof(struct gen__class_rows) + 15) / 16 * 16;
    const size_t logs_size = family->num_coords * stride * sizeof(int32_t);
    unsigned char *at = calloc(1, head + logs_size + stride * (sizeof(float) + sizeof(uint8_t)));
    if (!at)
        return NULL;
    struct gen__class_rows *out = (struct gen__class_rows *)(void *)at;
    int32_t *logs = (int32_t *)(void *)(at + head);
    float *log2_us = (float *)(void *)(at + head + logs_size);
    uint8_t *slots = (uint8_t *)(log2_us + stride);
    uint32_t variants[GEN__MAX_SLOTS], num_slots = 0;
    for (uint32_t i = 0; i < stride; i++) {
        struct gen__position position = {{INT32_MIN / 2}};
        if (i < num_rows) {
            position = gen__position_of(rows[i].counts, 1.0f);
            slots[i] = slot_of(variants, &num_slots, rows[i].variant);
            log2_us[i] = log2f(rows[i].us);
        }
        for (uint32_t c = 0; c < family->num_coords; c++)
            logs[c * stride + i] = position.logs[c];
    }
    *out = (struct gen__class_rows){.family = family,
                                    .rows = rows,
                                    .logs = logs,
                                    .log2_us = log2_us,
                                    .slots = slots,
                                    .num_rows = num_rows,
                                    .stride = (uint32_t)stride,
                                    .num_slots = num_slots};
    for (uint32_t octave = 0, row = 0; octave <= GEN__OCTAVES; octave++) {
        while (row < num_rows && octave_of(logs[row]) < octave)
            row++;
        out->octave_begins[octave] = row;
    }
    return out;
}

/* ---- the search -------------------------------------------------------- */

static struct gen__nearest search_plain(const struct gen__class_rows *rows,
                                        const struct gen__position *at, const uint32_t *refused,
                                        uint32_t first, uint32_t end)
{
    struct gen__nearest found = {GEN__NO_ROW, GEN__NO_ROW, TOO_FAR, TOO_FAR};
    for (uint32_t i = first; i < end; i++) {
        uint32_t sum = refused ? refused[rows->slots[i]] : 0;
        for (uint32_t c = 0; c < rows->family->num_coords && sum < TOO_FAR; c++)
            sum += (uint32_t)abs(rows->logs[(size_t)c * rows->stride + i] - at->logs[c]);
        if (sum < found.distance)
            found = (struct gen__nearest){i, found.row, sum, found.distance};
        else if (sum < found.second_distance) {
            found.second = i;
            found.second_distance = sum;
        }
    }
    return found;
}

#if defined(__x86_64__)
/* With AVX2 eight rows at once. Words hold a distance above a row's index, so that one least number
 * is both, and of equal distances the first row is less. */
#define ROW_BITS 9
_Static_assert(TOO_FAR == UINT32_MAX >> ROW_BITS, "a distance and an index fill a word");

/* The two least words. */
struct words {
    uint32_t least, second;
};

/* Of eight words each the two least of all. */
__attribute__((target("avx2"))) static inline struct words least_of(__m256i least, __m256i second)
{
    __m256i other = _mm256_permute2x128_si256(least, least, 1);
    second = _mm256_min_epu32(second, _mm256_permute2x128_si256(second, second, 1));
    second = _mm256_min_epu32(second, _mm256_max_epu32(least, other));
    least = _mm256_min_epu32(least, other);
    other = _mm256_shuffle_epi32(least, _MM_SHUFFLE(1, 0, 3, 2));
    second = _mm256_min_epu32(second, _mm256_shuffle_epi32(second, _MM_SHUFFLE(1, 0, 3, 2)));
    second = _mm256_min_epu32(second, _mm256_max_epu32(least, other));
    least = _mm256_min_epu32(least, other);
    other = _mm256_shuffle_epi32(least, _MM_SHUFFLE(2, 3, 0, 1));
    second = _mm256_min_epu32(second, _mm256_shuffle_epi32(second, _MM_SHUFFLE(2, 3, 0, 1)));
    second = _mm256_min_epu32(second, _mm256_max_epu32(least, other));
    least = _mm256_min_epu32(least, other);
    return (struct words){(uint32_t)_mm256_cvtsi256_si32(least),
                          (uint32_t)_mm256_cvtsi256_si32(second)};
}

__attribute__((target("avx2"), always_inline)) static inline struct words
search_eight(const struct gen__class_rows *rows, uint32_t num_coords,
             const struct gen__position *at, const uint32_t *refused, uint32_t first, uint32_t end)
{
    const __m256i too_far = _mm256_set1_epi32((int)TOO_FAR), step = _mm256_set1_epi32(BLOCK);
    __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i least = _mm256_set1_epi32(-1), second = least, x[GEN__MAX_COORDS];
    const int32_t *logs[GEN__MAX_COORDS];
    for (uint32_t c = 0; c < num_coords; c++) {
        x[c] = _mm256_set1_epi32(at->logs[c]);
        logs[c] = rows->logs + (size_t)c * rows->stride;
    }
    for (uint32_t i = first; i < end; i += BLOCK) {
        __m256i sum = _mm256_setzero_si256();
        for (uint32_t c = 0; c < num_coords; c++) {
            const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(logs[c] + i));
            sum = _mm256_add_epi32(sum, _mm256_abs_epi32(_mm256_sub_epi32(y, x[c])));
        }
        if (refused) {
            const __m128i *slots = (const __m128i *)(const void *)(rows->slots + i);
            sum = _mm256_or_si256(
                sum, _mm256_i32gather_epi32((const int *)refused,
                                            _mm256_cvtepu8_epi32(_mm_loadl_epi64(slots)), 4));
        }
        sum = _mm256_min_epu32(sum, too_far);
        const __m256i word = _mm256_or_si256(_mm256_slli_epi32(sum, ROW_BITS), index);
        second = _mm256_min_epu32(second, _mm256_max_epu32(least, word));
        least = _mm256_min_epu32(least, word);
        index = _mm256_add_epi32(index, step);
    }
    return least_of(least, second);
}

/* For each number of coordinates by itself, so that its loop is unrolled. */
__attribute__((target("avx2"))) static struct words search_avx2(const struct gen__class_rows *rows,
                                                                const struct gen__position *at,
                                                                const uint32_t *refused,
                                                                uint32_t first, uint32_t end)
{
    if (refused)
        return search_eight(rows, rows->family->num_coords, at, refused, first, end);
    switch (rows->family->num_coords) {
    case 1:
        return search_eight(rows, 1, at, NULL, first, end);
    case 2:
        return search_eight(rows, 2, at, NULL, first, end);
    case 3:
        return search_eight(rows, 3, at, NULL, first, end);
    default:
        return search_eight(rows, 4, at, NULL, first, end);
    }
}
#endif

static struct gen__nearest search(const struct gen__class_rows *rows,
                                  const struct gen__position *at, const uint32_t *refused,
                                  uint32_t first, uint32_t end)
{
#if defined(__x86_64__)
    if (__builtin_expect(end - first <= 1u << ROW_BITS && __builtin_cpu_supports("avx2"), 1)) {
        const struct words words = search_avx2(rows, at, refused, first, end);
        const uint32_t index = (1u << ROW_BITS) - 1;
        const uint32_t distance = words.least >> ROW_BITS, second = words.second >> ROW_BITS;
        return (struct gen__nearest){
            .row = distance < TOO_FAR ? first + (words.least & index) : GEN__NO_ROW,
            .second = second < TOO_FAR ? first + (words.second & index) : GEN__NO_ROW,
            .distance = distance,
            .second_distance = second};
    }
#endif
    return search_plain(rows, at, refused, first, end);
}

struct gen__nearest gen__nearest_rows(const struct gen__class_rows *rows,
                                      const struct gen__position *at, const uint32_t *refused)
{
    if (rows->stride <= WINDOWED)
        return search(rows, at, refused, 0, rows->stride);
    /* Rows outside of so many octaves to both sides are farther than that. With more coordinates
     * the second nearest row is farther, too. */
    const uint32_t octaves = (rows->family->num_coords + 1) / 2;
    const uint32_t octave = octave_of(at->logs[0]);
    const uint32_t last = octave + octaves < GEN__OCTAVES ? octave + octaves + 1 : GEN__OCTAVES;
    const uint32_t first =
        octave > octaves ? rows->octave_begins[octave - octaves] / BLOCK * BLOCK : 0;
    const struct gen__nearest found = search(rows, at, refused, first, rows->octave_begins[last]);
    return found.second_distance <= octaves * GEN__OCTAVE
               ? found
               : search(rows, at, refused, 0, rows->stride);
}

/* ---- the time ---------------------------------------------------------- */

/* So far on the way from the time of row a to that of row b. */
static float between(const struct gen__class_rows *rows, uint32_t a, uint32_t b, float part)
{
    return rows->rows[a].us * exp2f(part * (rows->log2_us[b] - rows->log2_us[a]));
}

/* By the neighbours on both sides; of rows with the same coordinate the first counts. */
static float time_on_line(const struct gen__class_rows *rows, int32_t x, uint32_t row)
{
    const int32_t *logs = rows->logs;
    uint32_t below = row, above = row;
    if (logs[row] <= x) {
        while (above < rows->num_rows && logs[above] == logs[row])
            above++;
        if (above == rows->num_rows)
            return rows->rows[row].us * exp2f((float)(x - logs[row]) / GEN__OCTAVE);
    } else {
        if (row == 0)
            return rows->rows[row].us;
        for (below = row - 1; below > 0 && logs[below - 1] == logs[below];)
            below--;
    }
    const float part = (float)(x - logs[below]) / (float)(logs[above] - logs[below]);
    return between(rows, below, above, part);
}

float gen__rows_time(const struct gen__class_rows *rows, const struct gen__position *at,
                     const struct gen__nearest *nearest)
{
    if (rows->family->num_coords == 1)
        return time_on_line(rows, at->logs[0], nearest->row);
    if (nearest->second == GEN__NO_ROW || nearest->distance == 0)
        return rows->rows[nearest->row].us;
    const float near = (float)nearest->distance, far = (float)nearest->second_distance;
    return between(rows, nearest->row, nearest->second, near / (near + far));
}
