/*
 * A chunk of the stages of Kimi Delta Attention prefill as their references read it:
 * of one value head, in double.
 */
#ifndef GEN_REFERENCE_KDA_STAGE_H
#define GEN_REFERENCE_KDA_STAGE_H

#include "families/kda/stage.h"
#include "families/kda/reference_inputs.h"

struct gen__kda_place {
    int64_t first, count; /* tokens of the chunk */
    int64_t chunk;        /* among all sequences' */
    int64_t head, qk_head;
};

/* Calls `work` for each chunk and value head, in order. */
static inline void gen__kda_each_chunk(const int32_t *dims, const int32_t *cu_seqlens,
                                       void (*work)(const int32_t *dims,
                                                    const struct gen__kda_place *place,
                                                    void *context),
                                       void *context)
{
    const int64_t heads = dims[KDA_V_HEADS], group = heads / dims[KDA_QK_HEADS];
    struct gen__kda_place place = {0};
    for (int64_t n = 0; n < dims[KDA_BATCH]; n++) {
        const struct gen__kda_sequence s = gen__kda_sequence(dims, cu_seqlens, n);
        for (int64_t row = 0; row < s.length; row += KDA_CHUNK, place.chunk++) {
            const int64_t left = s.length - row;
            place.first = s.first + row;
            place.count = left < KDA_CHUNK ? left : KDA_CHUNK;
            for (place.head = 0; place.head < heads; place.head++) {
                place.qk_head = place.head / group;
                work(dims, &place, context);
            }
        }
    }
}

/* One head's row of a token-major tensor of 16-bit elements; stride 0: packed. */
static inline void gen__kda_load_row(const int32_t *dims, const void *tensor, int64_t stride,
                                     int64_t token, int64_t head, bool is_qk, int64_t width,
                                     double *row)
{
    const int64_t packed = dims[is_qk ? KDA_QK_HEADS : KDA_V_HEADS] * width;
    const int64_t at = token * (stride ? stride : packed) + head * width;
    for (int64_t d = 0; d < width; d++)
        row[d] = gen__kda_load(false, dims[KDA_DTYPE] == GEN_DTYPE_FP16, tensor, at + d);
}

/* Packed, of value heads. */
static inline void gen__kda_store_row(const int32_t *dims, void *tensor, int64_t token,
                                      int64_t head, int64_t width, const double *row)
{
    const int64_t at = (token * dims[KDA_V_HEADS] + head) * width;
    for (int64_t d = 0; d < width; d++)
        gen__kda_store(dims[KDA_DTYPE] == GEN_DTYPE_FP16, tensor, at + d, row[d]);
}

static inline void gen__kda_load_gk(const int32_t *dims, const float *gk, int64_t token,
                                    int64_t head, double *row)
{
    const int64_t d = dims[KDA_HEAD_DIM];
    for (int64_t i = 0; i < d; i++)
        row[i] = (double)gk[(token * dims[KDA_V_HEADS] + head) * d + i];
}

static inline double gen__kda_load_beta(const int32_t *dims, const void *beta, int64_t stride,
                                        int64_t token, int64_t head)
{
    const int64_t at = token * (stride ? stride : dims[KDA_V_HEADS]) + head;
    return gen__kda_load(dims[KDA_BETA_DTYPE] == GEN_DTYPE_FP32, dims[KDA_DTYPE] == GEN_DTYPE_FP16,
                         beta, at);
}

#endif /* GEN_REFERENCE_KDA_STAGE_H */
