#include "compile/ptxas_log.h"

#include "expand/source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of ptxas, which writes none that an int cannot hold. */
static int parse(const char *digits)
{
    return (int)strtol(digits, NULL, 10);
}

/* The number before `what` on the line, or 0. */
static int number_before(const char *line, const char *end, const char *what)
{
    const char *p = strstr(line, what);
    if (p == NULL || p >= end)
        return 0;
    while (p > line && p[-1] == ' ')
        p--;
    while (p > line && isdigit((unsigned char)p[-1]))
        p--;
    return parse(p);
}

static int number_after(const char *line, const char *end, const char *what)
{
    const char *p = strstr(line, what);
    if (p == NULL || p >= end)
        return 0;
    return parse(p + strlen(what));
}

static int greatest(int a, int b)
{
    return a > b ? a : b;
}

static void parse_line(const char *line, const char *end, struct report *report)
{
    static const char entry[] = "Compiling entry function '";
    const char *name = strstr(line, entry);
    if (name != NULL && name < end) {
        name += sizeof entry - 1;
        size_t size = strcspn(name, "'\n");
        if (report->entries++ == 0)
            snprintf(report->entry, sizeof report->entry, "%.*s", (int)size, name);
    }
    report->stack = greatest(report->stack, number_before(line, end, "bytes stack frame"));
    report->spill_stores =
        greatest(report->spill_stores, number_before(line, end, "bytes spill stores"));
    report->spill_loads =
        greatest(report->spill_loads, number_before(line, end, "bytes spill loads"));
    report->registers = greatest(report->registers, number_after(line, end, "Used "));
    report->shared_static = greatest(report->shared_static, number_before(line, end, "bytes smem"));
    report->instructions =
        greatest(report->instructions, number_before(line, end, "SASS instructions"));
    /* C7508, C7510, ...: "wgmma.mma_async instructions are serialized due to ..." */
    const char *remark = strstr(line, "(C75");
    if (remark != NULL && remark < end)
        report->serialized = true;
}

static const char *line_end(const char *line)
{
    const char *end = strchr(line, '\n');
    return end != NULL ? end : line + strlen(line);
}

void ptxas_log_parse(const char *log, struct report *report)
{
    *report = (struct report){0};
    for (const char *line = log; *line != '\0';) {
        const char *end = line_end(line);
        /* Names in a kernel's own text must not pass for figures. */
        if (strncmp(line, "ptxas", 5) == 0)
            parse_line(line, end, report);
        line = *end != '\0' ? end + 1 : end;
    }
}

/* `/attngen/templates/x.cu.in(12): error` becomes `x.cu.in:12: error`. */
static void add_line(struct text *out, const char *line, const char *end)
{
    static const char folder[] = VIRTUAL_TEMPLATES;
    if ((size_t)(end - line) > sizeof folder && strncmp(line, folder, sizeof folder - 1) == 0)
        line += sizeof folder - 1;
    const char *open = memchr(line, '(', (size_t)(end - line));
    const char *close = open != NULL ? memchr(open, ')', (size_t)(end - open)) : NULL;
    bool place = close != NULL && close > open + 1 && close + 1 < end && close[1] == ':';
    for (const char *p = open; place && ++p < close;)
        place = isdigit((unsigned char)*p) != 0;
    if (place) {
        text_add(out, line, (size_t)(open - line));
        text_add(out, ":", 1);
        text_add(out, open + 1, (size_t)(close - open) - 1);
        line = close + 1;
    }
    text_add(out, line, (size_t)(end - line));
    text_add(out, "\n", 1);
}

char *ptxas_log_messages(struct arena *arena, const char *log)
{
    struct text out = {0};
    for (const char *line = log; *line != '\0';) {
        const char *end = line_end(line);
        bool info = strncmp(line, "ptxas info", 10) == 0 || strncmp(line, "ptxas   ", 8) == 0 ||
                    strncmp(line, "Remark: The warnings can be", 27) == 0;
        if (!info && (end > line || out.size > 0))
            add_line(&out, line, end);
        line = *end != '\0' ? end + 1 : end;
    }
    while (out.size > 0 && out.data[out.size - 1] == '\n')
        out.data[--out.size] = '\0';
    char *text = out.size > 0 ? arena_string(arena, out.data) : NULL;
    text_free(&out);
    return text;
}

const char *ptxas_log_gate(struct arena *arena, const struct variant *variant,
                           const struct report *report)
{
    const struct arch *arch = variant->arch;
    if (report->spill_stores > 0 || report->spill_loads > 0)
        return arena_printf(arena, "spills registers: %d bytes stored, %d bytes loaded",
                            report->spill_stores, report->spill_loads);
    if (report->stack > 0)
        return arena_printf(arena, "uses local memory: a stack frame of %d bytes", report->stack);
    if (report->serialized)
        return "ptxas serialized its wgmma instructions (C75xx)";
    if (report->shared_static + variant->shared > arch->shared_per_block)
        return arena_printf(arena,
                            "needs %d bytes of shared memory (%d static, %d dynamic), %s allows %d",
                            report->shared_static + variant->shared, report->shared_static,
                            variant->shared, arch->name, arch->shared_per_block);
    if (report->registers > variant->max_registers)
        return arena_printf(arena, "uses %d registers, its plan allows %d", report->registers,
                            variant->max_registers);
    /* Registers are given to warps in units of eight a thread. */
    int block = (report->registers + 7) / 8 * 8 * variant->threads;
    if (block > arch->registers_per_sm)
        return arena_printf(arena, "a block needs %d registers, an SM of %s has %d", block,
                            arch->name, arch->registers_per_sm);
    return NULL;
}
