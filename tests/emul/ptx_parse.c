/* Reading the PTX text of an asm statement, once for each place in a kernel's source. */
#define _GNU_SOURCE
#include "ptx.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says what is wrong with a text and ends the launch. */
static _Noreturn void wrong(const struct emul_code *code, const char *what, const char *at)
{
    emul_fault("asm \"%.200s\": %s at \"%.40s\"", code->text, what, at);
}

bool ptx_has(const struct ptx_instruction *i, const char *token)
{
    for (unsigned n = 0; n < i->num_tokens; n++)
        if (strcmp(i->token[n], token) == 0)
            return true;
    return false;
}

static const char *skip(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static const char *read_name(const char *p, char *name, size_t capacity)
{
    size_t n = 0;
    while (is_name(*p)) {
        if (n + 1 < capacity)
            name[n++] = *p;
        p++;
    }
    name[n] = '\0';
    return p;
}

static int find_register(const struct emul_code *code, const char *name)
{
    for (unsigned i = 0; i < code->num_registers; i++)
        if (strcmp(code->register_name[i], name) == 0)
            return (int)i;
    return -1;
}

/* ---- arguments -------------------------------------------------------------- */

static uint64_t read_number(const struct emul_code *code, const char *p, char **end)
{
    if (p[0] == '0' && (p[1] == 'f' || p[1] == 'F'))
        return strtoull(p + 2, end, 16);
    const size_t digits = strspn(p, "-0123456789");
    if (p[digits] == '.') {
        const float x = strtof(p, end);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return bits;
    }
    const long long x = strtoll(p, end, 0);
    if (*end == p)
        wrong(code, "no number", p);
    return (uint64_t)x;
}

static const char *read_special(struct emul_code *code, const char *p, struct element *e)
{
    static const char *const names[] = {"laneid", "warpid", "smid", "cluster_ctarank",
                                        "cluster_nctarank"};
    char name[32];
    const char *end = read_name(p, name, sizeof name);
    e->kind = ELEMENT_SPECIAL;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            e->number = i;
            return end;
        }
    }
    wrong(code, "a special register that the emulation does not have", p);
}

static const char *read_element(struct emul_code *code, const char *p, struct ptx_arg *arg,
                                struct ptx_instruction *i)
{
    struct element *e = emul__list_add(&code->elements, sizeof *e);
    char name[32], *end;
    arg->count++;
    if (p[0] == '%' && p[1] == '%')
        return read_special(code, p + 2, e);
    if (*p == '%') {
        e->number = strtoul(p + 1, &end, 10);
        return end;
    }
    if (*p == '-' || isdigit((unsigned char)*p)) {
        e->kind = ELEMENT_NUMBER;
        e->number = read_number(code, p, &end);
        return end;
    }
    if (p[0] == '_' && p[1] == '|') /* two destinations, the first of them nowhere */
        p += 2;
    const char *behind = read_name(p, name, sizeof name);
    const int number = find_register(code, name);
    if (behind == p)
        wrong(code, "no argument", p);
    if (strcmp(name, "_") == 0) {
        e->kind = ELEMENT_NONE;
    } else if (number >= 0) {
        e->kind = ELEMENT_REGISTER;
        e->number = (uint64_t)number;
    } else if (strncmp(i->name, "bra", 3) == 0) {
        e->kind = ELEMENT_NONE;
        snprintf(i->label, sizeof i->label, "%s", name);
    } else {
        wrong(code, "a name that no .reg declares", p);
    }
    return behind;
}

static const char *read_vector(struct emul_code *code, const char *p, struct ptx_arg *arg,
                               struct ptx_instruction *i)
{
    do
        p = skip(read_element(code, skip(p + 1), arg, i));
    while (*p == ',');
    if (*p != '}')
        wrong(code, "'}' missing", p);
    return p + 1;
}

static const char *read_arg(struct emul_code *code, const char *p, struct ptx_instruction *i)
{
    if (i->num_args == PTX_MAX_ARGS)
        wrong(code, "too many arguments", p);
    struct ptx_arg *arg = &i->arg[i->num_args++];
    *arg = (struct ptx_arg){.first = (unsigned)code->elements.count};
    if (*p == '{') {
        arg->vector = true;
        return read_vector(code, p, arg, i);
    }
    if (*p != '[')
        return read_element(code, p, arg, i);
    arg->memory = true;
    p = skip(read_element(code, skip(p + 1), arg, i));
    if (*p == '+') {
        char *end;
        arg->offset = (int64_t)read_number(code, skip(p + 1), &end);
        p = skip(end);
    }
    if (*p == ',') {
        p = skip(p + 1);
        if (*p != '{')
            wrong(code, "'{' missing", p);
        p = skip(read_vector(code, p, arg, i));
    }
    if (*p != ']')
        wrong(code, "']' missing", p);
    return p + 1;
}

/* ---- statements ---------------------------------------------------------------- */

static const char *read_registers(struct emul_code *code, const char *p)
{
    p = skip(p + strlen(".reg"));
    while (*p && !isspace((unsigned char)*p)) /* the type */
        p++;
    for (;;) {
        if (code->num_registers == PTX_MAX_REGISTERS)
            wrong(code, "too many registers", p);
        p = skip(read_name(skip(p), code->register_name[code->num_registers++], 32));
        if (*p == ';')
            return p + 1;
        if (*p++ != ',')
            wrong(code, "',' or ';' missing", p - 1);
    }
}

static void split(struct emul_code *code, struct ptx_instruction *i)
{
    char *copy = malloc(strlen(i->name) + 1);
    if (!copy)
        abort();
    strcpy(copy, i->name);
    for (char *save, *t = strtok_r(copy, ".", &save); t; t = strtok_r(NULL, ".", &save)) {
        if (i->num_tokens == PTX_MAX_TOKENS)
            wrong(code, "too many suffixes", i->name);
        i->token[i->num_tokens++] = t;
    }
    if (!i->num_tokens)
        wrong(code, "no instruction", i->name);
}

static const char *read_instruction(struct emul_code *code, const char *p)
{
    struct ptx_instruction *i = emul__list_add(&code->instructions, sizeof *i);
    i->guard = -1;
    if (*p == '@') {
        char name[32];
        i->guard_not = p[1] == '!';
        p = skip(read_name(p + 1 + i->guard_not, name, sizeof name));
        i->guard = find_register(code, name);
        if (i->guard < 0)
            wrong(code, "a guard that no .reg declares", name);
    }
    size_t n = 0;
    while (*p && *p != ';' && !isspace((unsigned char)*p)) {
        if (n + 1 == sizeof i->name)
            wrong(code, "an instruction's name that is too long", p);
        i->name[n++] = *p++;
    }
    p = skip(p);
    while (*p && *p != ';') {
        p = skip(read_arg(code, p, i));
        if (*p == ',')
            p = skip(p + 1);
        else if (*p != ';')
            wrong(code, "',' or ';' missing", p);
    }
    if (*p != ';')
        wrong(code, "';' missing", p);
    split(code, i);
    if (!ptx_prepare(i))
        emul_fault("asm \"%.200s\": the emulation does not know %s", code->text, i->name);
    return p + 1;
}

static void find_targets(struct emul_code *code)
{
    struct ptx_instruction *i = code->instructions.items;
    const struct ptx_label *label = code->labels.items;
    for (size_t n = 0; n < code->instructions.count; n++) {
        size_t l = 0;
        if (!i[n].label[0])
            continue;
        while (l < code->labels.count && strcmp(label[l].name, i[n].label) != 0)
            l++;
        if (l == code->labels.count)
            wrong(code, "a branch to nowhere", i[n].label);
        i[n].target = label[l].at;
    }
}

struct emul_code *emul_asm(const char *text)
{
    struct emul_code *code = calloc(1, sizeof *code);
    if (!code)
        abort();
    code->text = text;
    for (const char *p = skip(text); *p; p = skip(p)) {
        char name[32];
        const char *behind = skip(read_name(p, name, sizeof name));
        if (*p == '{' || *p == '}' || *p == ';') {
            p++;
        } else if (strncmp(p, ".reg", 4) == 0) {
            p = read_registers(code, p);
        } else if (behind != p && *behind == ':') {
            struct ptx_label *l = emul__list_add(&code->labels, sizeof *l);
            memcpy(l->name, name, sizeof l->name);
            l->at = (unsigned)code->instructions.count;
            p = behind + 1;
        } else {
            p = read_instruction(code, p);
        }
    }
    find_targets(code);
    return code;
}
