/*
 * What a problem of kda_decode costs, and what it is called.
 */
#include "families/kda/decode.h"

#include <inttypes.h>
#include <stdio.h>

/* Of a step on the average over the ring_len of a cycle: a state read and a ring_len-th of it
 * written, (ring_len - 1) / 2 records read and one written but for the step that folds; and what
 * every step has.
 */
static void ring_cost(const gen_kda_decode_problem *p, double *bytes, double *flops)
{
    const double d = p->head_dim, len = p->ring_len, heads = p->num_v_heads;
    const double states = (double)p->batch * heads, rows = (double)p->batch * p->num_qk_heads;
    const double channels = gen__kda_decode_scalar(p->base.family) ? 1 : d; /* that have a gate */
    const double gate = (p->gate_dtype == GEN_DTYPE_FP32 ? 4 : 2) * channels / d;
    const double beta = p->beta_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    const double element = p->state_dtype == GEN_STATE_FP32 ? 4 : 2;
    const double u = p->ring_dtype == GEN_STATE_FP32 ? 4 : 2;
    if (p->num_tokens > 1) { /* fills from 0 on, the last num_tokens of which fold */
        const double tokens = p->num_tokens;
        const double most = gen__kda_decode_ring_size(p->ring_len, p->ring_size) - tokens;
        const double folds = tokens / (most + 1);
        *bytes = states * (1 + folds) * element * d * d +
                 (most / 2 + tokens) * d * (states * (gate + u) + rows * 2) +
                 tokens * (states * ((gate + 2 + 2) * d + beta) + rows * 2 * 2 * d) +
                 (p->batch ? heads * 4 * (d + 1) : 0);
        *flops = states * (tokens * (4 * d * d + (most + tokens) / 2 * 10 * d) +
                           folds * (2 * most + 1) * d * d);
        return;
    }
    const double records = (len - 1) / 2 + (len - 1) / len;
    *bytes = states * (1 + 1 / len) * element * d * d +
             records * d * (states * (gate + u) + rows * 2) +
             p->num_tokens * (states * ((gate + 2 + 2) * d + beta) + rows * 2 * 2 * d) +
             (p->batch ? heads * 4 * (d + 1) : 0);
    /* Two dot products an element; the fold; decays and coefficients of the records. */
    *flops = states * (4 * d * d + (2 * (len - 1) + 4) / len * d * d + (len - 1) / 2 * 10 * d);
}

/* A state read, and written once a token; gate, v, o and beta once; q and k once
 * for a group. */
void gen__kda_decode_cost(const gen_problem *base, double *bytes, double *flops)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    const double d = p->head_dim, tokens = p->num_tokens, heads = p->num_v_heads;
    const double states = (double)p->batch * heads;
    const double gate = p->gate_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    const double beta = p->beta_dtype == GEN_DTYPE_FP32 ? 4 : 2;
    const double element = p->state_dtype == GEN_STATE_FP32 ? 4 : 2;
    const double qk_rows = (double)p->batch * tokens * p->num_qk_heads;
    if (p->ring_len) {
        ring_cost(p, bytes, flops);
        return;
    }
    const double gates = (double)gen__kda_decode_gates(p);
    *bytes = states * (1 + tokens) * element * d * d + states * tokens * ((2 + 2) * d + beta) +
             (double)p->batch * tokens * gates * gate + qk_rows * 2 * 2 * d +
             (p->batch ? 4 * (gates + heads) : 0);
    /* An element: the decay, two dot products, the update. */
    *flops = states * tokens * 7 * d * d;
}

/* "N64-H32-HV32-vk". What is not said there adds a word, so that no case is taken for another. With
 * a ring, a state is written once in 8 steps and u is kept in fp16 where nothing else is said. */
void gen__kda_decode_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    static const char *const states[] = {"", "-state-bf16", "-state-fp16"};
    char tokens[16] = "", width[16] = "", ring[64] = "";
    if (p->num_tokens > 1)
        snprintf(tokens, sizeof tokens, "-T%" PRId32, p->num_tokens);
    if (p->head_dim != 128)
        snprintf(width, sizeof width, "-D%" PRId32, p->head_dim);
    if (p->ring_len) {
        static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
        int used = snprintf(ring, sizeof ring, "-replay-%s", dtypes[p->state_dtype]);
        if (p->ring_len != 8 || p->ring_size)
            used += snprintf(ring + used, sizeof ring - (size_t)used, "-L%" PRId32, p->ring_len);
        if (p->ring_size)
            used += snprintf(ring + used, sizeof ring - (size_t)used, "-R%" PRId32, p->ring_size);
        if (p->ring_dtype == GEN_STATE_FP32)
            used += snprintf(ring + used, sizeof ring - (size_t)used, "-u32");
        if (!p->num_tokens)
            snprintf(ring + used, sizeof ring - (size_t)used, "-fold");
    }
    snprintf(text, capacity, "N%" PRId32 "-H%" PRId32 "-HV%" PRId32 "-%s%s%s%s%s%s%s", p->batch,
             p->num_qk_heads, p->num_v_heads, p->state_layout == GEN_KDA_STATE_KV ? "kv" : "vk",
             tokens, width, p->dtype == GEN_DTYPE_FP16 ? "-fp16" : "",
             p->gate_dtype == GEN_DTYPE_FP32 ? "-g32" : "",
             p->beta_dtype == GEN_DTYPE_FP32 ? "-b32" : "",
             p->ring_len                                   ? ring
             : p->pool && p->state_dtype == GEN_STATE_FP32 ? "-pool"
                                                           : states[p->state_dtype]);
}
