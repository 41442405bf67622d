/*
 * attngen-versus: the variants of two products, by their names, timed in turns.
 */
#include "common/problems.h"
#include "common/session.h"
#include "common/timing.h"
#include "common/util.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "attngen versus [options] [key=value ...]\n"
    "\n"
    "Times each variant of a product beside that of the same name of another product, in turns, "
    "by\n"
    "graph replay over memory beyond the L2: on the problem key=value ..., or on the first "
    "problems\n"
    "of the family's shape file that the variant takes. Prints microseconds and their ratio.\n";

enum { MOST_CASES = 3, ROUNDS = 11 };

static struct {
    struct session now, was;
    const char *against;
    struct option_list only;
    long rest_ms;
} options;

struct sides {
    gen_plan now, was;
    bool both;
};

/* ---- problems -------------------------------------------------------------------------- */

static bool plan_of(struct session *s, const struct shape *shape, const char *name, gen_plan *plan)
{
    *plan = (gen_plan){.size = sizeof *plan};
    return gen_select_variant(s->library, &options.now.gpu.device, shape->problem, name, plan) ==
               GEN_OK &&
           plan->num_launches > 0;
}

/* The family's problems: the given one, or its shape file. */
static void read_problems(struct shape_list *list, const struct gen__family *family,
                          const char *const *words, int count)
{
    struct text text = {0};
    if (count == 0) {
        shapes_load(list, family, SHAPES_TIMED, NULL);
        return;
    }
    for (int i = 0; i < count; i++)
        text_add(&text, "%s ", words[i]);
    if (!shapes_parse(list, family, SHAPES_TIMED, text.data))
        die(1, "%s", gen_last_error());
    text_free(&text);
}

/* ---- measuring ------------------------------------------------------------------------- */

static enum gen_status time_sides(const struct stage *stage, const struct sides *sides,
                                  struct runner *runners)
{
    const struct gpu *gpu = &options.now.gpu;
    struct runner *list[] = {&runners[0], &runners[1]};
    const size_t count = sides->both ? 2 : 1;
    const uint32_t sets = stage->buffers.num_sets;
    enum gen_status status = runner_plan(&runners[0], options.now.library, stage, &sides->now);
    if (status == GEN_OK && sides->both)
        status = runner_plan(&runners[1], options.was.library, stage, &sides->was);
    for (size_t i = 0; i < count && status == GEN_OK; i++) {
        double us = 0;
        status = runner_first_us(&runners[i], gpu, sets, &us);
        const uint32_t launches = launches_for(2000, stage->floor_us * 1.2 + 2, 20);
        if (status == GEN_OK)
            status = runner_capture(&runners[i], gpu, sets,
                                    launches_within(LONGEST_WINDOW_US, us, launches));
    }
    if (status == GEN_OK)
        status = warm_up(gpu, &runners[0], 30);
    return status == GEN_OK
               ? runners_interleave(list, count, gpu, ROUNDS,
                                    (double)shape_rest_ms(stage->shape, options.rest_ms))
               : status;
}

/* False if it cannot run; the message says why. */
static bool measure(struct arena *arena, const struct shape *shape, const char *name,
                    const struct sides *sides)
{
    struct runner runners[2];
    struct stage stage;
    memset(runners, 0, sizeof runners);
    uint64_t workspace = sides->now.workspace_bytes;
    if (sides->both && sides->was.workspace_bytes > workspace)
        workspace = sides->was.workspace_bytes;
    if (stage_open(&stage, &options.now.gpu, arena, shape, workspace) != GEN_OK)
        return false;
    const enum gen_status status = time_sides(&stage, sides, runners);
    if (status == GEN_OK) {
        const double now = runner_median(&runners[0]);
        printf("%s\t%s\t", name, shape->name);
        if (sides->both) {
            const double was = runner_median(&runners[1]);
            printf("%.3f\t%.3f\t%.4f\t%.4f\t%.4f\n", was, now, now / was,
                   runner_spread(&runners[1]), runner_spread(&runners[0]));
        } else {
            printf("-\t%.3f\t-\t-\t%.4f\n", now, runner_spread(&runners[0]));
        }
        fflush(stdout);
    }
    for (int i = 0; i < 2; i++)
        runner_free(&runners[i], &options.now.gpu);
    stage_close(&stage);
    return status == GEN_OK;
}

/* Returns how many problems it was timed on. */
static int measure_variant(struct arena *arena, const gen_variant_info *variant,
                           const char *const *words, int num_words)
{
    struct shape_list list = {0};
    int cases = 0;
    read_problems(&list, gen__family_by_name(variant->family), words, num_words);
    for (size_t i = 0; i < list.count && cases < MOST_CASES; i++) {
        struct sides sides;
        if (!plan_of(&options.now, &list.item[i], variant->name, &sides.now))
            continue;
        sides.both = options.against != NULL &&
                     plan_of(&options.was, &list.item[i], variant->name, &sides.was);
        if (!measure(arena, &list.item[i], variant->name, &sides))
            die(1, "%s: %s: %s", variant->name, list.item[i].name, gen_last_error());
        cases++;
    }
    shapes_free(&list);
    return cases;
}

int main(int argc, char **argv)
{
    struct session *s = &options.now;
    const struct option table[] = {
        SESSION_PRODUCT_OPTIONS(s),
        {"--against", OPTION_TEXT, &options.against, "FILE", "the product of the other side"},
        {"--only", OPTION_LIST, &options.only, "GLOB",
         "only variants of such names; may be repeated"},
        {"--rest", OPTION_INT, &options.rest_ms, "MS",
         "cool-down before each sample of problems that the tensor cores bound"},
        SESSION_GPU_OPTIONS(s),
    };
    util_set_program("versus");
    const char **words = xmalloc((size_t)argc * sizeof *words);
    const int num_words =
        options_parse(table, (int)(sizeof table / sizeof *table), usage, argc, argv, words);
    struct arena arena = {0};
    int cases = 0;
    session_open_library(s);
    session_open_gpu(s);
    if (options.against) {
        options.was.product = options.against;
        session_open_library(&options.was);
    }
    printf("# %s%s%s on %s (%s)\n", s->product, options.against ? " against " : "",
           options.against ? options.against : "", s->gpu.device.name, s->gpu.class_name);
    printf("variant\tcase\twas_us\tus\tratio\twas_spread\tspread\n");
    for (uint32_t i = 0; i < s->info.num_variants; i++) {
        const gen_variant_info variant = session_variant(s, i);
        if (glob_match_any(&options.only, variant.name))
            cases += measure_variant(&arena, &variant, words, num_words);
    }
    arena_free(&arena, &s->gpu);
    if (options.against)
        gen_close(options.was.library);
    session_close(s);
    free(words);
    if (cases == 0)
        die(1, "no variant of %s fits this GPU, the problem and --only", s->product);
    return 0;
}
