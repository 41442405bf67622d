#include "expand/source.h"

#include "expand/expand.h"
#include "expand/includes.h"
#include "util/error.h"
#include "util/file.h"
#include "options.h"
#include "expand/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- templates ------------------------------------------------------------------ */

static void split_lines(struct session *session, struct template *t)
{
    int count = 0;
    for (size_t i = 0; i < t->size; i++)
        count += t->text[i] == '\n';
    if (t->size > 0 && t->text[t->size - 1] != '\n')
        count++;
    t->num_lines = count;
    t->lines = arena_alloc(&session->arena, ((size_t)count + 1) * sizeof *t->lines);
    const char *p = t->text, *end = t->text + t->size;
    for (int i = 0; i < count; i++) {
        t->lines[i] = p;
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        p = newline != NULL ? newline + 1 : end;
    }
    t->lines[count] = end;
}

const struct template *source_template(struct session *session, const char *path,
                                       const struct family *family)
{
    for (size_t i = 0; i < session->num_sources; i++)
        if (strcmp(session->sources[i]->path, path) == 0)
            return session->sources[i];
    struct template *t = arena_alloc(&session->arena, sizeof *t);
    t->path = path;
    const char *file = arena_printf(&session->arena, "%s/%s", session->templates, path);
    t->text = file_read(&session->arena, file, &t->size);
    if (t->text == NULL)
        fail(session, "%s: the template %s, which it names, cannot be read: %s", family->path, file,
             strerror(errno));
    const char *nul = memchr(t->text, '\0', t->size);
    split_lines(session, t);
    if (nul != NULL) {
        int line = 1;
        for (const char *p = t->text; p < nul; p++)
            line += *p == '\n';
        fail(session, "%s:%d: a NUL byte; allowed: text", path, line);
    }
    expand_translate(session, t);
    session->sources = arena_grow(&session->arena, session->sources, session->num_sources,
                                  session->num_sources + 1, sizeof(struct template *));
    session->sources[session->num_sources++] = t;
    return t;
}

/* ---- headers -------------------------------------------------------------------- */

struct header_list {
    const struct header **items;
    size_t count, capacity;
};

static void add_header(struct session *session, struct header_list *list,
                       const struct header *header)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i] == header)
            return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? 2 * list->capacity : 8;
        list->items = arena_grow(&session->arena, list->items, list->count, capacity,
                                 sizeof(struct header *));
        list->capacity = capacity;
    }
    list->items[list->count++] = header;
}

static const struct header *find_header(struct session *session, const char *name, size_t size);

static const char allowed[] = "allowed: #include \"FILE\" with a file below the templates folder, "
                              "as \"lib/x.cuh\", or <FILE>, in a line by itself";

bool source_leads_out(const char *name, size_t size)
{
    if (name[0] == '/')
        return true;
    for (size_t i = 0; i < size;) {
        size_t part = 0;
        while (i + part < size && name[i + part] != '/')
            part++;
        if (part == 2 && name[i] == '.' && name[i + 1] == '.')
            return true;
        i += part + 1;
    }
    return false;
}

/* The headers that the text of `path` names. A name that templates/ does not
 * have is the compiler's to judge: the line may be under an #if that it skips.
 * What the compiler would read and no digest would know is refused. */
static void scan_includes(struct session *session, const char *path, const char *text, size_t size,
                          struct header_list *list)
{
    struct includes includes;
    struct include found;
    includes_begin(&includes, text, size);
    while (includes_next(&includes, &found)) {
        const char *why = found.refusal;
        if (why == NULL && source_leads_out(found.name, found.name_size))
            why = "its path leads out of the templates folder";
        if (why != NULL)
            fail(session, "%s:%d: %.*s: %s; %s", path, found.line,
                 (int)(found.size < 200 ? found.size : 200), found.text, why, allowed);
        const struct header *header = find_header(session, found.name, found.name_size);
        if (header != NULL)
            add_header(session, list, header);
    }
}

static void hash_text(const char *name, const char *text, size_t size,
                      unsigned char digest[HASH_BYTES])
{
    struct hash hash;
    hash_begin(&hash);
    hash_string(&hash, name);
    hash_field(&hash, text, size);
    hash_end(&hash, digest);
}

static char *room_for_tokens(struct session *session, size_t size)
{
    if (session->tokens_room < size + 2) {
        session->tokens_room = 2 * size + 2;
        session->tokens = arena_alloc(&session->arena, session->tokens_room);
    }
    return session->tokens;
}

static const struct header *find_header(struct session *session, const char *name, size_t size)
{
    for (size_t i = 0; i < session->num_headers; i++)
        if (strncmp(session->headers[i]->name, name, size) == 0 &&
            session->headers[i]->name[size] == '\0')
            return session->headers[i]->text != NULL ? session->headers[i] : NULL;
    struct header *header = arena_alloc(&session->arena, sizeof *header);
    header->name = arena_copy(&session->arena, name, size);
    session->headers = arena_grow(&session->arena, session->headers, session->num_headers,
                                  session->num_headers + 1, sizeof(struct header *));
    session->headers[session->num_headers++] = header;
    const char *path = arena_printf(&session->arena, "%s/%s", session->templates, header->name);
    header->text = file_read(&session->arena, path, &header->size);
    if (header->text == NULL)
        return NULL;
    hash_text(header->name, header->text, header->size, header->digest);
    char *tokens = room_for_tokens(session, header->size);
    size_t tokens_size;
    header->plain = tokens_of(header->text, header->size, tokens, &tokens_size);
    hash_text(header->name, tokens, tokens_size, header->meaning);
    struct header_list list = {0};
    scan_includes(session, header->name, header->text, header->size, &list);
    header->includes = list.items;
    header->num_includes = list.count;
    return header;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct header *const *)a)->name, (*(struct header *const *)b)->name);
}

void source_digest(struct session *session, struct variant *variant, const char *options)
{
    struct header_list list = {0};
    scan_includes(session, variant->template->path, variant->source, variant->source_size, &list);
    for (size_t i = 0; i < list.count; i++) /* grows as it goes */
        for (size_t j = 0; j < list.items[i]->num_includes; j++)
            add_header(session, &list, list.items[i]->includes[j]);
    if (list.count > 0)
        qsort(list.items, list.count, sizeof(struct header *), by_name);
    variant->headers = list.items;
    variant->num_headers = list.count;

    /* The image depends on the text, with --line-info down to the lines: that is the cache's key.
     * What was measured depends on what the code does: its digest is that of the tokens. */
    char *tokens = room_for_tokens(session, variant->source_size);
    size_t size;
    bool plain = tokens_of(variant->source, variant->source_size, tokens, &size);
    for (size_t i = 0; i < list.count; i++)
        plain = plain && list.items[i]->plain;
    plain = plain && !session->options->line_info;
    struct hash key, meaning;
    unsigned char digest[HASH_BYTES];
    hash_begin(&key);
    hash_begin(&meaning);
    hash_string(&key, options);
    hash_string(&meaning, options);
    for (size_t i = 0; i < list.count; i++) {
        const struct header *header = list.items[i];
        hash_add(&key, header->digest, HASH_BYTES);
        hash_add(&meaning, plain ? header->meaning : header->digest, HASH_BYTES);
    }
    hash_field(&key, variant->source, variant->source_size);
    hash_field(&meaning, plain ? tokens : variant->source, plain ? size : variant->source_size);
    hash_end(&key, variant->key);
    hash_end(&meaning, digest);
    variant->source_digest = hash_short(digest);
}
