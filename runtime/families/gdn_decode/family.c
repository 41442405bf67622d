/* Gated DeltaNet decode on the host: kda_decode's functions, which go by the tag. */
#include "families/kda/decode.h"

const struct gen__family gen__family_gdn_decode = {
    GEN__KDA_DECODE_FAMILY(gen__gdn_decode_required),
    .name = "gdn_decode",
    .tag = GEN_GDN_DECODE,
};
