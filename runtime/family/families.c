/* Finding a family among those the build collected, and its problems as text. */
#include "family/family.h"
#include "core/text.h"

#include <inttypes.h>
#include <string.h>

const char *const gen__index_names[] = {"int32", "int64"};

const struct gen__family *gen__family_by_name(const char *name)
{
    for (uint32_t i = 0; name && i < gen__num_families; i++)
        if (!strcmp(gen__families[i]->name, name))
            return gen__families[i];
    return NULL;
}

bool gen__struct_fit(void *to, uint32_t full, uint32_t least, const void *from, uint32_t size,
                     uint32_t most)
{
    const unsigned char *bytes = from;
    if (size < (least ? least : full) || size > most || full > most)
        return false;
    for (uint32_t i = full; i < size; i++)
        if (bytes[i])
            return false;
    memset(to, 0, full);
    memcpy(to, from, size < full ? size : full);
    memcpy(to, &full, sizeof full);
    return true;
}

void gen__problem_format(const struct gen__family *family, const gen_problem *problem, char *text,
                         size_t capacity)
{
    struct gen__text out = gen__text_over(text, capacity);
    for (uint32_t i = 0; i < family->num_fields; i++) {
        const struct gen__field *field = &family->fields[i];
        const int32_t value = gen__field_get(field, problem);
        if (field->values == gen__index_names && value == GEN_INDEX_INT32)
            continue;
        gen__text_add(&out, "%s%s=", out.length ? " " : "", field->name);
        if (field->values && value >= 0 && (uint32_t)value < field->num_values)
            gen__text_add(&out, "%s", field->values[value]);
        else
            gen__text_add(&out, "%" PRId32, value);
    }
}
