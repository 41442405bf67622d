/*
 * The files under templates/: templates read and translated once, headers with
 * what they include, and the digest of a variant's whole source.
 */
#ifndef SOURCE_H
#define SOURCE_H

#include "spec/model.h"

/* Paths that the compiler sees; constant, so that images do not depend on where
 * the sources lie. */
#define VIRTUAL_TEMPLATES "/attngen/templates/"

/* The template at `path` below templates/, read on first use. `family` is who
 * asked for it. */
const struct template *source_template(struct session *session, const char *path,
                                       const struct family *family);

/* Whether a name leads out of the templates folder. */
bool source_leads_out(const char *name, size_t size);

/* Finds the headers that the variant's expanded source includes, directly or
 * not, and from them, the source and `options` the variant's digest. */
void source_digest(struct session *session, struct variant *variant, const char *options);

#endif /* SOURCE_H */
