/* Comparing classes of GPU: the device's own, and the nearest. */
#ifndef GEN_GPU_CLASS_H
#define GEN_GPU_CLASS_H

#include "product/library.h"

#include <math.h>
#include <string.h>

/* Are the two words at `at` these? In one comparison. */
static inline bool gen__same_words(const void *at, const uint32_t words[2])
{
    uint64_t a, b;
    memcpy(&a, at, sizeof(a));
    memcpy(&b, words, sizeof(b));
    return a == b;
}

/* A class is two words, in a device as in a range. */
_Static_assert(offsetof(gen_device, num_sms) ==
                   offsetof(gen_device, compute_capability) + sizeof(uint32_t),
               "one behind the other");
_Static_assert(offsetof(struct gen__range, compute_capability) == 0 &&
                   offsetof(struct gen__range, num_sms) == sizeof(uint32_t),
               "one behind the other, in front");

/* The rows of the device's own class. */
static inline const struct gen__range *gen__own_class(const struct gen__entry *entry,
                                                      const gen_device *device)
{
    const struct gen__range *range = entry->ranges;
    uint32_t class[2];
    memcpy(class, (const char *)device + offsetof(gen_device, compute_capability), sizeof(class));
    if (entry->num_ranges && gen__same_words(&entry->largest, class))
        return &entry->largest;
    for (uint32_t left = entry->num_ranges; left > 0; left--, range++)
        if (gen__same_words(range, class))
            return range;
    return NULL;
}

static inline double gen__larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double gen__smaller(double a, double b)
{
    return a < b ? a : b;
}

/* A device as classes are compared with it. */
struct gen__features {
    double sms, gbps, l2_bytes; /* 0: not known */
};

static inline struct gen__features gen__features_of(const gen_device *device)
{
    return (struct gen__features){device->num_sms, device->memory_gbps, device->l2_bytes};
}

/* The product of the ratios, each the way that is at least 1, orders classes as
 * the sum of their |log2| does. In double the products are exact, and equal
 * distances equal. */
static inline double gen__class_distance(struct gen__features device,
                                         const struct gen__range *range)
{
    return gen__larger(device.sms, range->sms) * gen__larger(device.gbps, range->gbps) *
           gen__larger(device.l2_bytes, range->l2_bytes) /
           (gen__smaller(device.sms, range->sms) * gen__smaller(device.gbps, range->gbps) *
            gen__smaller(device.l2_bytes, range->l2_bytes));
}

/* What makes as much work fall to an SM of the device as to one of the class. */
static inline float gen__per_sm_scale(struct gen__features device, const struct gen__range *range)
{
    return (float)(range->sms * (1.0 / device.sms));
}

/* The nearest class; of equal distances the one with fewer SMs comes first. */
static inline const struct gen__range *gen__nearest_class(const struct gen__entry *entry,
                                                          const gen_device *device,
                                                          struct gen__features features)
{
    const struct gen__range *best = NULL;
    const struct gen__range *range = entry->ranges;
    double best_distance = INFINITY;
    for (uint32_t left = entry->num_ranges; left > 0; left--, range++) {
        if (range->compute_capability != device->compute_capability)
            continue;
        const double d = gen__class_distance(features, range);
        best = d < best_distance ? range : best;
        best_distance = gen__smaller(d, best_distance);
    }
    return best;
}

/* A class's time on the device: by bandwidth. */
static inline float gen__by_bandwidth(float us, const gen_device *device,
                                      const struct gen__range *range)
{
    const uint32_t gbps = device->memory_gbps;
    if (gbps == range->memory_gbps)
        return us;
    return gbps ? us * ((float)range->memory_gbps / (float)gbps) : us;
}

#endif /* GEN_GPU_CLASS_H */
