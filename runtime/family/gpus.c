/* GPUs by name, from a table of published figures, so that selection can be tried for a GPU that is
 * not there. cuda/device.c describes those that are. */
#include "family/gpus.h"
#include "core/text.h"
#include "family/family.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KIB 1024u
#define MIB (1024u * 1024u)

/* Opt-in shared memory per block and per SM by compute capability (CUDA C++
 * Programming Guide, technical specifications). */
static const struct arch {
    uint32_t compute_capability;
    uint32_t shared_per_block, shared_per_sm;
    const char *target;
} archs[] = {
    {80, 163 * KIB, 164 * KIB, "sm_80"},      {86, 99 * KIB, 100 * KIB, "sm_86"},
    {87, 163 * KIB, 164 * KIB, "sm_80"},      {89, 99 * KIB, 100 * KIB, "sm_89"},
    {90, 227 * KIB, 228 * KIB, "sm_90a"},     {100, 227 * KIB, 228 * KIB, "sm_100a"},
    {103, 227 * KIB, 228 * KIB, "sm_103a"},   {120, 99 * KIB, 100 * KIB, "sm_120a"},
    {121, 99 * KIB, 100 * KIB, "compute_80"},
};

/* Published figures: SMs, peak memory bandwidth in GB/s, L2. The first of an
 * architecture stands for it where only "sm_90" or "sm_90:78" is given. */
static const struct gpu {
    const char *name;
    const char *title;
    uint32_t compute_capability, num_sms, memory_gbps, l2_bytes;
} gpus[] = {
    {"a100", "NVIDIA A100-SXM4-80GB", 80, 108, 2039, 40 * MIB},
    {"a100-80", "NVIDIA A100-SXM4-80GB", 80, 108, 2039, 40 * MIB},
    {"a100-40", "NVIDIA A100-SXM4-40GB", 80, 108, 1555, 40 * MIB},
    {"a10", "NVIDIA A10", 86, 72, 600, 6 * MIB},
    {"l40s", "NVIDIA L40S", 89, 142, 864, 96 * MIB},
    {"l4", "NVIDIA L4", 89, 58, 300, 48 * MIB},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 1008, 72 * MIB},
    {"h200", "NVIDIA H200", 90, 132, 4800, 60 * MIB},
    {"h100", "NVIDIA H100 80GB HBM3", 90, 132, 3350, 50 * MIB},
    {"h100-sxm", "NVIDIA H100 80GB HBM3", 90, 132, 3350, 50 * MIB},
    {"h100-pcie", "NVIDIA H100 PCIe", 90, 114, 2039, 50 * MIB},
    {"h20", "NVIDIA H20", 90, 78, 4000, 60 * MIB},
    {"h20-3e", "NVIDIA H20-3e", 90, 78, 4800, 60 * MIB},
    {"b200", "NVIDIA B200", 100, 148, 8000, 126 * MIB},
    {"b300", "NVIDIA B300", 103, 148, 8000, 126 * MIB},
    {"rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 1792, 96 * MIB},
    {"rtxpro6000", "NVIDIA RTX PRO 6000 Blackwell", 120, 188, 1792, 128 * MIB},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct arch *arch_of(uint32_t compute_capability)
{
    for (size_t i = 0; i < COUNT(archs); i++)
        if (archs[i].compute_capability == compute_capability)
            return &archs[i];
    return NULL;
}

/* The GPU of this architecture and SM count, else the architecture's first. */
static const struct gpu *gpu_of(uint32_t compute_capability, uint32_t num_sms)
{
    const struct gpu *first = NULL;
    for (size_t i = 0; i < COUNT(gpus); i++) {
        if (gpus[i].compute_capability != compute_capability)
            continue;
        if (gpus[i].num_sms == num_sms)
            return &gpus[i];
        if (!first)
            first = &gpus[i];
    }
    return first;
}

const char *gen__target_for(uint32_t compute_capability)
{
    const struct arch *arch = arch_of(compute_capability);
    return arch ? arch->target : "compute_80";
}

/* Of a newer caller, with nothing that this library does not know? (An older one's has the same
 * fields until the struct grows; then gen__query() must complete it as it does a problem.) */
__attribute__((noinline, cold)) static bool is_known(const gen_device *device)
{
    gen_device known;
    _Static_assert(sizeof(known) == GEN__LEAST_gen_device, "no older caller has fewer fields");
    return gen__struct_fit(&known, sizeof(known), 0, device, device->size, GEN__MOST_OUTPUT);
}

enum gen_status gen__device_check(const gen_device *device)
{
    if (!device)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "device is NULL");
    if (device->size != sizeof(gen_device) && !is_known(device))
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "device->size is %u, expected %zu (sizeof(gen_device)); was it filled by "
                         "gen_device_query() or gen_device_named()?",
                         device->size, sizeof(gen_device));
    if (device->backend == GEN_BACKEND_CPU)
        return GEN_OK;
    if (device->backend != GEN_BACKEND_CUDA)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "device->backend is %u, allowed are GEN_BACKEND_CUDA (0) and "
                         "GEN_BACKEND_CPU (1)",
                         device->backend);
    if (device->compute_capability < 10 || device->compute_capability > 9999)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "device->compute_capability is %u, expected 10 * major + minor, such as "
                         "90 for sm_90",
                         device->compute_capability);
    if (device->num_sms == 0 || device->shared_per_block == 0)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "device->num_sms is %u and device->shared_per_block is %u, both must be "
                         "at least 1",
                         device->num_sms, device->shared_per_block);
    return GEN_OK;
}

static void fill_named(const struct gpu *gpu, uint32_t num_sms, gen_device *device)
{
    const struct arch *arch = arch_of(gpu->compute_capability);
    *device = (gen_device){.size = sizeof(*device),
                           .backend = GEN_BACKEND_CUDA,
                           .compute_capability = gpu->compute_capability,
                           .num_sms = num_sms,
                           .shared_per_block = arch ? arch->shared_per_block : 0,
                           .shared_per_sm = arch ? arch->shared_per_sm : 0,
                           .l2_bytes = gpu->l2_bytes,
                           .memory_gbps = gpu->memory_gbps,
                           .ordinal = -1};
    if (num_sms == gpu->num_sms)
        snprintf(device->name, sizeof(device->name), "%s", gpu->title);
    else
        snprintf(device->name, sizeof(device->name), "sm_%u:%u", gpu->compute_capability, num_sms);
}

/* "sm_90", "sm_90a:78": the GPU that stands for it, and the number of SMs; NULL where it is
 * neither. */
static const struct gpu *parse_arch(const char *name, long *num_sms)
{
    char *at;
    if (strncasecmp(name, "sm_", 3) != 0 || !isdigit((unsigned char)name[3]))
        return NULL;
    const long compute_capability = strtol(name + 3, &at, 10);
    at += *at && strchr("aAfF", *at);
    const bool sized = *at == ':' && isdigit((unsigned char)at[1]);
    *num_sms = sized ? strtol(at + 1, &at, 10) : 0;
    if (*at || compute_capability > 9999)
        return NULL;
    const struct gpu *gpu = gpu_of((uint32_t)compute_capability, (uint32_t)*num_sms);
    if (gpu && !sized)
        *num_sms = gpu->num_sms;
    return gpu;
}

static enum gen_status find_named(const char *name, gen_device *device)
{
    if (!strcasecmp(name, "cpu")) {
        *device = (gen_device){.size = sizeof(*device),
                               .backend = GEN_BACKEND_CPU,
                               .ordinal = -1,
                               .name = "CPU reference"};
        return GEN_OK;
    }
    char known[512];
    struct gen__text text = gen__text_over(known, sizeof(known));
    for (size_t i = 0; i < COUNT(gpus); i++) {
        if (!strcasecmp(name, gpus[i].name)) {
            fill_named(&gpus[i], gpus[i].num_sms, device);
            return GEN_OK;
        }
        gen__text_add(&text, "%s, ", gpus[i].name);
    }
    long num_sms;
    const struct gpu *gpu = parse_arch(name, &num_sms);
    if (!gpu)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "unknown device \"%.64s\"; known are cpu, %sand sm_<architecture>:<number "
                         "of SMs> such as sm_90:78",
                         name, known);
    if (num_sms < 1 || num_sms > 65535)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "device \"%.64s\" names %ld SMs, allowed are 1 to 65535", name, num_sms);
    fill_named(gpu, (uint32_t)num_sms, device);
    return GEN_OK;
}

enum gen_status gen_device_named(const char *name, gen_device *device)
{
    gen_device found;
    if (!name)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "name is NULL");
    enum gen_status status = GEN__CHECK_STRUCT(device, gen_device);
    if (!status)
        status = find_named(name, &found);
    if (!status)
        gen__give(device, &found, sizeof(found));
    return status;
}

uint32_t gen__published_gbps(uint32_t compute_capability, uint32_t num_sms)
{
    const struct gpu *gpu = gpu_of(compute_capability, num_sms);
    return gpu ? gpu->memory_gbps : 0;
}
