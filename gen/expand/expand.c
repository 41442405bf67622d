#include "expand/expand.h"

#include "util/error.h"
#include "expand/source.h"
#include "spec/spec.h"

#include <ctype.h>
#include <lauxlib.h>
#include <string.h>

/* ---- from template text to a Lua chunk ------------------------------------------ */

/* The first character after `$ ` of a Lua line, or NULL for a line of text. */
static const char *directive(const char *line, const char *end)
{
    const char *p = line;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    if (p == end || *p != '$')
        return NULL;
    p++;
    /* Editors strip trailing blanks: `$` alone is an empty Lua line. */
    if (p == end || *p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
        return p;
    return NULL;
}

static const char *skip_long_bracket(const char *p, const char *end)
{
    const char *q = p + 1;
    while (q < end && *q == '=')
        q++;
    if (q == end || *q != '[')
        return p + 1;
    size_t level = (size_t)(q - p) - 1;
    for (q++; q + level + 1 < end; q++) {
        size_t n = 0;
        if (*q != ']')
            continue;
        while (n < level && q[1 + n] == '=')
            n++;
        if (n == level && q[1 + n] == ']')
            return q + level + 2;
    }
    return end;
}

static const char *skip_quoted(const char *p, const char *end)
{
    char quote = *p++;
    while (p < end && *p != quote)
        p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end ? p + 1 : end;
}

/* From the character after `${` to the matching `}`; NULL if there is none. */
static const char *expression_end(const char *p, const char *end)
{
    int depth = 0;
    while (p < end) {
        if (*p == '}' && depth == 0)
            return p;
        depth += (*p == '{') - (*p == '}');
        if (*p == '"' || *p == '\'')
            p = skip_quoted(p, end);
        else if (*p == '[')
            p = skip_long_bracket(p, end);
        else
            p++;
    }
    return NULL;
}

static const char *find_expression(const char *p, const char *end)
{
    for (; p + 1 < end; p++)
        if (p[0] == '$' && p[1] == '{')
            return p;
    return NULL;
}

static void add_quoted(struct text *lua, const char *p, const char *end)
{
    text_add(lua, "\"", 1);
    for (; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            text_printf(lua, "\\%c", c);
        else if (c < ' ' || c == 127)
            text_printf(lua, "\\%03d", c);
        else
            text_add(lua, p, 1);
    }
    text_add(lua, "\"", 1);
}

/* An expression must be one by itself, also within parentheses: `a)..(b` and
 * `x -- y` are not. */
static void check_expression(struct session *session, const struct template *t, int line,
                             const char *p, size_t size)
{
    static const char *const around[2][2] = {{"", ""}, {"(", ")"}};
    size_t blank = 0;
    while (blank < size && isspace((unsigned char)p[blank]))
        blank++;
    if (blank == size)
        fail(session, "%s:%d: ${} is empty; allowed: ${expression}", t->path, line);
    for (int i = 0; i < 2; i++) {
        char *chunk = arena_printf(&session->arena, "return %s%.*s%s", around[i][0], (int)size, p,
                                   around[i][1]);
        if (luaL_loadbufferx(session->L, chunk, strlen(chunk), "=x", "t") != LUA_OK) {
            const char *message = syntax_message(session);
            const char *colon = strstr(message, ": ");
            fail(session, "%s:%d: ${%.*s} is no Lua expression: %s", t->path, line, (int)size, p,
                 colon != NULL ? colon + 2 : message);
        }
        lua_pop(session->L, 1);
    }
}

/* `;line(N, "text", (expr), "text", ...)` */
static void translate_line(struct session *session, const struct template *t, int line,
                           struct text *lua)
{
    const char *p = t->lines[line - 1], *end = t->lines[line];
    const char *stop = end > p && end[-1] == '\n' ? end - 1 : end;
    text_printf(lua, ";_line_(%d", line);
    const char *dollar;
    while ((dollar = find_expression(p, stop)) != NULL) {
        const char *close = expression_end(dollar + 2, stop);
        if (close == NULL)
            fail(session, "%s:%d: '${' without its '}' on the same line", t->path, line);
        check_expression(session, t, line, dollar + 2, (size_t)(close - dollar) - 2);
        text_string(lua, ",");
        add_quoted(lua, p, dollar);
        text_string(lua, ",(");
        text_add(lua, dollar + 2, (size_t)(close - dollar) - 2);
        text_string(lua, ")");
        p = close + 1;
    }
    text_string(lua, ",");
    add_quoted(lua, p, stop);
    text_string(lua, ")");
}

static bool is_plain(const struct template *t, int line)
{
    const char *p = t->lines[line - 1], *end = t->lines[line];
    return directive(p, end) == NULL && find_expression(p, end) == NULL;
}

void expand_translate(struct session *session, struct template *t)
{
    struct text *lua = &session->output;
    lua->size = 0;
    text_string(lua, "local _text_,_line_=...");
    for (int line = 1; line <= t->num_lines; line++) {
        const char *p = t->lines[line - 1], *end = t->lines[line];
        const char *code = directive(p, end);
        if (code != NULL) {
            const char *stop = end > code && end[-1] == '\n' ? end - 1 : end;
            t->num_directives++;
            text_string(lua, " ");
            text_add(lua, code, (size_t)(stop - code));
        } else if (!is_plain(t, line)) {
            translate_line(session, t, line, lua);
        } else {
            /* A run of plain lines is one call; its other lines stay empty. */
            int first = line;
            while (line < t->num_lines && is_plain(t, line + 1))
                line++;
            text_printf(lua, ";_text_(%d,%d)", first, line);
            for (int i = first; i < line; i++)
                text_string(lua, "\n");
        }
        text_string(lua, "\n");
    }
    load_user(session, lua->data, lua->size, t->path);
    t->chunk = luaL_ref(session->L, LUA_REGISTRYINDEX);
}

/* ---- running it ------------------------------------------------------------------- */

struct expansion {
    struct session *session;
    const struct template *t;
    struct text *out;
    int next; /* the template line that the compiler takes the next line for; 0: none */
    bool line_directives;
};

/* Before a line of the template is written: says to the compiler which it is,
 * where it would count otherwise, but never inside a macro. */
static void sync_line(struct expansion *x, int line)
{
    const struct text *out = x->out;
    bool continued = out->size >= 2 && out->data[out->size - 2] == '\\';
    if (x->next != line && x->line_directives && !continued) {
        text_printf(x->out, "#line %d \"" VIRTUAL_TEMPLATES "%s\"\n", line, x->t->path);
        x->next = line;
    }
}

/* Sources have some ten kilobytes; the compiler would take minutes for this. */
enum { MOST_OUTPUT = 16 << 20 };

static void add_output(struct expansion *x, int line, const char *data, size_t size)
{
    if (x->out->size > MOST_OUTPUT || size > MOST_OUTPUT - x->out->size)
        fail(x->session, "%s:%d: the source has more than %d bytes: an endless loop?", x->t->path,
             line, (int)MOST_OUTPUT);
    text_add(x->out, data, size);
}

static void end_line(struct expansion *x, int line)
{
    if (x->out->size > 0 && x->out->data[x->out->size - 1] != '\n')
        add_output(x, line, "\n", 1);
}

/* The functions that write are values like others, which a template may call
 * with numbers of its own and a family may keep: both are refused here. */
static struct expansion *running_expansion(lua_State *L)
{
    struct expansion *x = (*(struct session **)lua_getextraspace(L))->expansion;
    if (x == NULL)
        luaL_error(L, "a line of a template is written while no template is expanded");
    return x;
}

static int check_line(lua_State *L, const struct expansion *x, int argument, int least)
{
    lua_Integer line = luaL_checkinteger(L, argument);
    if (line < least || line > x->t->num_lines)
        luaL_error(L, "line %I is written; allowed: %d to %d", (LUAI_UACINT)line, least,
                   x->t->num_lines);
    return (int)line;
}

static int emit_text(lua_State *L)
{
    struct expansion *x = running_expansion(L);
    int line = check_line(L, x, 1, 1), last = check_line(L, x, 2, line);
    for (; line <= last; line++) {
        sync_line(x, line);
        if (x->next == line) { /* so are the lines that follow */
            add_output(x, line, x->t->lines[line - 1],
                       (size_t)(x->t->lines[last] - x->t->lines[line - 1]));
            x->next += last - line + 1;
            break;
        }
        add_output(x, line, x->t->lines[line - 1],
                   (size_t)(x->t->lines[line] - x->t->lines[line - 1]));
        x->next++;
    }
    end_line(x, last);
    return 0;
}

/* The text of expression `index` (from 0) of a line; "?" where the line has fewer. */
static const char *expression_text(struct expansion *x, int line, int index, int *size)
{
    const char *p = x->t->lines[line - 1], *end = x->t->lines[line];
    for (;;) {
        p = find_expression(p, end);
        const char *close = p != NULL ? expression_end(p + 2, end) : NULL;
        if (close == NULL) {
            *size = 1;
            return "?";
        }
        if (index-- == 0) {
            *size = (int)(close - p) - 2;
            return p + 2;
        }
        p = close + 1;
    }
}

static _Noreturn void wrong_value(struct expansion *x, lua_State *L, int line, int argument)
{
    int size;
    const char *text = expression_text(x, line, (argument - 3) / 2, &size);
    if (lua_type(L, argument) == LUA_TNUMBER)
        fail(x->session,
             "%s:%d: ${%.*s} is the float %s; allowed: strings and integers: use // for a whole "
             "quotient, f32(x) for a float literal",
             x->t->path, line, size, text, luaL_tolstring(L, argument, NULL));
    fail(x->session, "%s:%d: ${%.*s} is a %s; allowed: strings and integers", x->t->path, line,
         size, text, luaL_typename(L, argument));
}

static int emit_line(lua_State *L)
{
    struct expansion *x = running_expansion(L);
    int line = check_line(L, x, 1, 1), top = lua_gettop(L);
    for (int i = 2; i <= top; i++)
        if (lua_type(L, i) != LUA_TSTRING && !lua_isinteger(L, i))
            wrong_value(x, L, line, i);
    sync_line(x, line);
    size_t start = x->out->size;
    for (int i = 2; i <= top; i++) {
        size_t size;
        const char *data = lua_tolstring(L, i, &size);
        if (memchr(data, '\0', size) != NULL)
            fail(x->session, "%s:%d: a value holds a NUL byte; allowed: text", x->t->path, line);
        add_output(x, line, data, size);
    }
    add_output(x, line, "\n", 1);
    for (size_t i = start; i < x->out->size; i++)
        x->next += x->out->data[i] == '\n';
    return 0;
}

void expand_variant(struct session *session, struct variant *variant, bool line_directives)
{
    lua_State *L = session->L;
    const struct template *t = variant->template;
    struct expansion x = {
        .session = session, .t = t, .out = &session->output, .line_directives = line_directives};
    session->output.size = 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, t->chunk);
    spec_push_environment(session, variant);
    lua_setupvalue(L, -2, 1);
    lua_pushcfunction(L, emit_text);
    lua_pushcfunction(L, emit_line);
    session->expansion = &x;
    call_user(session, 2, 0, t->path, 50000000, NULL);
    session->expansion = NULL;
    variant->source = arena_copy(&session->arena, x.out->data, x.out->size);
    variant->source_size = x.out->size;
}
