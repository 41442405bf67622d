/* What the driver says of the machine's GPUs. */
#include "cuda/driver.h"
#include "family/gpus.h"

#include <string.h>

static enum gen_status query_attributes(const struct gen__driver *driver, int handle,
                                        gen_device *device)
{
    enum { MAJOR, MINOR, SMS, BLOCK, SM, L2, CLOCK, BUS, NUM_ATTRIBUTES };
    static const int attributes[NUM_ATTRIBUTES] = {
        [MAJOR] = GEN__DEVICE_MAJOR,        [MINOR] = GEN__DEVICE_MINOR,
        [SMS] = GEN__DEVICE_NUM_SMS,        [BLOCK] = GEN__DEVICE_SHARED_PER_BLOCK,
        [SM] = GEN__DEVICE_SHARED_PER_SM,   [L2] = GEN__DEVICE_L2_BYTES,
        [CLOCK] = GEN__DEVICE_MEMORY_CLOCK, [BUS] = GEN__DEVICE_BUS_WIDTH,
    };
    uint32_t values[NUM_ATTRIBUTES];
    for (int i = 0; i < NUM_ATTRIBUTES; i++) {
        int value = 0;
        int result = driver->cuDeviceGetAttribute(&value, attributes[i], handle);
        if (result)
            return gen__driver_fail(driver, result, "cuDeviceGetAttribute", "describing a device");
        values[i] = value > 0 ? (uint32_t)value : 0;
    }
    device->compute_capability = 10 * values[MAJOR] + values[MINOR];
    device->num_sms = values[SMS];
    device->shared_per_block = values[BLOCK];
    device->shared_per_sm = values[SM];
    device->l2_bytes = values[L2];
    /* Two transfers a clock (kHz) over the bus (bits). */
    device->memory_gbps = (uint32_t)(2.0 * values[CLOCK] * values[BUS] / 8.0 / 1e6 + 0.5);
    /* Some drivers do not report the memory clock. */
    if (device->memory_gbps == 0)
        device->memory_gbps = gen__published_gbps(device->compute_capability, device->num_sms);
    return GEN_OK;
}

enum gen_status gen_device_query(int ordinal, gen_device *device)
{
    const struct gen__driver *driver;
    enum gen_status status = GEN__CHECK_STRUCT(device, gen_device);
    if (!status)
        status = gen__driver_open(&driver);
    if (status)
        return status;
    int count = 0;
    int result = driver->cuDeviceGetCount(&count);
    if (result)
        return gen__driver_fail(driver, result, "cuDeviceGetCount", "counting devices");
    if (ordinal < 0 || ordinal >= count)
        return gen__fail(GEN_STATUS_NO_DEVICE, "there is no CUDA device %d; this machine has %d",
                         ordinal, count);
    int handle;
    result = driver->cuDeviceGet(&handle, ordinal);
    if (result)
        return gen__driver_fail(driver, result, "cuDeviceGet", "describing a device");
    gen_device found;
    memset(&found, 0, sizeof(found));
    found.size = sizeof(found);
    found.backend = GEN_BACKEND_CUDA;
    found.ordinal = ordinal;
    result = driver->cuDeviceGetName(found.name, (int)sizeof(found.name), handle);
    if (result)
        return gen__driver_fail(driver, result, "cuDeviceGetName", "describing a device");
    found.name[sizeof(found.name) - 1] = '\0';
    status = query_attributes(driver, handle, &found);
    if (status)
        return status;
    *device = found;
    return GEN_OK;
}
