/*
 * The stages of Kimi Delta Attention one after the other, from raw inputs to their gradients, for
 * test_kda_bwd.c: by their references, or on a device.
 */
#ifndef TEST_KDA_BWD_CHAIN_H
#define TEST_KDA_BWD_CHAIN_H

#include "common/problem_text.h"
#include "common/session.h"
#include "families/kda/stage.h"

enum { BATCH = 4, QK_HEADS = 4, HEADS = 8, MAX_D = 128, MAX_TOKENS = 512 };
enum { Q, K, V, G, BETA, INITIAL, BIAS, A_LOG, NUM_GRADIENTS };

/* What is run, and where it lies on the host; void: of the problem's types. */
struct chain {
    gen_kda_stage_problem problem; /* base.family is each stage's */
    int32_t gate_form, beta_form, state_layout;
    struct {
        void *q, *k, *v, *g, *d_o;
        float *beta, *active_beta, *A_log, *dt_bias, *initial, *d_final;
        int32_t *cu_seqlens;
    } in;
    void *gradients[NUM_GRADIENTS];
    int64_t counts[NUM_GRADIENTS]; /* elements of them */
};
extern struct chain chain;

/* A GPU and the product; false: *status is what the program ends with. */
bool chain_open(int *status);
void chain_close(void);

/* Begins a case: memory is free, and holds NaN. */
void chain_begin(void);
void *chain_room(size_t bytes);
/* All stages, of inputs that lie in such memory. Fails the test where a stage does. */
void chain_run(void);

static inline bool chain_is_given(void)
{
    return chain.gate_form == GEN_KDA_GATE_GIVEN;
}

static inline int64_t chain_rows(void)
{
    return (int64_t)chain.problem.num_tokens * HEADS;
}

#endif /* TEST_KDA_BWD_CHAIN_H */
