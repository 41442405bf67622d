/*
 * What the tests of selection share: a table that grows row by row, and questions.
 */
#ifndef TEST_SELECT_FIXTURE_H
#define TEST_SELECT_FIXTURE_H

#include "test.h"

#include "toy.h"

#define A90 "line_bf16_d64__sm90a_a"
#define B90 "line_bf16_d64__sm90a_b"
#define C90 "line_bf16_d64__sm90a_c"
#define BIG90 "line_bf16_d64__sm90a_big"
#define NOTHING90 "line_bf16_d64__sm90a_nothing"
#define A80 "line_bf16_d64__sm80_a"
#define B80 "line_bf16_d64__sm80_b"
#define PTX "line_bf16_d64__compute80_a"

static char table[1 << 16];

static inline void head(unsigned compute_capability, unsigned num_sms, unsigned gbps)
{
    table[0] = '\0';
    toy_table_head(table, sizeof(table), compute_capability, num_sms, gbps);
}

static inline void row(const char *problem, const char *variant, const char *us)
{
    toy_table_row(table, sizeof(table), variant[0] == 't' ? "toy_bf16_d64" : "line_bf16_d64",
                  problem, variant, us);
}

static inline gen_library *open_with_table(void)
{
    struct product *product = toy_product();
    product_table(product, "built-in", table);
    return toy_open(product);
}

static inline gen_plan ask(const gen_library *library, const char *device_name,
                           const gen_toy_problem *problem)
{
    const gen_device device = toy_device(device_name);
    gen_plan plan = {.size = sizeof(plan)};
    assert_status(gen_select(library, &device, &problem->base, &plan), GEN_OK);
    return plan;
}

static inline void expect(const gen_library *library, const char *device, int batch,
                          enum gen_why why, const char *variant)
{
    const gen_toy_problem problem = toy_problem(GEN_LINE, batch);
    const gen_plan plan = ask(library, device, &problem);
    assert_string_equal(toy_chosen(library, &plan), variant);
    assert_string_equal(gen_why_string(plan.why), gen_why_string(why));
}

#endif
