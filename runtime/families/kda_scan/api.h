/*
 * Kimi Delta Attention, what segments of a sequence do to its state: the launch
 * that kda_prefill has between kda_intra and the recurrence where few sequences and
 * heads would leave a GPU idle. An operator of its own.
 *
 * A segment is a run of segment_chunks chunks of a sequence, the last one shorter;
 * a sequence without tokens has one without chunks. With -w, u, kg, decay of
 * kda_intra (its args.h has the layouts), S the state (K x V):
 *
 *     S = diag(decay) S + kg' (u - w S)     for each chunk of the segment in turn
 *
 * is S_next = diag(D) S + R S + A. Of each segment but its sequence's last:
 *
 *     A = what becomes of S = 0, of a first segment what becomes of the sequence's initial state
 *     D = the product of the chunks' decays, fp32; not of a first segment
 *     R = the product of diag(decay) - kg' w, later chunks on the left, less diag(D); not of a
 *         first segment
 *
 * so S before segment j + 1 is A_0, and from there on diag(D_j) S + R_j S + A_j. The part of the
 * state that only decays is a product in fp32, and it stays exact where nothing decays: R is
 * rounded, D is not. Where there is an
 * initial state, what belongs to A of a last segment that is not the first one holds it.
 *
 * Segments have slots: segment j of sequence n has slot
 * (cu_seqlens[n] / 64 + n) / segment_chunks + n + j, or n * segments + j where all
 * are of one length. Slots between them, and what was not named above, are not written.
 */
#ifndef GEN_KDA_SCAN_H
#define GEN_KDA_SCAN_H

#include "gen.h"
#include "kda/public.h"

enum gen_kda_scan_tag { GEN_KDA_SCAN = 0x4b444143 /* "KDAC" */ };

typedef struct gen_kda_scan_problem {
    gen_problem base;       /* size, GEN_KDA_SCAN, flags */
    int32_t batch;          /* sequences; 0 is legal and launches nothing */
    int32_t seq_len;        /* tokens of each sequence; with num_tokens the most of any */
    int32_t num_tokens;     /* 0: every sequence has seq_len tokens; else as in kda_intra */
    int32_t num_v_heads;    /* 1 to 65536 */
    int32_t head_dim;       /* K = V: 64 or 128 */
    int32_t dtype;          /* of the operands: GEN_DTYPE_BF16 or GEN_DTYPE_FP16 */
    int32_t segment_chunks; /* 1 to 16777216, and no more than 65535 slots of segments */
    int32_t state_pool; /* 1: states are in pools, as the arguments' `pools` says; 0: it is all 0 */
    int32_t state_dtype; /* enum gen_state_dtype; fp32 unless state_pool is 1 */
} gen_kda_scan_problem;

/* Device pointers (host pointers for the CPU backend), 16-byte aligned. */
typedef struct gen_kda_scan_args {
    gen_args base;             /* size, GEN_KDA_SCAN */
    const void *w;             /* [num_slots, num_v_heads, 64 x head_dim], -w */
    const void *u;             /* [num_slots, num_v_heads, head_dim x 64] */
    const void *kg;            /* [num_slots, num_v_heads, 64 x head_dim] */
    const float *decay;        /* [num_slots, num_v_heads, head_dim] */
    const int32_t *cu_seqlens; /* as in kda_intra */
    const void *initial_state; /* [batch, num_v_heads, head_dim, head_dim], fp32, or a pool; NULL:
                                  zeros */
    /* A, transposed (V x K), in fragments: [segment slots, num_v_heads, head_dim / 64][head_dim /
     * 8] [4 warps][32 lanes][2][2]: V = 64 a + 16 warp + lane / 4 + {0, 8}, K = 8 b + 2 (lane % 4)
     * + {0, 1} */
    float *added;
    /* R', as a sum of two numbers of dtype: [segment slots, num_v_heads, head_dim / 64][2], tiles
     * of 64 rows (columns of R) x head_dim (rows of R) as kda_intra has them */
    void *transition;
    float *segment_decay; /* D: [segment slots, num_v_heads, head_dim] */
    int32_t state_layout; /* enum gen_kda_state_layout */
    int32_t pad;
    struct gen_kda_pools pools; /* with state_pool = 1; of initial states alone */
} gen_kda_scan_args;

#endif /* GEN_KDA_SCAN_H */
