/*
 * The catalog: every variant with its static facts as a text file that is
 * committed and reviewed, and the comparison of a catalog or product with what
 * the templates say now.
 */
#ifndef CATALOG_H
#define CATALOG_H

#include "spec/model.h"

/* Appends the catalog of session->variants (built or refused). */
void catalog_make(struct session *session, const char *toolkit, struct text *out);

/* What is known of a variant without compiling it. */
enum planned {
    PLANNED_FAMILY,
    PLANNED_REQUIRED,
    PLANNED_TARGET,
    PLANNED_AXES,
    PLANNED_THREADS,
    PLANNED_SHARED,
    PLANNED_CLUSTER,
    PLANNED_FALLBACK,
    PLANNED_SYMBOL,
    PLANNED_VALUES, /* of the required key, with the axes' names */
    PLANNED_FACTS,  /* likewise */
    NUM_PLANNED
};

extern const char *const planned_names[NUM_PLANNED];

struct catalog_row {
    const char *name;
    const char *line, *reason; /* the row of a built variant; why one is refused */
    uint64_t source_digest;
    uint64_t code_digest;             /* 0: not known */
    const char *planned[NUM_PLANNED]; /* NULL: the file does not say */
    bool seen;
};

/* What the templates say now. */
void catalog_plan(struct session *session, const struct variant *variant,
                  const char *planned[NUM_PLANNED]);

struct catalog {
    const char *path;
    struct catalog_row *rows; /* sorted by name; refused variants too */
    size_t count;
    /* How it was chosen; NULL where it does not say. */
    const char *families, *targets, *only;
    const char *toolkit; /* that compiled it */
    bool full, line_info;
    bool partial; /* chosen by a table: missing rows are no mistake */
};

/* Is there such a file, of this format? */
bool catalog_is_current(struct session *session, const char *path);
/* Damaged files are failures. */
void catalog_read(struct session *session, const char *path, struct catalog *catalog);
/* Gives variants that are neither compiled nor refused yet their rows of the catalog, where source
 * and plan are the same and so is the toolkit; returns how many. They have no image. */
size_t catalog_keep(struct session *session, const struct catalog *catalog, const char *toolkit);
void catalog_read_product(struct session *session, const char *path, struct catalog *catalog);

#endif /* CATALOG_H */
