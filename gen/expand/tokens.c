#include "expand/tokens.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct scan {
    const char *at, *end;
    char *to, *start;
    bool directive; /* inside a line that begins with # */
    bool fresh;     /* nothing but blanks on this line so far */
    bool gap;       /* blanks or comments since the last token */
};

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* A backslash at the end of a line joins the next one. */
static size_t joint(const struct scan *s)
{
    if (s->at[0] != '\\')
        return 0;
    if (s->end - s->at >= 2 && s->at[1] == '\n')
        return 2;
    return s->end - s->at >= 3 && s->at[1] == '\r' && s->at[2] == '\n' ? 3 : 0;
}

static void skip_line_comment(struct scan *s)
{
    while (s->at < s->end && *s->at != '\n') {
        size_t skip = joint(s);
        s->at += skip > 0 ? skip : 1;
    }
}

static void skip_block_comment(struct scan *s)
{
    for (s->at += 2; s->at < s->end; s->at++)
        if (s->end - s->at >= 2 && s->at[0] == '*' && s->at[1] == '/') {
            s->at += 2;
            return;
        }
}

/* "#line" at the begin of a line, as the expansion writes it: where the text stands, not what it
 * says. */
static bool is_line_directive(const struct scan *s)
{
    const char *p = s->at + 1;
    while (p < s->end && (*p == ' ' || *p == '\t'))
        p++;
    return *s->at == '#' && s->end - p >= 5 && memcmp(p, "line ", 5) == 0;
}

static void new_line(struct scan *s)
{
    if (s->to > s->start && s->to[-1] != '\n')
        *s->to++ = '\n';
    s->gap = false;
}

/* Whether the output ends in a number, as the preprocessor reads one: with letters and points. */
static bool ends_in_number(const struct scan *s)
{
    const char *first = s->to;
    while (first > s->start && (is_name(first[-1]) || first[-1] == '.'))
        first--;
    return first < s->to && isdigit((unsigned char)*first);
}

/* Whether the last character and this one would make one token where blanks stand between them. */
static bool would_join(const struct scan *s, char c)
{
    static const char pairs[] = "++ -- << >> <= >= == != && || += -= *= /= %= &= |= ^= -> :: ## .* "
                                ".. // /* <: :> <% %> %:";
    const char last = s->to[-1], pair[] = {last, c, '\0'};
    const bool quotes = last == '"' || last == '\'', quote = c == '"' || c == '\'';
    if ((is_name(last) && (is_name(c) || quote)) || (quotes && is_name(c)))
        return true;
    if (ends_in_number(s) && (c == '.' || c == '\'' || (strchr("eEpP", last) && strchr("+-", c))))
        return true;
    if (last == '.' && isdigit((unsigned char)c))
        return true;
    if (last == '>' && c == '*' && s->to - s->start >= 2 && s->to[-2] == '-')
        return true;
    /* NAME(x) in a #define is another macro than NAME (x). */
    return strstr(pairs, pair) != NULL || (s->directive && c == '(');
}

static void put(struct scan *s, char c)
{
    if (s->fresh && c == '#') {
        new_line(s);
        s->directive = true;
    }
    if (s->gap && s->to > s->start && s->to[-1] != '\n' && would_join(s, c))
        *s->to++ = ' ';
    s->gap = s->fresh = false;
    *s->to++ = c;
}

/* A string or character, as it stands; false if it does not end on its line. */
static bool copy_literal(struct scan *s)
{
    const char quote = *s->at;
    put(s, *s->at++);
    while (s->at < s->end && *s->at != '\n') {
        const char c = *s->at++;
        *s->to++ = c;
        if (c == quote)
            return true;
        if (c == '\\' && s->at < s->end && *s->at != '\n')
            *s->to++ = *s->at++;
    }
    return false;
}

/* Whether a ' here is between the digits of a number. */
static bool in_number(const struct scan *s)
{
    const char *first = s->to;
    while (first > s->start && (is_name(first[-1]) || first[-1] == '\''))
        first--;
    return !s->gap && first < s->to && isdigit((unsigned char)*first) && s->end - s->at >= 2 &&
           isalnum((unsigned char)s->at[1]);
}

/* A step; false where the text is not one that this takes apart. */
static bool step(struct scan *s)
{
    const char c = *s->at;
    const size_t left = (size_t)(s->end - s->at), skip = joint(s);
    if (skip > 0) {
        s->at += skip;
    } else if (s->fresh && is_line_directive(s)) {
        while (s->at < s->end && *s->at != '\n')
            s->at++;
    } else if (left >= 2 && c == '/' && s->at[1] == '/') {
        skip_line_comment(s);
        s->gap = true;
    } else if (left >= 2 && c == '/' && s->at[1] == '*') {
        skip_block_comment(s);
        s->gap = true;
    } else if (c == '\n') {
        if (s->directive)
            new_line(s);
        s->directive = false;
        s->fresh = s->gap = true;
        s->at++;
    } else if (isspace((unsigned char)c)) {
        s->gap = true;
        s->at++;
    } else if (c == '"' || c == '\'') {
        char before = ' ';
        if (s->to > s->start && !s->gap)
            before = s->to[-1];
        if (c == '\'' && in_number(s)) {
            put(s, c);
            s->at++;
        } else {
            return !is_name(before) && copy_literal(s);
        }
    } else {
        put(s, c);
        s->at++;
    }
    return true;
}

/* Whether the code depends on where it stands: on __LINE__, or on assert(), though not on
 * static_assert(). */
static bool asks_for_lines(const char *text)
{
    static const char word[] = "assert";
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        if ((p == text || !is_name(p[-1])) && !is_name(p[sizeof word - 1]))
            return true;
    return strstr(text, "__LINE__") != NULL;
}

bool tokens_of(const char *text, size_t size, char *to, size_t *tokens)
{
    struct scan s = {.at = text, .end = text + size, .to = to, .start = to, .fresh = true};
    bool plain = memchr(text, '\0', size) == NULL;
    while (plain && s.at < s.end)
        plain = step(&s);
    *s.to = '\0';
    *tokens = (size_t)(s.to - to);
    return plain && !asks_for_lines(to);
}
