/* What shape files say of a problem. Programs and tests read it; the runtime writes it alone. */
#ifndef BENCH_PROBLEM_TEXT_H
#define BENCH_PROBLEM_TEXT_H

#include "family/family.h"

extern const char *const gen__data_names[GEN__NUM_DATA];

/* "batch=64 num_qk_heads=8 dtype=bf16" into a problem struct of problem_size bytes; fields not
 * named take their preset. Separators: spaces, commas. */
enum gen_status gen__problem_parse(const struct gen__family *family, const char *text,
                                   gen_problem *problem);

/* NULL if unknown. */
const struct gen__family *gen__family_by_tag(uint32_t tag);

/* A tuning coordinate in octaves. */
static inline float gen__key_log2(const struct gen__key *key, uint32_t coord)
{
    return key->empty ? 0.0f : log2f(key->counts[coord]);
}

#endif /* BENCH_PROBLEM_TEXT_H */
