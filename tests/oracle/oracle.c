/*
 * Holds selection to what it answered when the answers were recorded.
 *
 *     oracle record PRODUCT ANSWERS    asks every question and writes the answers
 *     oracle check PRODUCT ANSWERS     asks again and compares; exits with 1 where an answer
 * differs oracle show PRODUCT INDEX        prints one question and its answer now
 *
 * PRODUCT and ANSWERS are gzip files of this folder. A check demands the same status, rule,
 * variant of each launch, workspace, message and plan, and a predicted time within 0.2 %.
 */
#include "questions.h"

#include "format/product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_QUESTIONS 120000u
#define MAX_SHOWN 20
#define US_STEPS 1024.0 /* of an octave */
#define US_ALLOWED 3    /* of those: 0.2 % */
#define LAUNCHES 6      /* that a plan had room for when the answers were recorded */

/* What is kept of an answer. Of a failure the message, of a success the rest. */
struct answer {
    uint8_t status, why, num_launches;
    uint16_t variants[LAUNCHES]; /* UINT16_MAX: none */
    int16_t us;                  /* INT16_MIN: 0 */
    uint16_t plan;               /* hash of all else that is in it */
    uint32_t message;            /* hash of the text */
    uint64_t workspace;
};

static int16_t steps_of(float us)
{
    return us > 0.0f ? (int16_t)lrint(log2((double)us) * US_STEPS) : INT16_MIN;
}

static enum gen_status ask(const gen_library *library, const struct question *question,
                           gen_plan *plan)
{
    const gen_device *device = &question->device;
    const gen_problem *problem = &question->problem.base;
    gen_variant_info info = {.size = sizeof(info)};
    gen_library_info about = {.size = sizeof(about)};
    if (!question->named)
        return gen_select(library, device, problem, plan);
    const bool found = gen_select(library, device, problem, plan) == GEN_OK;
    gen_library_info_get(library, &about);
    const uint32_t first = found ? plan->launch[0].variant : 0;
    gen_variant_get(library, (first + question->variant) % about.num_variants, &info);
    memset(plan, 0x5a, sizeof(*plan));
    plan->size = sizeof(*plan);
    return gen_select_variant(library, device, problem, info.name, plan);
}

/* The answers were recorded of plans without a seal, and with fewer launches. */
static uint16_t hash_of(gen_plan *plan)
{
    enum {
        FIRST = offsetof(gen_plan, launch) + LAUNCHES * sizeof(gen_plan_launch),
        REST = offsetof(gen_plan, seal) - offsetof(gen_plan, wide)
    };
    char recorded[FIRST + REST];
    if (plan->num_launches > LAUNCHES) {
        fprintf(stderr, "oracle: a plan of %u launches\n", plan->num_launches);
        exit(1);
    }
    plan->size = sizeof(recorded);
    memcpy(recorded, plan, FIRST);
    memcpy(recorded + FIRST, plan->wide, REST);
    return (uint16_t)gen_pack_hash(recorded, sizeof(recorded));
}

static void make_answer(const gen_library *library, const struct question *question,
                        struct answer *answer)
{
    gen_plan plan = {.size = sizeof(plan)}, again = {.size = sizeof(again)};
    memset(answer, 0, sizeof(*answer));
    memset(&plan, 0x5a, sizeof(plan));
    plan.size = sizeof(plan);
    answer->status = (uint8_t)ask(library, question, &plan);
    if (answer->status) {
        /* But for the list of families, which grows. */
        const char *message = gen_last_error(), *list = strstr(message, ", this runtime knows");
        const size_t length = list ? (size_t)(list - message) : strlen(message);
        answer->message = (uint32_t)gen_pack_hash(message, length);
        memset(answer->variants, 0xff, sizeof(answer->variants));
        return;
    }
    /* Again, so often that the plan is one that was kept. */
    for (int i = 0; i < 2; i++) {
        memset(&again, 0xa5, sizeof(again));
        again.size = sizeof(again);
        if (ask(library, question, &again) != GEN_OK || memcmp(&plan, &again, sizeof(plan)) != 0) {
            fprintf(stderr, "oracle: the same question has two answers\n");
            exit(1);
        }
    }
    answer->why = (uint8_t)plan.why;
    answer->num_launches = (uint8_t)plan.num_launches;
    for (uint32_t i = 0; i < LAUNCHES; i++)
        answer->variants[i] = i < plan.num_launches ? (uint16_t)plan.launch[i].variant : UINT16_MAX;
    answer->us = steps_of(plan.predicted_us);
    answer->workspace = plan.workspace_bytes;
    plan.predicted_us = 0.0f;
    plan.library_digest = 0;
    answer->plan = hash_of(&plan);
}

/* ---- the file ---------------------------------------------------------- */

/* Columns compress better than rows. */
static void put_column(FILE *out, const struct answer *answers, size_t offset, size_t size)
{
    for (uint32_t i = 0; i < NUM_QUESTIONS; i++)
        fwrite((const char *)&answers[i] + offset, size, 1, out);
}

static const char *get_column(const char *at, struct answer *answers, size_t offset, size_t size)
{
    for (uint32_t i = 0; i < NUM_QUESTIONS; i++, at += size)
        memcpy((char *)&answers[i] + offset, at, size);
    return at;
}

#define COLUMNS(X)  \
    X(status)       \
    X(why)          \
    X(num_launches) \
    X(variants[0])  \
    X(variants[1])  \
    X(variants[2])  \
    X(variants[3]) X(variants[4]) X(variants[5]) X(us) X(plan) X(message) X(workspace)

static int write_answers(const char *path, const struct answer *answers)
{
    char command[1024];
    snprintf(command, sizeof(command), "gzip -9n > '%s'", path);
    FILE *out = popen(command, "w");
    if (!out)
        return 1;
#define PUT(field) put_column(out, answers, offsetof(struct answer, field), sizeof(answers->field));
    COLUMNS(PUT)
    return pclose(out) != 0;
}

static void read_answers(const char *path, struct answer *answers)
{
    size_t size, expected = 0;
    char *bytes = gunzip(path, &size);
    const char *at = bytes;
#define SIZE(field) expected += sizeof(answers->field);
    COLUMNS(SIZE)
    if (size != expected * NUM_QUESTIONS) {
        fprintf(stderr, "oracle: %s: %zu bytes, expected %zu\n", path, size,
                expected * NUM_QUESTIONS);
        exit(2);
    }
#define GET(field) \
    at = get_column(at, answers, offsetof(struct answer, field), sizeof(answers->field));
    COLUMNS(GET)
    free(bytes);
}

/* ---- comparing --------------------------------------------------------- */

enum difference { SAME, STATUS, MESSAGE, WHY, VARIANT, WORKSPACE, PLAN, TIME, NUM_DIFFERENCES };
static const char *const difference_names[NUM_DIFFERENCES] = {
    "same", "status", "message", "rule", "variant", "workspace", "plan", "predicted time"};

static enum difference compare(const struct answer *a, const struct answer *b)
{
    if (a->status != b->status)
        return STATUS;
    if (a->message != b->message)
        return MESSAGE;
    if (a->why != b->why)
        return WHY;
    if (memcmp(a->variants, b->variants, sizeof(a->variants)) != 0)
        return VARIANT;
    if (a->workspace != b->workspace)
        return WORKSPACE;
    if (a->plan != b->plan || a->num_launches != b->num_launches)
        return PLAN;
    return abs(a->us - b->us) > US_ALLOWED ? TIME : SAME;
}

static void print_answer(const gen_library *library, const char *head, const struct answer *a)
{
    printf("  %s: %s", head, gen_status_name((enum gen_status)a->status));
    if (a->status) {
        printf(", message %08x\n", a->message);
        return;
    }
    printf(", %s, %.3f us, workspace %llu, plan %04x\n", gen_why_string((enum gen_why)a->why),
           a->us == INT16_MIN ? 0.0 : exp2(a->us / US_STEPS), (unsigned long long)a->workspace,
           a->plan);
    for (uint32_t i = 0; i < a->num_launches; i++) {
        gen_variant_info info = {.size = sizeof(info)};
        if (gen_variant_get(library, a->variants[i], &info) == GEN_OK)
            printf("    launch %u: %s\n", i, info.name);
    }
}

static int check(const struct recorded *recorded, const gen_library *library, const char *path)
{
    struct answer *answers = calloc(NUM_QUESTIONS, sizeof(*answers)), now;
    uint32_t counts[NUM_DIFFERENCES] = {0}, shown = 0;
    if (!answers)
        return 2;
    read_answers(path, answers);
    for (uint32_t i = 0; i < NUM_QUESTIONS; i++) {
        struct question question;
        char text[1024];
        question_make(recorded, i, &question);
        make_answer(library, &question, &now);
        const enum difference difference = compare(&answers[i], &now);
        counts[difference]++;
        if (difference == SAME || shown++ >= MAX_SHOWN)
            continue;
        question_print(&question, text, sizeof(text));
        printf("question %u, another %s: %s\n", i, difference_names[difference], text);
        print_answer(library, "recorded", &answers[i]);
        print_answer(library, "now", &now);
        if (now.status)
            printf("  %s\n", gen_last_error());
    }
    free(answers);
    for (int d = 0; d < NUM_DIFFERENCES; d++)
        printf("%s %s: %u", d ? "," : "answers", difference_names[d], counts[d]);
    printf("\n");
    return counts[SAME] != NUM_QUESTIONS;
}

static int record(const struct recorded *recorded, const gen_library *library, const char *path)
{
    struct answer *answers = calloc(NUM_QUESTIONS, sizeof(*answers));
    uint32_t statuses[GEN_STATUS_COUNT] = {0}, rules[GEN_WHY_COUNT] = {0};
    if (!answers)
        return 2;
    for (uint32_t i = 0; i < NUM_QUESTIONS; i++) {
        struct question question;
        question_make(recorded, i, &question);
        make_answer(library, &question, &answers[i]);
        statuses[answers[i].status]++;
        rules[answers[i].why] += answers[i].status == 0;
    }
    for (int s = 0; s < GEN_STATUS_COUNT; s++)
        if (statuses[s])
            printf("%s: %u\n", gen_status_name((enum gen_status)s), statuses[s]);
    for (int w = 0; w < GEN_WHY_COUNT; w++)
        printf("%s: %u\n", gen_why_string((enum gen_why)w), rules[w]);
    const int failed = write_answers(path, answers);
    free(answers);
    return failed;
}

static int show(const struct recorded *recorded, const gen_library *library, uint32_t index)
{
    struct question question;
    struct answer answer;
    char text[1024], *explained = malloc(1u << 20);
    question_make(recorded, index, &question);
    question_print(&question, text, sizeof(text));
    make_answer(library, &question, &answer);
    printf("question %u: %s\n", index, text);
    print_answer(library, "now", &answer);
    if (answer.status)
        printf("  %s\n", gen_last_error());
    else if (explained && gen_explain(library, &question.device, &question.problem.base, explained,
                                      1u << 20, NULL) == GEN_OK)
        printf("%s", explained);
    free(explained);
    return 0;
}

int main(int argc, char **argv)
{
    struct recorded recorded;
    gen_library *library = NULL;
    gen_library_info info = {.size = sizeof(info)};
    int result = 2;
    if (argc != 4) {
        fprintf(stderr, "usage: oracle record|check|show PRODUCT ANSWERS|INDEX\n");
        return 2;
    }
    recorded_read(argv[2], &recorded);
    const gen_open_options options = {
        .size = sizeof(options), .data = recorded.bytes, .data_size = recorded.size};
    if (gen_open(&options, &library) != GEN_OK || gen_library_info_get(library, &info) != GEN_OK) {
        fprintf(stderr, "oracle: %s\n", gen_last_error());
        return 2;
    }
    printf("%u variants, %u rows, %u bad, %u expired, %u of PTX\n", info.num_variants,
           info.num_rows, info.num_rows_bad, info.num_rows_expired, info.num_rows_ptx);
    if (strcmp(argv[1], "record") == 0)
        result = record(&recorded, library, argv[3]);
    else if (strcmp(argv[1], "check") == 0)
        result = check(&recorded, library, argv[3]);
    else if (strcmp(argv[1], "show") == 0)
        result = show(&recorded, library, (uint32_t)strtoul(argv[3], NULL, 10));
    gen_close(library);
    recorded_free(&recorded);
    return result;
}
