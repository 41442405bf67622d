#include "measure/numerics.h"
#include "verify/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists -------------------------------------------------------------- */

/* Blanks out `word` where it stands among the words of a line. */
static bool take_word(char *words, const char *word)
{
    const size_t length = strlen(word);
    for (char *p = words; (p = strstr(p, word)); p += length)
        if ((p == words || strchr(" \t,", p[-1])) && strspn(p + length, " \t,") + !p[length]) {
            memset(p, ' ', length);
            return true;
        }
    return false;
}

static bool is_name(const char *name)
{
    return *name && strlen(name) < sizeof((struct hard_case *)0)->name &&
           name[strspn(
               name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")] == '\0';
}

static bool is_taken(const struct hard_list *list, const char *name)
{
    for (size_t i = 0; i < list->problems.count; i++)
        if (strcmp(list->hard[i].name, name) == 0)
            return true;
    return false;
}

static void add_case(struct hard_list *list, const struct shape *shape, const gen_problem *problem,
                     const struct hard_case *hard)
{
    struct shape *s = shapes_add(&list->problems, shape->family, problem);
    memcpy(s->controls, shape->controls, sizeof s->controls);
    list->hard = xrealloc(list->hard, list->problems.count * sizeof *list->hard);
    list->hard[list->problems.count - 1] = *hard;
}

/* The same problem of fp16, in front of the one it is the reference of. */
static const char *add_unrounded(struct hard_list *list, const struct shape *shape)
{
    struct gen__key key;
    gen_problem *problem = xmalloc(shape->family->problem_size);
    memcpy(problem, shape->problem, shape->family->problem_size);
    const bool ok = problem_set(shape->family, problem, "dtype", "fp16") &&
                    shape->family->check(problem, &key) == GEN_OK;
    if (ok)
        add_case(list, shape, problem, &(struct hard_case){.is_reference = true});
    free(problem);
    return ok ? NULL : "@unrounded: there is no such problem of fp16";
}

/* NULL, or what is wrong with the line. */
static const char *read_line(struct hard_list *list, const struct gen__family *family, char *line)
{
    struct hard_case hard = {.name = ""};
    char *words = strchr(line, ':');
    if (!words)
        return "a case is written NAME: PROBLEM";
    *words++ = '\0';
    if (!is_name(text_trim(line)))
        return "a name has 1 to 63 letters, digits, '-', '_' and '.'";
    snprintf(hard.name, sizeof hard.name, "%s", text_trim(line));
    if (is_taken(list, hard.name))
        return "there is another case of this name";
    hard.every = take_word(words, "@every");
    const bool unrounded = take_word(words, "@unrounded");
    struct shape_list parsed = {0};
    if (!shapes_parse(&parsed, family, SHAPES_VERIFIED, words))
        return gen_last_error();
    const char *reason = unrounded ? add_unrounded(list, parsed.item) : NULL;
    if (!reason)
        add_case(list, parsed.item, parsed.item->problem, &hard);
    shapes_free(&parsed);
    return reason;
}

int hard_list_read(struct hard_list *list, const struct gen__family *family, const char *path)
{
    int bad = 0, line_number = 0;
    char *name = xasprintf("shapes/%s_numerics.txt", family->name);
    char *file = path ? xstrdup(path) : data_path(name);
    char *data = file ? file_read(file, NULL) : NULL;
    for (char *line = data, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line_number++;
        line = text_trim(text_cut(line, '#'));
        const char *reason = *line ? read_line(list, family, line) : NULL;
        if (reason) {
            warn("%s:%d: %s", file, line_number, reason);
            bad++;
        }
    }
    if (!data && file)
        bad = -1;
    free(data);
    free(file);
    free(name);
    return bad;
}

void hard_list_free(struct hard_list *list)
{
    shapes_free(&list->problems);
    free(list->hard);
    list->hard = NULL;
}

/* ---- inputs -------------------------------------------------------------- */

static bool is_input(const struct buffers *b, uint32_t t)
{
    return b->tensor[t].role == GEN__IN && !b->tensor[t].view_of && b->tensor[t].count;
}

uint64_t numerics_checksum(const struct verify_case *c)
{
    struct rng weights;
    uint64_t sum = 0;
    rng_seed(&weights, 0);
    for (uint32_t t = 0; t < c->buffers.num_tensors; t++) {
        const uint8_t *data = c->initial + buffers_at(&c->buffers, 0, t);
        for (uint64_t i = 0; is_input(&c->buffers, t) && i < c->buffers.bytes[t]; i++)
            sum += (data[i] + 1u) * rng_next(&weights);
    }
    return sum;
}

bool numerics_same_inputs(const struct verify_case *c, const struct verify_case *exact)
{
    for (uint32_t t = 0; t < c->buffers.num_tensors; t++) {
        const struct gen__tensor *a = &c->buffers.tensor[t], *b = &exact->buffers.tensor[t];
        if (a->count != b->count)
            return false;
        for (uint64_t i = 0; is_input(&c->buffers, t) && i < a->count; i++) {
            const double x = dtype_get(a->dtype, c->initial + buffers_at(&c->buffers, 0, t), i);
            const double y =
                dtype_get(b->dtype, exact->initial + buffers_at(&exact->buffers, 0, t), i);
            /* Half a unit in the last place of three bits, or of a subnormal number. */
            if (!(fabs(x - y) <= 0.1251 * fabs(y) + 0x1p-9))
                return false;
        }
    }
    return true;
}

/* ---- results ------------------------------------------------------------- */

static double tensor_error(const struct verify_case *c, const struct verify_case *reference,
                           uint32_t t)
{
    const struct gen__tensor *tensor = &c->buffers.tensor[t];
    const uint8_t *actual = c->actual + buffers_at(&c->buffers, 0, t);
    struct sums s = {0};
    for (uint64_t i = 0; i < tensor->count; i++)
        sums_add(&s, i, verify_expected(reference, t, i), dtype_get(tensor->dtype, actual, i));
    if (s.any_misplaced)
        return INFINITY;
    return s.reference > 0 ? sqrt(s.difference / s.reference) : sqrt(s.difference);
}

double numerics_error(const struct verify_case *c, const struct verify_case *reference)
{
    double worst = 0;
    for (uint32_t t = 0; t < c->buffers.num_tensors; t++) {
        const struct gen__tensor *tensor = &c->buffers.tensor[t];
        if ((tensor->role == GEN__OUT || tensor->role == GEN__INOUT) && !tensor->view_of &&
            tensor->count && !(tensor->absolute > 0))
            worst = fmax(worst, tensor_error(c, reference, t));
    }
    return worst;
}
