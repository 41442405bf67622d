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

#ifdef __cplusplus
static_assert(sizeof(struct gen_kda_ring_advance_params) == 64, "same on both sides");
#elif !defined(__CUDACC_RTC__)
_Static_assert(sizeof(struct gen_kda_ring_advance_params) == 64, "same on both sides");
#endif

#endif /* GEN_KDA_RING_ADVANCE_ARGS_H */
