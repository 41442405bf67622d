/* Clusters of blocks: what goes between them, and that what kernels get wrong there is found. */
#include "test_emul.h"

#include <string.h>

#define BLOCKS (2 * CLUSTER_BLOCKS) /* two clusters */
#define WORDS 128
#define SHARED (4 * CLUSTER_OUT)

static unsigned out[BLOCKS][CLUSTER_OUT];
static unsigned in[CLUSTER_OUT / 2];
static unsigned char box[16][64];

static int run_cluster(int what, const char *mode)
{
    _Alignas(64) struct cluster_params p = {.in = in, .out = out[0], .what = what};
    const unsigned long long dims[] = {64, 16, 1, 1}, strides[] = {64, 1024, 1024};
    const unsigned size[] = {64, 16, 1, 1}, element[] = {1, 1, 1, 1};
    assert_int_equal(emul_tensor_map(p.map, 0, 4, box, dims, strides, size, element, 0, 0, 0), 0);
    memset(out, 0xee, sizeof out);
    return run("emul_cluster", mode, BLOCKS, CLUSTER_THREADS, SHARED, &p);
}

static unsigned value(unsigned block, unsigned i)
{
    return 1000 * block + i;
}

/* The block that is `distance` behind another in its cluster. */
static unsigned peer(unsigned block, unsigned distance)
{
    return block / CLUSTER_BLOCKS * CLUSTER_BLOCKS + (block + distance) % CLUSTER_BLOCKS;
}

/* Whether all that CLUSTER_EXCHANGE reads and is given is right. */
static int exchanged(void)
{
    for (unsigned b = 0; b < BLOCKS; b++) {
        const unsigned before = peer(b, CLUSTER_BLOCKS - 1);
        const unsigned tail[] = {b % CLUSTER_BLOCKS, CLUSTER_BLOCKS, 0};
        for (unsigned t = 0; t < WORDS; t++) {
            for (unsigned d = 0; d < CLUSTER_BLOCKS; d++)
                if (out[b][d * WORDS + t] != value(peer(b, d), WORDS - 1 - t))
                    return 0;
            if (out[b][4 * WORDS + t] != value(before, t) ||
                out[b][5 * WORDS + t] != value(before, t) ||
                out[b][6 * WORDS + t] != value(peer(b, 1), t) ||
                out[b][7 * WORDS + t] != tail[t < 2 ? t : 2])
                return 0;
        }
    }
    return 1;
}

static void check_data(const char *mode)
{
    if (run_cluster(CLUSTER_EXCHANGE, mode))
        fail_msg("%s: %s", mode, message);
    if (!exchanged())
        fail_msg("%s: blocks do not have each other's words", mode);
    if (run_cluster(CLUSTER_HANDSHAKE, mode))
        fail_msg("%s: %s", mode, message);
    for (unsigned b = 0; b < BLOCKS; b++)
        assert_int_equal(out[b][0], b % CLUSTER_BLOCKS
                                        ? b % CLUSTER_BLOCKS + (CLUSTER_ROUNDS - 1) * CLUSTER_BLOCKS
                                        : CLUSTER_ROUNDS * CLUSTER_BLOCKS);
    if (run_cluster(CLUSTER_COPY, mode))
        fail_msg("%s: %s", mode, message);
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned t = 0; t < WORDS; t++)
            assert_int_equal(out[b][t], value(peer(b, CLUSTER_BLOCKS - 1), t));
    if (run_cluster(CLUSTER_EXITS, mode))
        fail_msg("%s: %s", mode, message);
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned round = 0; round < 2; round++)
            for (unsigned t = 0; t < 64; t++)
                assert_int_equal(out[b][round * WORDS + t], value(peer(b, 1), t + round));
}

void test_cluster_data(void **state)
{
    (void)state;
    for (size_t m = 0; m < NUM_MODES; m++)
        check_data(modes[m]);
}

static void fill_sources(void)
{
    for (unsigned i = 0; i < CLUSTER_OUT / 2; i++)
        in[i] = 7 * i + 1;
    for (unsigned i = 0; i < sizeof box; i++)
        box[i / 64][i % 64] = (unsigned char)(i % 251);
}

/* Words to all four blocks, a box to blocks 1 and 3; the others' memory is as it began. */
static int multicasted(void)
{
    unsigned poison[256];
    int right = 1;
    memset(poison, 0xff, sizeof poison);
    for (unsigned b = 0; b < BLOCKS; b++)
        right =
            right && memcmp(out[b], in, sizeof in) == 0 &&
            memcmp(out[b] + CLUSTER_OUT / 2, b % 2 ? (const void *)box : poison, sizeof box) == 0;
    return right;
}

void test_cluster_multicast(void **state)
{
    (void)state;
    fill_sources();
    for (size_t m = 0; m < NUM_MODES; m++) {
        if (run_cluster(CLUSTER_MULTICAST, modes[m]))
            fail_msg("%s: %s", modes[m], message);
        if (!multicasted())
            fail_msg("%s: a copy to several blocks is not what they have", modes[m]);
    }
}

/* Clusters of 2 x 2 over a grid of 4 x 2, and grids that are no multiple of them. */
void test_cluster_shapes(void **state)
{
    unsigned got[16][4], *to = got[0];
    (void)state;
    for (size_t m = 0; m < NUM_MODES; m++) {
        memset(got, 0xee, sizeof got);
        if (run_grid("emul_cluster_static", modes[m], (struct emul_dim){4, 2, 1}, 32, 0, &to))
            fail_msg("%s: %s", modes[m], message);
        for (unsigned b = 0; b < 8; b++)
            for (unsigned rank = 0; rank < 4; rank++)
                assert_int_equal(got[b][rank], b % 4 / 2 * 2 + rank % 2 + 10 * (rank / 2));
    }
    assert_int_equal(run_grid("emul_cluster_static", "", (struct emul_dim){4, 3, 1}, 32, 0, &to),
                     -1);
    assert_string_equal(message, "a grid of 4 x 3 x 1 is no multiple of clusters of 2 x 2 x 1");
    struct cluster_params p = {.what = CLUSTER_EXITS};
    assert_int_equal(run("emul_cluster", "", 6, CLUSTER_THREADS, SHARED, &p), -1);
    assert_non_null(strstr(message, "6 x 1 x 1 is no multiple of clusters of 4 x 1 x 1"));
}

/* ---- what kernels get wrong ------------------------------------------------------------ */

/* What a mode makes of it: the right output (""), a wrong one (WRONG), or a message with this. */
#define RIGHT ""
#define WRONG "wrong"

struct expectation {
    enum cluster_what what;
    const char *name, *got[NUM_MODES]; /* in the order of `modes` */
};

/* Whether what CLUSTER_RUN_AHEAD reads is right. */
static int in_rounds(void)
{
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned i = 0; i < 2 * WORDS; i++)
            if (out[b][i] != value(peer(b, 1), i % WORDS + i / WORDS))
                return 0;
    return 1;
}

static int is_right(enum cluster_what what)
{
    return what == CLUSTER_RUN_AHEAD         ? in_rounds()
           : what == CLUSTER_MULTICAST_EARLY ? multicasted()
                                             : exchanged();
}

static void check_hazard(const struct expectation *e)
{
    for (size_t m = 0; m < NUM_MODES; m++) {
        const char *want = e->got[m], *got = message;
        if (!run_cluster((int)e->what, modes[m]))
            got = is_right(e->what) ? RIGHT : WRONG;
        if (strcmp(want, RIGHT) == 0 ? *got != '\0' : strstr(got, want) == NULL)
            fail_msg("%s in mode %s: '%s', not '%s'", e->name, modes[m], got, want);
    }
}

void test_cluster_hazards(void **state)
{
#define ALL(what)                                \
    {                                            \
        what, what, what, what, what, what, what \
    }
#define E(name, ...)                       \
    {                                      \
        CLUSTER_##name, #name, __VA_ARGS__ \
    }
    static const struct expectation all[] = {
        E(NO_BARRIER, ALL(WRONG)),
        E(RUN_AHEAD, {RIGHT, WRONG, RIGHT, RIGHT, WRONG, WRONG, WRONG}),
        E(LEAVE_EARLY, ALL("of the cluster, which has ended")),
        E(NOT_BEGUN, ALL("of the cluster, which may not have begun")),
        E(NO_ARRIVAL, ALL(", 0, 0) is stuck: threads 0-0: poll of 0x400 for parity 0: in phase 0, "
                          "1 of 1 arrivals and 0 bytes to come; threads 1-31: "
                          "barrier.cluster.arrive.aligned with lanes 0xffffffff; threads 32-127: "
                          "barrier.cluster.wait: 384 of 512 threads came;")),
        E(REMOTE_WAIT, ALL("mbarrier wait: shared address 0x2000400 is not of the block itself")),
        E(MULTICAST_EARLY, {RIGHT, "may not have begun", RIGHT, "may not have begun", "no mbarrier",
                            "may not have begun", "may not have begun"}),
        E(ARRIVE_TWICE, ALL("arrive: the thread has arrived and not waited since")),
        E(WAIT_ALONE, ALL("wait: the thread has not arrived")),
        E(DIVERGED, ALL(" of the warp are at ")),
        E(CTA_ADDRESS, ALL("it wants .shared::cluster")),
        E(OUTSIDE, ALL("4 bytes at shared address 0x1800, outside of the block's")),
        E(NO_SUCH_RANK, ALL("mapa: block 4 of a cluster of 4")),
        E(COPY_UNFENCED, ALL("no fence.proxy.async came between")),
        E(NO_MBARRIER, ALL("mbarrier.arrive: there is no mbarrier")),
    };
    (void)state;
    fill_sources();
    assert_int_equal(sizeof all / sizeof *all, CLUSTER_NO_MBARRIER - CLUSTER_NO_BARRIER + 1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_hazard(&all[i]);
#undef ALL
#undef E
}
