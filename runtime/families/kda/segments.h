/*
 * Segments of sequences, which kda_scan and kda_prefill share: where they lie, checks, and when
 * they are worth it. Defined in segments.c, where not here.
 */
#ifndef GEN_FAMILIES_KDA_SEGMENTS_H
#define GEN_FAMILIES_KDA_SEGMENTS_H

#include "families/kda/chunk.h"

/* Segments of so many chunks, not 0 (kda_scan/args.h). */
#define KDA_MAX_SEGMENT_CHUNKS (1 << 24)
#define KDA_MAX_SEGMENTS 65535 /* a grid's second dimension */

/* Chunks are below 2^25. */
static inline int64_t gen__kda_segments_of(int64_t chunks, int64_t segment_chunks)
{
    return chunks > segment_chunks
               ? ((uint32_t)chunks + (uint32_t)segment_chunks - 1) / (uint32_t)segment_chunks
               : 1;
}

/* Slots of segments, used or not. */
static inline int64_t gen__kda_segment_slots(const int32_t *dims, int32_t each)
{
    const int64_t batch = dims[KDA_BATCH];
    return dims[KDA_NUM_TOKENS]
               ? (uint32_t)gen__kda_slots(dims) / (uint32_t)each + batch
               : batch * gen__kda_segments_of(gen__kda_chunks(dims[KDA_SEQ_LEN]), each);
}

/* Of the sequence's first segment. */
int64_t gen__kda_segment_slot(const int32_t *dims, const int32_t *cu_seqlens, int64_t n);
/* Of all segments, 256-byte aligned: what is added, and as much again of transitions. */
uint64_t gen__kda_segment_bytes(const int32_t *dims);

/* kda_scan: what a plan's dims must keep to; as for gen__kda_check(). */
enum gen_status gen__kda_refuse_segments(const char *family, const int32_t *dims);
static inline enum gen_status gen__kda_check_segments(const char *family, const int32_t *dims)
{
    if (__builtin_expect(((uint32_t)dims[KDA_SEGMENT_CHUNKS] - 1 < KDA_MAX_SEGMENT_CHUNKS) &&
                             gen__kda_segment_slots(dims, dims[KDA_SEGMENT_CHUNKS]) <=
                                 KDA_MAX_SEGMENTS,
                         1))
        return GEN_OK;
    return gen__kda_refuse_segments(family, dims);
}
void gen__kda_scan_params(const int32_t *dims, const gen_kda_scan_args *a,
                          struct gen_kda_inter_params *k);

/* ---- time -------------------------------------------------------------- */

float gen__kda_scan_us(const int32_t *dims, int32_t segment_chunks, const gen_device *device,
                       const struct gen__facts *variant);
/* The recurrence of segments, kda_scan before it, by kda_prefill's variant. */
float gen__kda_segments_us(const int32_t *dims, int32_t segment_chunks, const gen_device *device,
                           const struct gen__facts *variant);
/* The chunks of a segment that are estimated to take the least time, 0: whole sequences. *us gets
 * that time where `us` is not NULL. */
int32_t gen__kda_cut(const int32_t *dims, const gen_device *device,
                     const struct gen__facts *variant, float *us);

#endif /* GEN_FAMILIES_KDA_SEGMENTS_H */
