/*
 * problems.h - lists of problems: shape files, tuning grids, random ones.
 * Families are known through their descriptors alone.
 */
#ifndef BENCH_PROBLEMS_H
#define BENCH_PROBLEMS_H

#include "family/family.h"
#include "common/problem_text.h"
#include "common/util.h"

/* One problem and how a file names it. */
struct shape {
    const struct gen__family *family;
    gen_problem *problem; /* family->problem_size bytes */
    struct gen__key key;
    char name[64];     /* case name */
    char note[128];    /* the line's comment: the model it comes from */
    char controls[64]; /* words that start with '@' */
    char where[160];   /* "file:line" or "grid" */
};

struct shape_list {
    struct shape *item;
    size_t count, capacity;
};

/* How long to rest before a sample where `ms` is asked for: problems that the tensor cores bound,
 * which the board's power limit slows down, do; what the memory bounds runs on: 0. */
double shape_rest_ms(const struct shape *shape, long ms);

/* Appends a copy of a problem that has passed check(). */
struct shape *shapes_add(struct shape_list *list, const struct gen__family *family,
                         const gen_problem *problem);
void shapes_free(struct shape_list *list);
/* Whether two problems are of one family and required key. */
bool shapes_same_key(const struct shape *a, const struct shape *b);
/* The first of a list with the required key of `shape`; NULL if there is none. */
const struct shape *shapes_of_key(const struct shape_list *list, const struct shape *shape);

/* What a list is for: which words that start with '@' its lines may hold. */
enum shape_use {
    /* Select, tune, bench; "<family>.txt". @scattered (shuffled slots), @serial
     * (GEN_SERIAL_LAUNCH) and @invariant (GEN_BATCH_INVARIANT), which the case's
     * name shows, and @name=NAME, which names the case instead of its problem. */
    SHAPES_TIMED,
    /* Verify; "<family>_verify.txt". @pad, @nan, @poison, @tiny, @invariant, @steps=N, @form=NAME
     * with a name of the family's and @data=KIND where the family has such, see verify/verify.h. */
    SHAPES_VERIFIED
};

/* Parses words "key=value ... @control" into a new entry; a wrong one leaves the
 * list alone, returns false and has gen_last_error() say why. */
bool shapes_parse(struct shape_list *list, const struct gen__family *family, enum shape_use use,
                  const char *words);

/* Reads a file of one problem a line ('#' starts a comment). Returns the number
 * of bad lines, each warned about with file and line; -1 if it cannot be read. */
int shapes_read(struct shape_list *list, const struct gen__family *family, enum shape_use use,
                const char *path);

/* The family's file of the bench/shapes folder. */
int shapes_read_default(struct shape_list *list, const struct gen__family *family,
                        enum shape_use use);

/* Either (path NULL: the family's own file); dies with status 1 if it cannot be
 * read, has a bad line or holds no problem. */
void shapes_load(struct shape_list *list, const struct gen__family *family, enum shape_use use,
                 const char *path);

/* Sets a field from text as in a problem line ("bf16", "128"), and with it those
 * behind it that are the same unless named; false if the family has no such field
 * or value. */
bool problem_set(const struct gen__family *family, gen_problem *problem, const char *field,
                 const char *value);

/* One problem of each combination of required values that the family's fields
 * can spell, made from `base`. */
void shapes_each_key(struct shape_list *list, const struct gen__family *family,
                     const gen_problem *base);

/* Half-octaves of every coordinate between the least and the greatest found in
 * `shapes`, for every required key; each made from the entry of `shapes` that
 * comes closest by changing one numeric field. */
void shapes_grid(struct shape_list *grid, const struct shape_list *shapes,
                 const struct gen__family *family);

/* Adds the problem at the coordinates `coords`, as coords_format() writes them, of the required key
 * of `keyed`, made as those of a grid; false if there is none just there or the list has it. */
bool shapes_at(struct shape_list *list, const struct shape_list *shapes, const struct shape *keyed,
               const char *coords);

/* `count` random problems within the ranges that `shapes` spans, all required
 * keys, none with coordinates of an entry of `avoid`, none that moves more than 2 GB. */
void shapes_random(struct shape_list *out, const struct shape_list *shapes,
                   const struct shape_list *avoid, const struct gen__family *family, size_t count,
                   uint64_t seed);

/* "states=4096", as tuning tables name a bucket. */
void coords_format(const struct gen__family *family, const struct gen__key *key, char *text,
                   size_t capacity);

/* The families named by `list` (names or globs; empty: all). Dies if one of
 * them names nothing. Returns the number put into `out`. */
uint32_t families_named(const struct option_list *list, const struct gen__family **out,
                        uint32_t capacity);

#endif /* BENCH_PROBLEMS_H */
