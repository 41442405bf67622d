/* Finding a family among those the build collected. */
#include "family/family.h"

#include <string.h>

const char *const gen__data_names[GEN__NUM_DATA] = {"normal",   "ones",       "mean1",
                                                    "constant", "correlated", "extreme"};

const struct gen__family *gen__family_by_tag(uint32_t tag)
{
    for (uint32_t i = 0; i < gen__num_families; i++)
        if (gen__families[i]->tag == tag)
            return gen__families[i];
    return NULL;
}

const struct gen__family *gen__family_by_name(const char *name)
{
    for (uint32_t i = 0; name && i < gen__num_families; i++)
        if (!strcmp(gen__families[i]->name, name))
            return gen__families[i];
    return NULL;
}
