/* The problem of the stages of Kimi Delta Attention prefill on the host: stage.h. */
#include "families/kda/stage.h"

#include "reference/scatter.h"
#include "families/common/fastdiv.h"
#include "reference/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const gen__kda_stage_coords[] = {"tiles"};

const struct gen__field gen__kda_stage_fields[KDA_STAGE_NUM_FIELDS] = {
    GEN__KDA_FIELDS(gen_kda_stage_problem),
    GEN__INDEX_FIELD(gen_kda_stage_problem),
};
GEN__KDA_FIELDS_ARE_DIMS(gen_kda_stage_problem);

enum gen_status gen__kda_stage_refuse(const char *family, int64_t blocks)
{
    return gen__invalid(family, "chunks * (num_v_heads + 2 * num_qk_heads)", blocks,
                        "<= 2147483647");
}

struct gen_kda_stage_shape gen__kda_stage_shape(const int32_t *dims, const int32_t *cu_seqlens,
                                                int64_t units)
{
    const struct gen__fastdiv blocks = gen__fastdiv((uint32_t)units);
    const struct gen__fastdiv group =
        gen__fastdiv((uint32_t)(dims[KDA_V_HEADS] / dims[KDA_QK_HEADS]));
    return (struct gen_kda_stage_shape){
        .sequences = gen__kda_sequences(dims, cu_seqlens),
        .num_qk_heads = dims[KDA_QK_HEADS],
        .num_v_heads = dims[KDA_V_HEADS],
        .heads_mul = blocks.mul,
        .heads_shift = blocks.shift,
        .group_mul = group.mul,
        .group_shift = group.shift,
    };
}

void gen__kda_stage_case_name(const char *family, const gen_problem *base, char *text,
                              size_t capacity)
{
    char name[96];
    gen__kda_case_name(gen__kda_stage_dims(base), name, sizeof name);
    snprintf(text, capacity, "%s-%s", family + sizeof "kda_" - 1, name);
}

enum gen_status gen__kda_stage_check_pointers(const char *family, const int32_t *dims,
                                              const int32_t *cu_seqlens,
                                              const struct gen__kda_pointer *list, uint32_t count)
{
    const bool none = !gen__kda_tokens(dims);
    for (uint32_t i = 0; i < count; i++) {
        const enum gen_status status = gen__check_pointer(
            family, list[i].name, list[i].pointer, list[i].alignment, none || list[i].optional);
        if (status)
            return status;
    }
    return gen__kda_check_cu_seqlens(family, dims, cu_seqlens);
}

/* ---- inputs for tests -------------------------------------------------- */

/* By channel: what a token's gate is at least, and so what is left of a state behind a
 * chunk: nearly all, a third, nothing. Unbounded gates are larger still. */
static double gate_bound(const int32_t *dims, int64_t channel)
{
    static const double bounds[] = {0.002, 0.03, 0.4, 5.0};
    return channel % 4 == 3 && !dims[KDA_SAFE_GATE] ? 60.0 : bounds[channel % 4];
}

static void fill_gates(const int32_t *dims, uint64_t seed, int64_t first, int64_t count, float *gk)
{
    const double log2_e = 1.4426950408889634;
    const int64_t width = gen__kda_v_width(dims);
    for (int64_t c = 0; c < width; c++) {
        const double bound = gate_bound(dims, c) * log2_e;
        double sum = 0.0;
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = (first + i) * width + c;
            sum -= bound * gen__scatter(seed, at);
            gk[at] = (float)sum;
        }
    }
}

/* One chunk's rows of a matrix of 64 columns, for all heads. */
static void fill_triangle(const int32_t *dims, uint64_t seed, int64_t first, int64_t count,
                          bool unit, bool non_finite, uint16_t *matrix)
{
    const bool fp16 = dims[KDA_DTYPE] == GEN_DTYPE_FP16;
    const int64_t heads = dims[KDA_V_HEADS];
    for (int64_t i = 0; i < count; i++)
        for (int64_t at = 0; at < heads * KDA_CHUNK; at++) {
            const int64_t j = at % KDA_CHUNK, place = (first + i) * heads * KDA_CHUNK + at;
            double x = 0.2 * (gen__scatter(seed + 1, place) - 0.5);
            if (j > i)
                x = non_finite ? (double)NAN : 0.0;
            else if (j == i && unit)
                x = 1.0;
            matrix[place] = fp16 ? gen__fp16_from_double(x) : gen__bf16_from_double(x);
        }
}

/* One chunk's inputs. */
static void fill_chunk(const int32_t *dims, const struct gen__fill_options *options,
                       const struct gen__kda_stage_inputs *in, int64_t first, int64_t count)
{
    if (in->gk)
        fill_gates(dims, options->seed, first, count, in->gk);
    if (in->a_kk)
        fill_triangle(dims, options->seed, first, count, true, options->non_finite && in->a_kk_open,
                      in->a_kk);
    if (in->a_qk)
        fill_triangle(dims, options->seed, first, count, false, options->non_finite, in->a_qk);
}

/* A whole chunk as another one has it. */
static void copy_chunk(const int32_t *dims, const struct gen__kda_stage_inputs *in, int64_t first,
                       int64_t from)
{
    const int64_t gates = gen__kda_v_width(dims), scores = (int64_t)dims[KDA_V_HEADS] * KDA_CHUNK;
    uint16_t *const matrix[] = {in->a_kk, in->a_qk};
    if (in->gk)
        memcpy(in->gk + first * gates, in->gk + from * gates,
               (size_t)(KDA_CHUNK * gates) * sizeof *in->gk);
    for (int i = 0; i < 2; i++)
        if (matrix[i])
            memcpy(matrix[i] + first * scores, matrix[i] + from * scores,
                   (size_t)(KDA_CHUNK * scores) * sizeof *matrix[i]);
}

void gen__kda_stage_fill(const int32_t *dims, const struct gen__fill_options *options,
                         const struct gen__kda_stage_inputs *in)
{
    int64_t drawn[16], chunks = 0; /* whole chunks; further ones repeat these, for time's sake */
    const int64_t most = sizeof drawn / sizeof *drawn;
    gen__kda_fill(dims, in->cu_tensor, options, in->cu_seqlens);
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, in->cu_seqlens, n);
        for (int64_t row = 0; row < s.length; row += KDA_CHUNK) {
            const int64_t left = s.length - row, count = left < KDA_CHUNK ? left : KDA_CHUNK;
            if (count == KDA_CHUNK && chunks >= most) {
                copy_chunk(dims, in, s.first + row, drawn[chunks++ % most]);
                continue;
            }
            fill_chunk(dims, options, in, s.first + row, count);
            if (count == KDA_CHUNK)
                drawn[chunks++] = s.first + row;
        }
    }
}
