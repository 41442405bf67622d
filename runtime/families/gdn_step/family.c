/* A decode step of Gated DeltaNet on the host: kda_step's functions, which go by the tag. */
#include "families/kda/step.h"

const struct gen__family gen__family_gdn_step = {
    GEN__KDA_STEP_FAMILY,
    .name = "gdn_step",
    .tag = GEN_GDN_STEP,
};
