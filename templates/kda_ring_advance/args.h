/* What the kernel of kda_ring_advance takes; runtime/families/kda_ring_advance/api.h has the operator. */
#ifndef GEN_KDA_RING_ADVANCE_ARGS_H
#define GEN_KDA_RING_ADVANCE_ARGS_H

struct gen_kda_ring_advance_params {
    const int *slots; /* or NULL */
    const unsigned char *flush;
    const int *base;
    int *fill;
    int batch, num_tokens, ring_len, ring_size;
    unsigned num_slots, slots_stride;
    int null_slot;
    int pad;
};

/* What the one of several tokens takes: the same, and how many of them stay. */
#ifdef __cplusplus
struct gen_kda_ring_accept_params : gen_kda_ring_advance_params {
#else
struct gen_kda_ring_accept_params {
    struct gen_kda_ring_advance_params advance;
#endif
    const int *accepted; /* or NULL */
    int *new_base;       /* base, written */
};

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_ring_advance_params) == 64, "same on both sides");
static_assert(sizeof(struct gen_kda_ring_accept_params) == 80, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_ring_advance_params) == 64, "same on both sides");
_Static_assert(sizeof(struct gen_kda_ring_accept_params) == 80, "same on both sides");
#endif

#endif /* GEN_KDA_RING_ADVANCE_ARGS_H */
