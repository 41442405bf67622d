/* The counters of kda_decode's rings behind a step, in plain C. */
#include "families/kda_ring_advance/api.h"
#include "family/family.h"

enum gen_status gen__kda_ring_advance_reference(const gen_plan *plan, const gen_args *args);

enum gen_status gen__kda_ring_advance_reference(const gen_plan *plan, const gen_args *base)
{
    const gen_kda_ring_advance_args *a = (const gen_kda_ring_advance_args *)base;
    const int32_t num_tokens = plan->dims[1], ring_len = plan->dims[2], size = plan->dims[3];
    for (int64_t b = 0; b < plan->dims[0]; b++) {
        const int64_t slot = a->slots ? a->slots[b * (a->slots_stride ? a->slots_stride : 1)] : b;
        if (slot < 0 || slot >= a->num_slots || slot + 1 == a->null_slot)
            continue;
        int32_t *const fill = &a->ring_fill[slot], *const first = &a->ring_base[slot];
        if (num_tokens > 1) {
            if (*fill < 0 || *fill > size - num_tokens || *first < 0 || *first >= size)
                continue;
            int32_t accepted = a->accepted ? a->accepted[b] : num_tokens;
            accepted = accepted < 0 ? 0 : accepted > num_tokens ? num_tokens : accepted;
            if (*fill + 2 * num_tokens > size || (a->flush && a->flush[b])) {
                *first = (*first + *fill) % size;
                *fill = accepted;
            } else {
                *fill += accepted;
            }
            continue;
        }
        if (num_tokens == 0)
            *fill = 0;
        else if (*fill >= 0 && *fill <= size && a->ring_base[slot] >= 0 &&
                 a->ring_base[slot] < size)
            *fill = *fill >= ring_len - 1 || (a->flush && a->flush[b]) ? 0 : *fill + 1;
    }
    return GEN_OK;
}
