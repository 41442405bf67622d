/*
 * A driver for the generator, which asks it for compute capabilities alone:
 *
 *     FAKE_CCS=90,80   two GPUs, in this order
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUdevice_attribute, from the driver API's reference. */
enum { COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76 };

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetAttribute(int *value, int attribute, int device);

/* The compute capability of GPU `index`, 0 behind the last one. */
static int capability(int index)
{
    const char *text = getenv("FAKE_CCS");
    while (text != NULL && index-- > 0) {
        text = strchr(text, ',');
        text = text != NULL ? text + 1 : NULL;
    }
    return text != NULL ? atoi(text) : 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    for (*count = 0; capability(*count) != 0;)
        ++*count;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int cc = capability(device);
    if (attribute == COMPUTE_CAPABILITY_MAJOR)
        *value = cc / 10;
    else if (attribute == COMPUTE_CAPABILITY_MINOR)
        *value = cc % 10;
    else
        return 1;
    return 0;
}
