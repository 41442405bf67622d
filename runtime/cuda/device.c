/* What the driver says of the machine's GPUs. */
#include "cuda/driver.h"
#include "family/gpus.h"

#include <string.h>

static enum gen_status describe(const struct gen__driver *driver, int ordinal, gen_device *device)
{
    static const char what[] = "describing a device";
    int major = 0, minor = 0, clock = 0, bus = 0, handle;
    const struct {
        int attribute;
        void *value;
    } attributes[] = {{GEN__DEVICE_MAJOR, &major},
                      {GEN__DEVICE_MINOR, &minor},
                      {GEN__DEVICE_MEMORY_CLOCK, &clock},
                      {GEN__DEVICE_BUS_WIDTH, &bus},
                      {GEN__DEVICE_NUM_SMS, &device->num_sms},
                      {GEN__DEVICE_SHARED_PER_BLOCK, &device->shared_per_block},
                      {GEN__DEVICE_SHARED_PER_SM, &device->shared_per_sm},
                      {GEN__DEVICE_L2_BYTES, &device->l2_bytes}};
    enum gen_status status = GEN__CALL(driver, what, cuDeviceGet, &handle, ordinal);
    if (!status)
        status =
            GEN__CALL(driver, what, cuDeviceGetName, device->name, sizeof(device->name), handle);
    for (size_t i = 0; !status && i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        int value = 0;
        status =
            GEN__CALL(driver, what, cuDeviceGetAttribute, &value, attributes[i].attribute, handle);
        value = value > 0 ? value : 0;
        memcpy(attributes[i].value, &value, sizeof(value));
    }
    device->name[sizeof(device->name) - 1] = '\0';
    device->compute_capability = (uint32_t)(10 * major + minor);
    /* Two transfers a clock (kHz) over the bus (bits). Some drivers do not report the clock. */
    device->memory_gbps = (uint32_t)(2.0 * clock * bus / 8.0 / 1e6 + 0.5);
    if (device->memory_gbps == 0)
        device->memory_gbps = gen__published_gbps(device->compute_capability, device->num_sms);
    return status;
}

enum gen_status gen_device_query(int ordinal, gen_device *device)
{
    const struct gen__driver *driver;
    int count = 0;
    gen_device found = {.size = sizeof(found), .backend = GEN_BACKEND_CUDA, .ordinal = ordinal};
    enum gen_status status = GEN__CHECK_STRUCT(device, gen_device);
    if (!status)
        status = gen__driver_open(&driver);
    if (!status)
        status = GEN__CALL(driver, "counting devices", cuDeviceGetCount, &count);
    if (!status && (ordinal < 0 || ordinal >= count))
        status = gen__fail(GEN_STATUS_NO_DEVICE, "there is no CUDA device %d; this machine has %d",
                           ordinal, count);
    if (!status)
        status = describe(driver, ordinal, &found);
    if (!status)
        gen__give(device, &found, sizeof(found));
    return status;
}
