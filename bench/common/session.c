#define _GNU_SOURCE
#include "common/session.h"

#include "product/installed.h"
#include "common/problem_text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the build and the installation put the product, seen from the program. Never the current
 * folder's: a product is code for the GPU, and whoever can write there would choose it. */
static const char *const places[] = {"../..",
                                     "../../lib/attngen",
                                     "../../lib/x86_64-linux-gnu/attngen",
                                     "../../lib64/attngen",
                                     "../../../attngen",
                                     "."};

/* attngen.fatbin of the first of these that has it; else what packages of kernels put there, which
 * a folder named attngen holds, also into *packages. */
static const char *default_product(struct gen__paths *packages)
{
    static char file[4300];
    char exe[4096], folder[4200];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(exe, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(folder, sizeof folder, "%.*s/%s", (int)(slash - exe), exe, places[i]);
        snprintf(file, sizeof file, "%s/attngen.fatbin", folder);
        if (access(file, R_OK) == 0)
            return file;
        if (strstr(places[i], "/attngen") && gen__folder_products(packages, folder) != GEN_OK)
            die(1, "%s", gen_last_error());
        if (packages->count)
            return packages->at[0];
    }
    die(1, "there is no product where the build or the installation of this program puts it; "
           "--product FILE or ATTNGEN_PRODUCT names one");
}

void session_open_library(struct session *s)
{
    gen_open_options options = {.size = sizeof options};
    static struct gen__paths packages; /* kept: s->product is of it */
    const char *named = getenv("ATTNGEN_PRODUCT");
    if (!s->product)
        s->product = named && *named ? named : default_product(&packages);
    options.path = s->product;
    options.more_paths = packages.count ? (const char *const *)packages.at + 1 : NULL;
    options.num_more_paths = packages.count ? packages.count - 1 : 0;
    options.table_paths = s->tables.item;
    options.num_table_paths = (size_t)s->tables.count;
    if (gen_open(&options, &s->library) != GEN_OK)
        die(1, "%s", gen_last_error());
    s->info.size = sizeof s->info;
    if (gen_library_info_get(s->library, &s->info) != GEN_OK)
        die(2, "%s", gen_last_error());
}

void session_open_gpu(struct session *s)
{
    if (gpu_open(&s->gpu, (int)s->ordinal, s->sms) != GEN_OK)
        die(1, "no GPU to work on: %s", gen_last_error());
}

gen_variant_info session_variant(const struct session *s, uint32_t index)
{
    gen_variant_info info = {.size = sizeof info};
    if (gen_variant_get(s->library, index, &info) != GEN_OK)
        die(2, "%s", gen_last_error());
    return info;
}

gen_variant_info session_main(const struct session *s, const gen_plan *plan)
{
    const struct gen__family *family = gen__family_by_tag(plan->family);
    for (uint32_t i = 0; i < plan->num_launches; i++) {
        const gen_variant_info info = session_variant(s, plan->launch[i].variant);
        if (family && strcmp(info.family, family->name) == 0)
            return info;
    }
    return session_variant(s, plan->launch[0].variant);
}

static bool is_ptx(const gen_variant_info *variant)
{
    return strncmp(variant->target, "compute_", 8) == 0;
}

bool session_passes_over(const struct session *s, const gen_problem *problem,
                         const gen_variant_info *variant)
{
    gen_plan plan = {.size = sizeof plan};
    if (!is_ptx(variant))
        return false;
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        const gen_variant_info other = session_variant(s, i);
        if (!is_ptx(&other) && strcmp(other.required, variant->required) == 0 &&
            gen_select_variant(s->library, &s->gpu.device, problem, other.name, &plan) == GEN_OK)
            return true;
    }
    return false;
}

bool session_find_variant(const struct session *s, const char *name, gen_variant_info *info)
{
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        *info = session_variant(s, i);
        if (strcmp(info->name, name) == 0)
            return true;
    }
    return false;
}

void session_close(struct session *s)
{
    gen_close(s->library);
    s->library = NULL;
    gpu_close(&s->gpu);
}
