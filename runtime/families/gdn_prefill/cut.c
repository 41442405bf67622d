/*
 * Gated DeltaNet, prefill: what the launches behind gdn_intra take, and into how many segments a
 * sequence is cut. A chunk costs what its products take, an SM holds one block, and a segment
 * begins with a product by the transition of each segment before its own; so there are few counts
 * to try.
 */
#include "families/kda/prefill.h"

#include <math.h>

/* Microseconds on an H100, fitted on 22 problems within 10 %. With wgmma a block of the recurrence
 * has one chain of two groups' work, or two chains; one of the scan has two groups. Blocks without
 * wgmma are as many to an SM as fit, here: three. */
struct rates {
    float chunk, scan_chunk, pass; /* a chunk of the recurrence, of the scan; a transition */
};
static const struct rates one_group = {1.16f, 1.2f, 2.6f}, two_groups = {1.84f, 1.2f, 3.4f},
                          mma_rates = {3.0f, 2.6f, 5.0f};
static const float launch_us = 3.0f;
static const float bytes_share = 0.8f; /* of the memory's rate */
/* What a cut must gain by the estimate, which is not that good. */
static const float worth = 0.95f;
enum { MOST_SEGMENTS = 40, LEAST_CHUNKS = 4 /* of a segment */ };

static struct rates rates_of(const struct gen__facts *variant)
{
    if (!variant->fact[KDA_INTER_WGMMA])
        return mma_rates;
    return variant->fact[KDA_INTER_GROUPS] > 1 ? two_groups : one_group;
}

static float sms_of(const gen_device *device, const struct gen__facts *variant)
{
    const float sms = device->num_sms ? (float)device->num_sms : 1.0f;
    return variant->fact[KDA_INTER_WGMMA] ? sms : 3.0f * sms;
}

/* Columns of V of a block of the recurrence, in 64s of which a head has `units`. */
static float parts_of(const int32_t *dims, const struct gen__facts *variant)
{
    const float groups = variant->fact[KDA_INTER_GROUPS] > 1 ? 2.0f : 1.0f;
    return (float)dims[KDA_HEAD_DIM] / 64.0f / groups;
}

static float stream_us(const int32_t *dims, const gen_device *device, float bytes)
{
    const float gbps = device->memory_gbps ? (float)device->memory_gbps : 1000.0f;
    return (float)gen__kda_all_chunks(dims) * (float)dims[KDA_V_HEADS] * bytes /
           (gbps * 1e3f * bytes_share);
}

/* A launch of `blocks` blocks whose longest has `longest` chunks, of `chunks` in all. */
static float chain_us(float blocks, float longest, float chunks, float sms, float chunk_us)
{
    const float shared = chunks / sms;
    return launch_us + chunk_us * (blocks > sms && shared > longest ? shared : longest);
}

float gen__gdn_whole_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant)
{
    const struct rates r = rates_of(variant);
    const float parts = parts_of(dims, variant), heads = (float)dims[KDA_V_HEADS];
    const float blocks = heads * parts * (float)dims[KDA_BATCH];
    const float chunks = (float)gen__kda_all_chunks(dims) * heads * parts;
    const float chain = chain_us(blocks, (float)gen__kda_chunks(gen__kda_longest(dims)), chunks,
                                 sms_of(device, variant), r.chunk);
    const float stream = stream_us(dims, device, 128.0f * 4.0f * (float)dims[KDA_HEAD_DIM]);
    return chain > stream ? chain : stream;
}

float gen__gdn_segments_us(const int32_t *dims, int32_t segment, const gen_device *device,
                           const struct gen__facts *variant)
{
    const struct rates r = rates_of(variant);
    const float sms = sms_of(device, variant), heads = (float)dims[KDA_V_HEADS];
    const float longest = (float)gen__kda_chunks(gen__kda_longest(dims)), each = (float)segment;
    const float of_longest = ceilf(longest / each),
                count = ceilf((float)gen__kda_all_chunks(dims) / each);
    const float blocks = count * heads * parts_of(dims, variant);
    /* What is added and the transition, but of the first and the last segment. */
    const float scans = (2.0f * count - 3.0f) * heads *
                        (variant->fact[KDA_INTER_WGMMA] ? (float)dims[KDA_HEAD_DIM] / 128.0f
                                                        : (float)dims[KDA_HEAD_DIM] / 64.0f);
    const float rounds = ceilf(blocks / sms), scan_rounds = ceilf(scans / sms);
    const float passes = of_longest > 2.0f ? of_longest - 2.0f : 0.0f;
    return 2.0f * launch_us + scan_rounds * each * r.scan_chunk + rounds * each * r.chunk +
           passes * r.pass * (rounds > 1.0f ? 0.5f * (1.0f + rounds) : 1.0f);
}

int32_t gen__gdn_cut(const int32_t *dims, const gen_device *device,
                     const struct gen__facts *variant, float *us)
{
    const int32_t longest = (int32_t)gen__kda_chunks(gen__kda_longest(dims));
    float best = worth * gen__gdn_whole_us(dims, device, variant);
    int32_t segment = 0;
    for (int32_t n = 3; n <= MOST_SEGMENTS && longest / n >= LEAST_CHUNKS; n++) {
        const int32_t each = (int32_t)gen__kda_segments_of(longest, n);
        if (gen__kda_segment_slots(dims, each) > KDA_MAX_SEGMENTS)
            continue;
        const float cut = gen__gdn_segments_us(dims, each, device, variant);
        if (cut < best) {
            best = cut;
            segment = each;
        }
    }
    if (us)
        *us = segment ? best : gen__gdn_whole_us(dims, device, variant);
    return segment;
}
