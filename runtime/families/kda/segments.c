/* Segments of sequences whose recurrences run side by side: where they lie, and when
 * they are worth it. */
#include "families/kda/segments.h"

#include "family/occupancy.h"

#include <inttypes.h>
#include <math.h>

/* ---- slots ------------------------------------------------------------- */

int64_t gen__kda_segment_slot(const int32_t *d, const int32_t *cu_seqlens, int64_t n)
{
    const struct gen__kda_sequence s = gen__kda_sequence(d, cu_seqlens, n);
    const int64_t each = d[KDA_SEGMENT_CHUNKS];
    return d[KDA_NUM_TOKENS] ? s.slot / each + n
                             : n * gen__kda_segments_of(gen__kda_chunks(s.length), each);
}

uint64_t gen__kda_segment_bytes(const int32_t *d)
{
    return (uint64_t)gen__kda_segment_slots(d, d[KDA_SEGMENT_CHUNKS]) * (uint64_t)d[KDA_V_HEADS] *
           (uint64_t)d[KDA_HEAD_DIM] * (uint64_t)d[KDA_HEAD_DIM] * sizeof(float);
}

enum gen_status gen__kda_refuse_segments(const char *family, const int32_t *d)
{
    if (d[KDA_SEGMENT_CHUNKS] < 1 || d[KDA_SEGMENT_CHUNKS] > KDA_MAX_SEGMENT_CHUNKS)
        return gen__invalid(family, "segment_chunks", d[KDA_SEGMENT_CHUNKS], "1 to 16777216");
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                     "%s: segment_chunks = %" PRId32 " makes %" PRId64 " segments; allowed: 65535",
                     family, d[KDA_SEGMENT_CHUNKS],
                     gen__kda_segment_slots(d, d[KDA_SEGMENT_CHUNKS]));
}

void gen__kda_scan_params(const int32_t *dims, const gen_kda_scan_args *a,
                          struct gen_kda_inter_params *k)
{
    *k = (struct gen_kda_inter_params){
        .w = a->w,
        .u = a->u,
        .kg = a->kg,
        .decay = a->decay,
        .initial_state = a->initial_state,
        .sequences = gen__kda_sequences(dims, a->cu_seqlens),
        .num_v_heads = dims[KDA_V_HEADS],
        .state_vk = a->state_layout == GEN_KDA_STATE_VK,
        .added = a->added,
        .transition = a->transition,
        .segment_decay = a->segment_decay,
        .segment_chunks = dims[KDA_SEGMENT_CHUNKS],
    };
}

/* ---- time -------------------------------------------------------------- */

/* As in shape.c, of the scan and of the products by transitions. */
static const float launch_us = 1.5f; /* behind another one */
static const float achieved_bandwidth = 0.72f;
static const float wgmma_chunk_us = 0.7f, mma_chunk_us = 2.0f, group_us = 0.25f;
static const float wgmma_pass_us = 2.0f, mma_pass_us = 5.0f;
/* What a cut must gain by the estimate, which is not that good. */
static const float worth = 0.92f;

static float num_sms(const gen_device *device)
{
    return device->num_sms ? (float)device->num_sms : 1.0f;
}

static float stream_us(const gen_device *device, float bytes)
{
    return bytes / ((device->memory_gbps ? (float)device->memory_gbps : 1000.0f) * 1e3f *
                    achieved_bandwidth);
}

static float groups_of(const struct gen__facts *variant)
{
    return variant->fact[KDA_INTER_GROUPS] > 1 ? (float)variant->fact[KDA_INTER_GROUPS] : 1.0f;
}

/* Blocks at a time. */
static float resident(const gen_device *device, const struct gen__facts *variant)
{
    const float per_sm = (float)gen__blocks_per_sm(device, variant);
    return num_sms(device) * (per_sm > 0.0f ? per_sm : 1.0f);
}

/* The longest chain of a kernel whose blocks take a segment each, in chunks: `blocks` for each
 * segment, of which `all` chunks make no more than that many. */
static float rounds(int64_t all, int32_t segment, float blocks, float at_a_time)
{
    const float count = (float)gen__kda_segments_of(all, segment) * blocks;
    return count > at_a_time ? (float)segment * count / at_a_time : (float)segment;
}

float gen__kda_scan_us(const int32_t *dims, int32_t segment, const gen_device *device,
                       const struct gen__facts *variant)
{
    const float groups = groups_of(variant), d = (float)dims[KDA_HEAD_DIM];
    const float heads = (float)dims[KDA_V_HEADS];
    const int64_t all = gen__kda_all_chunks(dims);
    const float blocks = heads * d / (32.0f * groups);
    const float chunk_us = (variant->fact[KDA_INTER_WGMMA] ? wgmma_chunk_us : mma_chunk_us) +
                           group_us * (groups - 1.0f);
    const float chain = rounds(all, segment, blocks, resident(device, variant)) * chunk_us;
    const float stream = stream_us(device, (float)all * heads * d * 400.0f);
    return launch_us + (chain > stream ? chain : stream);
}

/* The scan and the recurrence of segments; whatever variants there are for the scan, they take much
 * the same. */
float gen__kda_segments_us(const int32_t *dims, int32_t segment, const gen_device *device,
                           const struct gen__facts *variant)
{
    const bool wgmma = variant->fact[KDA_INTER_WGMMA];
    const struct gen__facts scan = {.threads = 160,
                                    .registers = 168,
                                    .occupancy = {83 << 10, {2, 2, 2, 2}},
                                    .fact = {1, wgmma, 0}};
    const int64_t longest = gen__kda_chunks(gen__kda_longest(dims));
    const float before = (float)gen__kda_segments_of(longest, segment) - 2.0f;
    return gen__kda_scan_us(dims, segment, device, &scan) +
           gen__kda_chain_us(dims, longest < segment ? longest : segment, device, variant) +
           (before > 0.0f ? before : 0.0f) * (wgmma ? wgmma_pass_us : mma_pass_us);
}

/* As many segments of the longest sequence as there are places for, were all cut alike, but no
 * more than make the chain shorter: with n of them it takes chunks / n in both launches, and n
 * products by transitions. */
static int32_t candidate(const int32_t *dims, const gen_device *device,
                         const struct gen__facts *variant)
{
    const int64_t chunks = gen__kda_chunks(gen__kda_longest(dims));
    const float longest = (float)chunks;
    const float blocks =
        (float)dims[KDA_V_HEADS] * (float)dims[KDA_HEAD_DIM] / (64.0f * groups_of(variant));
    const float work = (float)gen__kda_all_chunks(dims) * blocks;
    const float places = longest * resident(device, variant);
    if (chunks < 8 || places < 3.0f * work)
        return 0;
    const float best =
        longest * (variant->fact[KDA_INTER_WGMMA] ? 1.6f / wgmma_pass_us : 5.0f / mma_pass_us);
    const float enough = places / work;
    const int32_t segments = (int32_t)(enough * enough < best ? enough : sqrtf(best));
    return segments < 3 ? 0 : (int32_t)gen__kda_segments_of(chunks, segments);
}

int32_t gen__kda_cut(const int32_t *dims, const gen_device *device,
                     const struct gen__facts *variant, float *us)
{
    const int32_t segment = candidate(dims, device, variant);
    const bool cut = segment && gen__kda_segment_slots(dims, segment) <= KDA_MAX_SEGMENTS;
    if (!cut && !us)
        return 0;
    const float whole_us = gen__kda_inter_us(dims, device, variant);
    const float cut_us = cut ? gen__kda_segments_us(dims, segment, device, variant) : INFINITY;
    const bool worth_it = cut_us <= worth * whole_us;
    if (us)
        *us = worth_it ? cut_us : whole_us;
    return worth_it ? segment : 0;
}
