/*
 * An engine's start-up: for each batch size that it serves a plan and, on a GPU, a captured graph;
 * then steps, of which each replays the smallest graph that holds its requests. Rows without a
 * request have slot -1, so their states stay as they are.
 *
 *     engine [PRODUCT]
 *
 * On the CPU backend a step launches the plan itself. Each request counts its own steps: with q, k
 * and v of ones and no decay its state grows by 1 a step, so o is the number of its steps.
 */
#include "example.h"

#include <attngen/la_decode.h>

enum { HEADS = 2, DIM = 128, ROW = HEADS * DIM, SLOTS = 16, NUM_SIZES = 5, MOST = 16 };
static const int batch_sizes[NUM_SIZES] = {1, 2, 4, 8, MOST};

struct engine {
    gen_device device;
    gen_library *library;
    gen_plan plan[NUM_SIZES];
    cudaGraphExec_t graph[NUM_SIZES]; /* NULL on the CPU */
    cudaStream_t stream;
    gen_la_decode_args args;
    void *q, *o, *decay, *state, *slots, *workspace;
};

static void select_plans(struct engine *e)
{
    size_t workspace = 0;
    for (int i = 0; i < NUM_SIZES; i++) {
        const gen_la_decode_problem problem = {
            .base = {.size = sizeof problem, .family = GEN_LA_DECODE},
            .batch = batch_sizes[i],
            .num_qk_heads = HEADS,
            .num_v_heads = HEADS,
            .head_dim = DIM,
            .dtype = GEN_DTYPE_BF16,
            .state_layout = GEN_LA_STATE_VK};
        e->plan[i] = (gen_plan){.size = sizeof e->plan[i]};
        example_need(gen_select(e->library, &e->device, &problem.base, &e->plan[i]) == GEN_OK,
                     "gen_select");
        /* Kernels cannot be loaded while a stream is captured. */
        example_need(gen_preload(e->library, &e->plan[i]) == GEN_OK, "gen_preload");
        if (e->plan[i].workspace_bytes > workspace)
            workspace = e->plan[i].workspace_bytes;
    }
    /* Steps run one after the other, so one workspace serves all graphs. */
    e->workspace = example_memory(&e->device, workspace);
}

static void make_tensors(struct engine *e)
{
    uint16_t ones[MOST * ROW];
    for (int i = 0; i < MOST * ROW; i++)
        ones[i] = example_to_bf16(1.0f);
    e->q = example_memory(&e->device, sizeof ones);
    e->o = example_memory(&e->device, sizeof ones);
    e->decay = example_memory(&e->device, sizeof(float) * HEADS);
    e->state = example_memory(&e->device, sizeof(float) * SLOTS * HEADS * DIM * DIM);
    e->slots = example_memory(&e->device, sizeof(int32_t) * MOST);
    example_copy(e->q, ones, sizeof ones);
    e->args = (gen_la_decode_args){.base = {.size = sizeof e->args, .family = GEN_LA_DECODE},
                                   .q = e->q,
                                   .k = e->q,
                                   .v = e->q,
                                   .o = e->o,
                                   .decay = e->decay,
                                   .state = e->state,
                                   .slots = e->slots,
                                   .num_slots = SLOTS,
                                   .num_decays = HEADS,
                                   .scale = 1.0f / DIM};
}

static void capture_graphs(struct engine *e)
{
    if (!example_has_gpu(&e->device))
        return;
    example_need(cudaStreamCreate(&e->stream) == cudaSuccess, "cudaStreamCreate");
    for (int i = 0; i < NUM_SIZES; i++) {
        cudaGraph_t graph = NULL;
        example_need(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal) ==
                         cudaSuccess,
                     "cudaStreamBeginCapture");
        example_need(gen_launch(e->library, &e->plan[i], &e->args.base, e->workspace, e->stream) ==
                         GEN_OK,
                     "gen_launch");
        example_need(cudaStreamEndCapture(e->stream, &graph) == cudaSuccess &&
                         cudaGraphInstantiate(&e->graph[i], graph, 0) == cudaSuccess &&
                         cudaGraphDestroy(graph) == cudaSuccess,
                     "cudaGraphInstantiate");
    }
}

/* The slots of the requests of one step, and what they get. */
static void step(struct engine *e, const int32_t *requests, int count, float *results)
{
    static uint16_t outputs[MOST * ROW];
    int32_t slots[MOST];
    int size = 0;
    while (batch_sizes[size] < count)
        size++;
    for (int i = 0; i < MOST; i++)
        slots[i] = i < count ? requests[i] : -1;
    example_copy(e->slots, slots, sizeof slots);
    if (e->graph[size] != NULL)
        example_need(cudaGraphLaunch(e->graph[size], e->stream) == cudaSuccess &&
                         cudaStreamSynchronize(e->stream) == cudaSuccess,
                     "cudaGraphLaunch");
    else
        example_need(gen_launch(e->library, &e->plan[size], &e->args.base, e->workspace, NULL) ==
                         GEN_OK,
                     "gen_launch");
    example_copy(outputs, e->o, sizeof outputs);
    for (int i = 0; i < count; i++)
        results[i] = example_from_bf16(outputs[i * ROW]);
}

static void shut_down(struct engine *e)
{
    void *const memory[] = {e->q, e->o, e->decay, e->state, e->slots, e->workspace};
    for (int i = 0; i < NUM_SIZES; i++)
        if (e->graph[i] != NULL)
            (void)cudaGraphExecDestroy(e->graph[i]);
    if (e->stream != NULL)
        (void)cudaStreamDestroy(e->stream);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        example_free(&e->device, memory[i]);
    gen_close(e->library);
}

int main(int argc, char **argv)
{
    static const int counts[] = {1, 3, 8, 11, 16, 5, 2, 1}; /* requests of each step */
    gen_open_options options = {.size = sizeof options,
                                .path = argc > 1 ? argv[1] : "attngen.fatbin"};
    struct engine engine = {.device = example_device()};
    int steps_of[SLOTS] = {0}, wrong = 0, first = 0;
    example_need(gen_open(&options, &engine.library) == GEN_OK, "gen_open");
    select_plans(&engine);
    make_tensors(&engine);
    capture_graphs(&engine);
    for (size_t s = 0; s < sizeof counts / sizeof counts[0]; s++) {
        int32_t requests[MOST];
        float results[MOST];
        for (int i = 0; i < counts[s]; i++)
            requests[i] = (first + i) % SLOTS;
        first += 5; /* requests come and go */
        step(&engine, requests, counts[s], results);
        for (int i = 0; i < counts[s]; i++)
            wrong += results[i] != (float)++steps_of[requests[i]];
    }
    printf("%s: %d plans, %s, %d wrong results\n", engine.device.name, NUM_SIZES,
           example_has_gpu(&engine.device) ? "graphs" : "no graphs on the CPU", wrong);
    shut_down(&engine);
    return wrong == 0 ? 0 : 1;
}
