/*
 * What a problem of kda_decode costs, and what it is called.
 */
#include "families/kda_decode/kda_decode.h"

#include <inttypes.h>
#include <stdio.h>

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
    *bytes = states * (1 + tokens) * element * d * d +
             states * tokens * ((gate + 2 + 2) * d + beta) + qk_rows * 2 * 2 * d +
             (p->batch ? heads * 4 * (d + 1) : 0);
    /* An element: the decay, two dot products, the update. */
    *flops = states * tokens * 7 * d * d;
}

/* "N64-H32-HV32-vk". What is not said there adds a word, so that no case is taken
 * for another. */
void gen__kda_decode_case_name(const gen_problem *base, char *text, size_t capacity)
{
    const gen_kda_decode_problem *p = (const gen_kda_decode_problem *)base;
    static const char *const states[] = {"", "-state-bf16", "-state-fp16"};
    char tokens[16] = "", width[16] = "";
    if (p->num_tokens > 1)
        snprintf(tokens, sizeof tokens, "-T%" PRId32, p->num_tokens);
    if (p->head_dim != 128)
        snprintf(width, sizeof width, "-D%" PRId32, p->head_dim);
    snprintf(text, capacity, "N%" PRId32 "-H%" PRId32 "-HV%" PRId32 "-%s%s%s%s%s%s%s", p->batch,
             p->num_qk_heads, p->num_v_heads, p->state_layout == GEN_KDA_STATE_KV ? "kv" : "vk",
             tokens, width, p->dtype == GEN_DTYPE_FP16 ? "-fp16" : "",
             p->gate_dtype == GEN_DTYPE_FP32 ? "-g32" : "",
             p->beta_dtype == GEN_DTYPE_FP32 ? "-b32" : "", states[p->state_dtype]);
}
