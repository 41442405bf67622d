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

bool gen__struct_fit(void *to, uint32_t full, uint32_t least, const void *from, uint32_t size,
                     uint32_t most)
{
    const unsigned char *bytes = from;
    if (size < (least ? least : full) || size > most || full > most)
        return false;
    for (uint32_t i = full; i < size; i++)
        if (bytes[i])
            return false;
    memset(to, 0, full);
    memcpy(to, from, size < full ? size : full);
    memcpy(to, &full, sizeof full);
    return true;
}
