#include "families.h"
#include "common/problem_text.h"

#include "product.h" /* of tests/oracle */

#include <stdlib.h>

gen_library *families_open(void)
{
    struct recorded recorded;
    gen_library *library = NULL;
    recorded_read(RECORDED, &recorded);
    const gen_open_options options = {
        .size = sizeof(options), .data = recorded.bytes, .data_size = recorded.size};
    if (gen_open(&options, &library))
        abort();
    recorded.bytes = NULL; /* the library's from here on */
    recorded_free(&recorded);
    return library;
}

const struct gen__family *families_draw(struct input *input)
{
    return gen__families[input_byte(input) % gen__num_families];
}

void families_preset(const struct gen__family *family, union any_problem *problem)
{
    memset(problem, 0, sizeof(*problem));
    if (family->problem_size > sizeof(*problem) ||
        gen__problem_parse(family, "", &problem->base) != GEN_OK)
        abort();
}
