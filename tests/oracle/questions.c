/* Drawing devices and problems: real problems of the shape files, changed in some of their fields,
 * on real and on odd devices, with every flag. */
#include "questions.h"
#include "common/problem_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct random {
    uint64_t state;
};

/* splitmix64 */
static uint64_t draw_word(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* 0 to below - 1. */
static uint32_t draw(struct random *random, uint32_t below)
{
    return (uint32_t)((draw_word(random) >> 32) * below >> 32);
}

static bool chance(struct random *random, uint32_t percent)
{
    return draw(random, 100) < percent;
}

/* ---- devices ----------------------------------------------------------- */

static const struct known_device {
    const char *name;
    uint32_t weight;
    uint32_t num_sms, memory_gbps; /* 0: those of the name */
} known_devices[] = {
    {"h200", 30, 0, 0},     {"sm_90:80", 14, 0, 0}, {"h200", 5, 132, 4000}, /* GH200 */
    {"h100", 4, 0, 0},      {"h100-pcie", 8, 0, 0}, {"h20", 8, 0, 0},
    {"a100", 4, 0, 0},      {"a100", 3, 14, 0}, /* an instance of a divided one */
    {"a10", 3, 0, 0},       {"l40s", 3, 0, 0},      {"rtx4090", 3, 0, 0},
    {"b200", 4, 0, 0},      {"rtx5090", 3, 0, 0},   {"cpu", 3, 0, 0},
    {"sm_90:131", 2, 0, 0}, {"a10", 3, 0, 1}, /* sm_75, see below */
};

static void draw_device(struct random *random, gen_device *device)
{
    uint32_t at = draw(random, 100);
    size_t i = 0;
    for (; at >= known_devices[i].weight; i++)
        at -= known_devices[i].weight;
    const struct known_device *known = &known_devices[i];
    device->size = sizeof(*device);
    if (gen_device_named(known->name, device) != GEN_OK) {
        fprintf(stderr, "oracle: %s\n", gen_last_error());
        exit(2);
    }
    device->num_sms = known->num_sms ? known->num_sms : device->num_sms;
    device->memory_gbps = known->memory_gbps ? known->memory_gbps : device->memory_gbps;
    if (known->memory_gbps == 1) { /* too old for any variant */
        device->compute_capability = 75;
        device->shared_per_block = device->shared_per_sm = 65536;
        device->memory_gbps = 320;
    }
    if (chance(random, 4))
        device->num_sms = 1 + draw(random, 200);
    if (chance(random, 3))
        device->memory_gbps = 0;
    if (chance(random, 3))
        device->l2_bytes = 0;
    if (chance(random, 3))
        device->shared_per_block = draw(random, 8) * 32768;
    if (draw(random, 500) == 0)
        device->compute_capability = draw(random, 12);
    if (draw(random, 500) == 0)
        device->size = draw(random, 200);
    if (draw(random, 500) == 0)
        device->backend = draw(random, 4);
}

/* ---- problems ---------------------------------------------------------- */

/* Evenly in the logarithm. */
static int32_t draw_size(struct random *random, uint32_t most_octaves)
{
    const double octaves = most_octaves * (draw(random, 1u << 20) / 1048576.0);
    return (int32_t)(exp2(octaves) + 0.5);
}

static int32_t change_number(struct random *random, int32_t value)
{
    static const int32_t odd[] = {-1, 0, 1, 2, 3, 63, 64, 65, 127, 129, 1000, 65535, INT32_MAX};
    double scaled;
    switch (draw(random, 8)) {
    case 0:
        return draw_size(random, 12);
    case 1:
        return draw_size(random, draw(random, 4) ? 18 : 30);
    case 2:
        return value + (int32_t)draw(random, 5) - 2;
    case 3:
        return chance(random, 15) ? odd[draw(random, 13)] : value;
    case 4:
    case 5: /* a power of two times it */
        scaled = value * exp2((double)draw(random, 11) - 5.0);
        break;
    default:
        scaled = floor(value * exp2(draw(random, 1u << 16) / 8192.0 - 4.0));
    }
    return scaled < 2147483647.0 ? (int32_t)scaled : INT32_MAX;
}

/* As text has the value, which the answers were recorded for. */
static void change_field(struct random *random, const struct gen__field *field,
                         gen_problem *problem)
{
    if (field->values)
        gen__field_set(field, problem,
                       (int32_t)draw(random, field->num_values + chance(random, 3)));
    else
        gen__field_set(field, problem, change_number(random, gen__field_get(field, problem)));
}

static void change_problem(struct random *random, struct question *question)
{
    const struct gen__family *family = question->family;
    if (chance(random, 10))
        return; /* as the shape file has it */
    for (uint32_t i = 0; i < family->num_fields; i++) {
        const struct gen__field *field = &family->fields[i];
        const uint32_t percent = field->values ? 8 : 30;
        if (field->values == gen__index_names)
            continue; /* younger than the answers, whose lists have 32 bits */
        if (chance(random, percent))
            change_field(random, field, &question->problem.base);
    }
}

/* Most questions are about problems that the family allows. */
static void change_allowed(struct random *random, struct question *question)
{
    const struct question before = *question;
    struct gen__key key;
    for (int attempt = 0; attempt < 8; attempt++) {
        *question = before;
        change_problem(random, question);
        memset(&key, 0, sizeof(key));
        if (question->family->check(&question->problem.base, &key) == GEN_OK || chance(random, 10))
            return;
    }
}

static void change_head(struct random *random, gen_problem *problem)
{
    if (chance(random, 40))
        problem->flags = draw(random, 8);
    if (chance(random, 20))
        problem->max_workspace_mib = (uint32_t)draw_size(random, 14);
    switch (draw(random, 1000)) {
    case 0:
        problem->flags = 1u << draw(random, 32);
        break;
    case 1:
        problem->size += draw(random, 9) - 4u;
        break;
    case 2:
        problem->family ^= 1u << draw(random, 32);
        break;
    }
}

void question_make(const struct recorded *recorded, uint32_t index, struct question *question)
{
    struct random random = {.state = index * 0xd1342543de82ef95ull + 1};
    memset(question, 0, sizeof(*question));
    memset(question->behind, 0xff, sizeof(question->behind));
    draw_device(&random, &question->device);
    const struct gen__family *wanted = recorded->families[draw(&random, recorded->num_families)];
    const bool any = chance(&random, 40);
    const struct seed *seed;
    do
        seed = &recorded->seeds[draw(&random, (uint32_t)recorded->num_seeds)];
    while (!any && seed->family != wanted);
    question->family = seed->family;
    if (gen__problem_parse(seed->family, seed->text, &question->problem.base) != GEN_OK) {
        fprintf(stderr, "oracle: %s: %s\n", seed->text, gen_last_error());
        exit(2);
    }
    change_allowed(&random, question);
    change_head(&random, &question->problem.base);
    question->named = chance(&random, 5);
    question->variant = draw(&random, 16);
}

void question_print(const struct question *question, char *text, size_t capacity)
{
    const gen_device *d = &question->device;
    char problem[512];
    gen__problem_format(question->family, &question->problem.base, problem, sizeof(problem));
    snprintf(text, capacity,
             "sm_%u:%u backend %u, %u GB/s, L2 %u, %u of shared memory; %s %s flags %#x, at most "
             "%u MiB%s",
             d->compute_capability, d->num_sms, d->backend, d->memory_gbps, d->l2_bytes,
             d->shared_per_block, question->family->name, problem, question->problem.base.flags,
             question->problem.base.max_workspace_mib, question->named ? ", a variant named" : "");
}
