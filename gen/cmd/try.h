/*
 * What the parts of `attngen try` share.
 */
#ifndef TRY_H
#define TRY_H

#include "cmd/commands.h"

struct trial {
    struct session *session;
    const char *folder;        /* to work in, of this run alone */
    const char *against;       /* the commit, or NULL: nothing */
    const char *old_templates; /* its templates, in the folder */
    bool both;                 /* the commit has such variants */
    const char *targets;       /* comma-separated */
    const char *globs[32];     /* of variants */
    size_t num_globs;
    const char *problem[32]; /* key=value */
    size_t num_problem;
};

/* Runs a program, found on PATH, to its end, with standard output into `output` (NULL: ours).
 * Returns its exit status; 128 and more where a signal ended it or it cannot be started. */
int try_program(struct trial *trial, const char *const *words, const char *output);
/* This program's file. */
const char *try_own_path(struct trial *trial);

/* Runs the tree's variants, on the GPU beside the commit's. Returns the exit status. */
int try_run(struct trial *trial);

#endif /* TRY_H */
