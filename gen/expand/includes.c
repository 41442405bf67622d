#include "expand/includes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A line, physical (it ends at its newline) or joined (with those that a backslash at
 * its end continues it by). The compiler sees joined lines; which backslashes join, with
 * blanks behind them or as the trigraph ??/, differs between compilers, so both are read. */
struct cursor {
    const char *at, *end;
    bool joined;
    bool spliced; /* a joint was passed */
};

/* The size of a joint of lines at p, or 0. */
static size_t joint(const char *p, const char *end)
{
    const char *q = p;
    if (*q == '\\')
        q++;
    else if (end - q >= 3 && memcmp(q, "?\?/", 3) == 0)
        q += 3;
    else
        return 0;
    while (q < end && (*q == ' ' || *q == '\t' || *q == '\r'))
        q++;
    return q < end && *q == '\n' ? (size_t)(q + 1 - p) : 0;
}

/* The next character without taking it; -1 at the line's end. */
static int peek(struct cursor *c)
{
    while (c->joined && c->at < c->end) {
        size_t size = joint(c->at, c->end);
        if (size == 0)
            break;
        c->at += size;
        c->spliced = true;
    }
    if (c->at >= c->end || *c->at == '\n')
        return -1;
    return (unsigned char)*c->at;
}

static int take(struct cursor *c)
{
    int next = peek(c);
    if (next >= 0)
        c->at++;
    return next;
}

static void skip_blanks(struct cursor *c)
{
    while (peek(c) == ' ' || peek(c) == '\t' || peek(c) == '\r' || peek(c) == '\f' ||
           peek(c) == '\v')
        c->at++;
}

/* Blanks and comments; false where a comment does not end in the line. */
static bool skip_comments(struct cursor *c, bool *any)
{
    for (;;) {
        skip_blanks(c);
        struct cursor start = *c;
        if (take(c) != '/' || take(c) != '*') {
            *c = start;
            return true;
        }
        *any = true;
        int before = 0, next;
        while ((next = take(c)) >= 0 && !(before == '*' && next == '/'))
            before = next;
        if (next < 0)
            return false;
    }
}

/* A directive's name, cut to what is of interest. */
static void read_word(struct cursor *c, char word[16])
{
    size_t size = 0;
    int next;
    while ((next = peek(c)) >= 0 && (isalnum(next) || next == '_')) {
        if (size < 15)
            word[size++] = (char)next;
        c->at++;
    }
    word[size] = '\0';
}

static bool refuse(struct include *found, const char *why)
{
    found->refusal = why;
    return true;
}

static bool scan_line(struct cursor *c, struct include *found);

static bool read_name(struct cursor *c, struct include *found)
{
    struct include second;
    skip_blanks(c);
    int open = take(c), close = open == '<' ? '>' : '"', next;
    if (open != '"' && open != '<')
        return refuse(found, "its file is not named in it");
    const char *name = c->at;
    while ((next = take(c)) >= 0 && next != close)
        continue;
    if (next < 0)
        return refuse(found, "its file's name does not end in the line");
    if (c->spliced)
        return refuse(found, "a line's end is within it");
    found->name = name;
    found->name_size = (size_t)(c->at - 1 - name);
    if (found->name_size == 0)
        return refuse(found, "its file has no name");
    return !scan_line(c, &second) || refuse(found, "another follows in its line");
}

/* After the # of a directive. `plain`: nothing but blanks is before it, and it is
 * spelled so. True if it is one that includes. */
static bool read_directive(struct cursor *c, bool plain, struct include *found)
{
    char word[16];
    bool comments = false;
    if (!skip_comments(c, &comments))
        return refuse(found, "a comment within the directive does not end in its line");
    read_word(c, word);
    if (strcmp(word, "include_next") == 0 || strcmp(word, "import") == 0 ||
        strcmp(word, "embed") == 0)
        return refuse(found, "the directive is not #include");
    if (strcmp(word, "include") != 0)
        return false;
    if (!plain)
        return refuse(found, "its # is spelled otherwise, or not the first of its line");
    if (comments)
        return refuse(found, "a comment is within it");
    return read_name(c, found);
}

/* Whether a # is at c, in any spelling; takes it. */
static bool take_hash(struct cursor *c, bool *plain)
{
    static const char *const spellings[] = {"#", "%:", "?\?="};
    for (size_t i = 0; i < 3; i++) {
        struct cursor start = *c;
        const char *p = spellings[i];
        while (*p != '\0' && take(c) == (unsigned char)*p)
            p++;
        if (*p == '\0') {
            *plain = *plain && i == 0 && !c->spliced;
            return true;
        }
        *c = start;
    }
    return false;
}

/* Keeps the last letters of a line; whether they are an operator that looks for files. */
static bool looks_for_files(char last[16], int next)
{
    memmove(last, last + 1, 14);
    last[14] = (char)next;
    return (next == 'e' && memcmp(last + 2, "__has_include", 13) == 0) ||
           (next == 'd' && memcmp(last + 4, "__has_embed", 11) == 0);
}

static const char asks[] = "what it finds, no digest knows";

/* The first directive of a line that includes. Whether the line begins within a comment
 * is not known, so that one may follow on each end of a comment. */
static bool scan_line(struct cursor *c, struct include *found)
{
    char last[16] = {0};
    bool begins = true, plain = true;
    int before = 0, next;
    while ((next = peek(c)) >= 0) {
        bool is_plain = plain;
        if (begins && take_hash(c, &is_plain)) {
            if (read_directive(c, is_plain, found))
                return true;
            begins = false;
            before = 0;
            continue;
        }
        c->at++;
        if (before == '*' && next == '/') {
            begins = true;
            plain = false;
        } else if (!isspace(next)) {
            begins = false;
        }
        before = next;
        if (c->joined && looks_for_files(last, next))
            return refuse(found, asks);
    }
    return false;
}

/* `#line N`, as the expansion writes it: the next line's number. */
static void follow_line(struct includes *includes, const char *line, const char *end)
{
    if (end - line > 6 && memcmp(line, "#line ", 6) == 0 && isdigit((unsigned char)line[6]))
        includes->line = (int)strtol(line + 6, NULL, 10) - 1;
}

void includes_begin(struct includes *includes, const char *text, size_t size)
{
    *includes = (struct includes){.at = text,
                                  .end = text + size,
                                  .has = memmem(text, size, "__has_", 6),
                                  .digraphs = memmem(text, size, "%:", 2) != NULL ||
                                              memmem(text, size, "?\?", 2) != NULL};
}

static bool names_operator(struct includes *includes, const char *end)
{
    while (includes->has != NULL && includes->has < end) {
        const char *p = includes->has + 6;
        includes->has = memmem(p, (size_t)(includes->end - p), "__has_", 6);
        if ((end - p >= 7 && memcmp(p, "include", 7) == 0) ||
            (end - p >= 5 && memcmp(p, "embed", 5) == 0))
            return true;
    }
    return false;
}

bool includes_next(struct includes *includes, struct include *found)
{
    while (includes->at < includes->end) {
        const char *line = includes->at, *all = includes->end;
        const char *newline = memchr(line, '\n', (size_t)(all - line));
        const char *end = newline != NULL ? newline : all;
        includes->at = newline != NULL ? newline + 1 : all;
        includes->line++;
        const char *back = end;
        while (back > line && (back[-1] == ' ' || back[-1] == '\t' || back[-1] == '\r'))
            back--;
        bool joins = (back > line && back[-1] == '\\') ||
                     (back - line >= 3 && memcmp(back - 3, "?\?/", 3) == 0);
        bool first = joins && !includes->spliced;
        includes->spliced = joins;
        *found =
            (struct include){.text = line, .size = (size_t)(end - line), .line = includes->line};
        if (names_operator(includes, end))
            return refuse(found, asks);
        struct cursor joined = {.at = line, .end = all, .joined = true};
        if (first && scan_line(&joined, found) && found->refusal != NULL)
            return true;
        found->name = NULL;
        struct cursor physical = {.at = line, .end = end};
        if ((includes->digraphs || memchr(line, '#', (size_t)(end - line)) != NULL) &&
            scan_line(&physical, found))
            return true;
        follow_line(includes, line, end);
    }
    return false;
}
