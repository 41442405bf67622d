/* What the host files of gdn_intra and gdn_prefill share. */
#ifndef GEN_FAMILIES_GDN_INTRA_H
#define GEN_FAMILIES_GDN_INTRA_H

#include "families/gdn_intra/api.h"
#include "families/kda/chunk.h"
#include "gdn_intra/args.h"

_Static_assert(GEN_GDN_FACTORS == GDN_FACTORS, "same on both sides");

/* Tensors in the order of tensors(). */
enum gdn_intra_tensor {
    GDN_INTRA_Q,
    GDN_INTRA_K,
    GDN_INTRA_G,
    GDN_INTRA_BETA,
    GDN_INTRA_A_LOG,
    GDN_INTRA_DT_BIAS,
    GDN_INTRA_CU_SEQLENS,
    GDN_INTRA_X,
    GDN_INTRA_A_QK,
    GDN_INTRA_FACTORS,
    GDN_INTRA_NUM_TENSORS
};

/* Inputs and numbers; and the kernel's parameters. */
enum gen_status gen__gdn_check_intra(const char *family, const int32_t *dims,
                                     const gen_gdn_intra_args *a);
void gen__gdn_intra_params(const int32_t *dims, const gen_gdn_intra_args *a,
                           struct gen_gdn_intra_params *k);
float gen__gdn_intra_us(const int32_t *dims, const gen_device *device,
                        const struct gen__facts *variant);

/* reference.c */
enum gen_status gen__gdn_intra_reference(const gen_plan *plan, const gen_args *args);

#endif /* GEN_FAMILIES_GDN_INTRA_H */
