/*
 * session.h - what the programs open: the product and a GPU.
 */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include "common/gpu.h"
#include "common/util.h"
#include "family/family.h"

struct session {
    /* Options. */
    const char *product;
    struct option_list tables, families;
    long ordinal, sms;
    /* Opened. */
    gen_library *library;
    gen_library_info info;
    struct gpu gpu;
};

/* Rows of an option table for the fields above. */
#define SESSION_PRODUCT_OPTIONS(s)                                               \
    {"--product", OPTION_TEXT, &(s)->product, "FILE",                            \
     "the product (default: the build's or the installation's attngen.fatbin)"}, \
    {                                                                            \
        "--table", OPTION_LIST, &(s)->tables, "FILE",                            \
            "a tuning table read before the built-in ones; may be repeated"      \
    }
#define SESSION_GPU_OPTIONS(s)                                                              \
    {"--device", OPTION_INT, &(s)->ordinal, "N", "CUDA device (default 0)"},                \
    {                                                                                       \
        "--sms", OPTION_INT, &(s)->sms, "N", "work in a green context of N multiprocessors" \
    }
#define SESSION_FAMILY_OPTIONS(s)                                                                 \
    {                                                                                             \
        "--families", OPTION_LIST, &(s)->families, "GLOB", "only these families; may be repeated" \
    }

/* Opens the product; dies if it cannot. */
void session_open_library(struct session *s);
/* Opens the GPU; dies with status 1 if there is none. */
void session_open_gpu(struct session *s);
/* The product's variant by index; dies if there is no such. */
gen_variant_info session_variant(const struct session *s, uint32_t index);
/* The variant of the plan's own family: its first launch may be another's (a part). */
gen_variant_info session_main(const struct session *s, const gen_plan *plan);
/* Is the variant PTX where machine code of the product fits the problem? Selection never takes one
 * that is (docs/design.md), so that none is to win against machine code. */
bool session_passes_over(const struct session *s, const gen_problem *problem,
                         const gen_variant_info *variant);
/* Variant by name; false if unknown. */
bool session_find_variant(const struct session *s, const char *name, gen_variant_info *info);
void session_close(struct session *s);

#endif /* BENCH_SESSION_H */
