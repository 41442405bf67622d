/*
 * The counters of kda_decode's rings behind a step: problem and arguments.
 *
 * All layers of a step read ring_fill and ring_base, and none writes them. One launch of this
 * behind the last layer brings them up to date, by the rule that kda_decode goes by, so nothing of
 * a step depends on the host and a captured graph replays. For each row's slot:
 *
 *     num_tokens = 1: fill = 0 where fill >= ring_len - 1 or the row's flush is set, else fill + 1
 *     num_tokens = 0: fill = 0      (behind kda_decode with num_tokens = 0; or to begin a request)
 *     num_tokens > 1: where fill + 2 num_tokens > ring_size or the row's flush is set, base = (base
 * + fill) modulo ring_size and fill = accepted; else fill = fill + accepted
 *
 * ring_base stays but for several tokens. A row that kda_decode takes for padding keeps its
 * counters, but for num_tokens = 0, which sets any fill of a slot that is not null.
 */
#ifndef GEN_KDA_RING_ADVANCE_H
#define GEN_KDA_RING_ADVANCE_H

#include "gen.h"

enum gen_kda_ring_advance_tag { GEN_KDA_RING_ADVANCE = 0x4b445241 /* "KDRA" */ };

typedef struct gen_kda_ring_advance_problem {
    gen_problem base;   /* size, GEN_KDA_RING_ADVANCE, flags */
    int32_t batch;      /* rows; 0 is legal and launches nothing */
    int32_t num_tokens; /* as kda_decode had it: 0, 1, or up to half of ring_size */
    int32_t ring_len;   /* 2 to 32 */
    int32_t ring_size;  /* ring_len - 1 to 32; 0: ring_len */
} gen_kda_ring_advance_problem;

/* Device pointers (host pointers for the CPU backend), 4-byte aligned. */
typedef struct gen_kda_ring_advance_args {
    gen_args base;        /* size, GEN_KDA_RING_ADVANCE */
    const int32_t *slots; /* [batch, slots_stride], the first column; NULL: slot b. No two rows
                             share one */
    const uint8_t *flush; /* [batch], 1-byte aligned; NULL: 0 */
    int32_t *ring_base;   /* [num_slots], updated in place with num_tokens > 1 */
    int32_t *ring_fill;   /* [num_slots], updated in place */
    int32_t num_slots;    /* >= 1 */
    int32_t slots_stride; /* columns of `slots`; 0: 1 */
    int32_t null_slot;    /* as in kda_decode */
    const int32_t
        *accepted; /* [batch], with num_tokens > 1: how many of the row's tokens stay; what is
                      below 0 is 0, what is above num_tokens that. NULL: num_tokens */
} gen_kda_ring_advance_args;

#endif /* GEN_KDA_RING_ADVANCE_H */
