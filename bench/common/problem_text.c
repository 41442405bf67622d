/* Problems from text: "batch=64 num_qk_heads=8 dtype=bf16". */
#include "common/problem_text.h"
#include "core/text.h"

#include <inttypes.h>
#include <string.h>

const char *const gen__data_names[GEN__NUM_DATA] = {"normal",   "ones",       "mean1",
                                                    "constant", "correlated", "extreme"};

const struct gen__family *gen__family_by_tag(uint32_t tag)
{
    for (uint32_t i = 0; i < gen__num_families; i++)
        if (gen__families[i]->tag == tag)
            return gen__families[i];
    return NULL;
}

#define MAX_FIELDS 32

/* A stretch of the text, as printf's "%.*s" takes it. */
struct word {
    const char *at;
    int length;
};

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r';
}

static bool equals(struct word word, const char *name)
{
    return strlen(name) == (size_t)word.length && !memcmp(word.at, name, (size_t)word.length);
}

/* The next "name=value", or a word of length 0 at the end. */
static struct word next_word(const char **text)
{
    const char *begin = *text;
    while (*begin && is_separator(*begin))
        begin++;
    const char *end = begin;
    while (*end && !is_separator(*end) && end - begin < INT32_MAX)
        end++;
    *text = end;
    return (struct word){begin, (int)(end - begin)};
}

/* Says the values of a field, or where it is NULL the fields of the family. */
static enum gen_status fail_word(const struct gen__family *family, const struct gen__field *field,
                                 struct word word)
{
    char list[512];
    struct gen__text text = gen__text_over(list, sizeof list);
    for (uint32_t i = 0; i < (field ? field->num_values : family->num_fields); i++)
        gen__text_add(&text, "%s%s", i ? ", " : "",
                      field ? field->values[i] : family->fields[i].name);
    if (field)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = \"%.*s\"; allowed: %s",
                         family->name, field->name, word.length, word.at, list);
    return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s has no field \"%.*s\"; allowed: %s",
                     family->name, word.length, word.at, list);
}

static enum gen_status parse_name(const struct gen__family *family, const struct gen__field *field,
                                  struct word value, int32_t *number)
{
    for (uint32_t i = 0; i < field->num_values; i++)
        if (equals(value, field->values[i])) {
            *number = (int32_t)i;
            return GEN_OK;
        }
    return fail_word(family, field, value);
}

/* strtol() would take leading blanks, "+" and "0x". */
static enum gen_status parse_number(const struct gen__family *family,
                                    const struct gen__field *field, struct word value,
                                    int32_t *number)
{
    const int sign = value.length && value.at[0] == '-';
    const int64_t most = INT32_MAX - gen__field_more(field);
    bool bad = value.length == sign;
    int64_t parsed = 0;
    for (int i = sign; i < value.length; i++) {
        bad |= value.at[i] < '0' || value.at[i] > '9';
        if (parsed <= INT32_MAX) /* what is more stays so */
            parsed = 10 * parsed + (value.at[i] - '0');
    }
    if (bad)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s: %s = \"%.*s\"; allowed: an integer",
                         family->name, field->name, value.length, value.at);
    parsed = sign ? -parsed : parsed;
    if (parsed < INT32_MIN || parsed > most)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s = %.*s; allowed: %" PRId32 " to %" PRId64, family->name,
                         field->name, value.length, value.at, INT32_MIN, most);
    *number = (int32_t)parsed;
    return GEN_OK;
}

/* One "name=value" into values[]. */
static enum gen_status parse_word(const struct gen__family *family, struct word word,
                                  int32_t *values, bool *named)
{
    const char *equal = memchr(word.at, '=', (size_t)word.length);
    if (!equal)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: \"%.*s\" is no field of a problem; allowed: name=value", family->name,
                         word.length, word.at);
    const struct word name = {word.at, (int)(equal - word.at)};
    const struct word value = {equal + 1, word.length - name.length - 1};

    uint32_t i = 0;
    while (i < family->num_fields && !equals(name, family->fields[i].name))
        i++;
    if (i == family->num_fields)
        return fail_word(family, NULL, name);
    const struct gen__field *field = &family->fields[i];
    if (named[i])
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT,
                         "%s: %s is given again as \"%.*s\"; allowed: once", family->name,
                         field->name, value.length, value.at);
    named[i] = true;
    return field->values ? parse_name(family, field, value, &values[i])
                         : parse_number(family, field, value, &values[i]);
}

enum gen_status gen__problem_parse(const struct gen__family *family, const char *text,
                                   gen_problem *problem)
{
    int32_t values[MAX_FIELDS] = {0};
    bool named[MAX_FIELDS] = {false};
    if (family->num_fields > MAX_FIELDS)
        return gen__fail(GEN_STATUS_INVALID_ARGUMENT, "%s has %" PRIu32 " fields; allowed: %d",
                         family->name, family->num_fields, MAX_FIELDS);

    for (struct word word = next_word(&text); word.length; word = next_word(&text)) {
        const enum gen_status status = parse_word(family, word, values, named);
        if (status != GEN_OK)
            return status;
    }

    memset(problem, 0, family->problem_size);
    problem->size = family->problem_size;
    problem->family = family->tag;
    for (uint32_t i = 0; i < family->num_fields; i++) {
        const struct gen__field *field = &family->fields[i];
        if (!named[i] && field->preset == GEN__PRESET_SAME && i)
            values[i] = values[i - 1];
        else if (!named[i])
            values[i] = gen__field_more(field) ? -1 : field->preset;
        gen__field_set(field, problem, values[i]);
    }
    return GEN_OK;
}
