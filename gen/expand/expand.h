/*
 * Template expansion: a template becomes one Lua chunk, a line of it one Lua
 * line; running the chunk in a variant's environment writes CUDA C.
 */
#ifndef EXPAND_H
#define EXPAND_H

#include "spec/model.h"

/* Translates the template's text into a chunk (t->chunk). Mistakes in the
 * template are failures that cite its line. */
void expand_translate(struct session *session, struct template *t);

/* Fills variant->source. Without `line_directives` there are no #line lines. */
void expand_variant(struct session *session, struct variant *variant, bool line_directives);

#endif /* EXPAND_H */
