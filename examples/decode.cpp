// The same step from C++17: the library and memory as objects that free themselves, errors as
// exceptions.
//
//     decode_cpp [PRODUCT]
//
// First what would be picked for GPUs that need not be there.
#include "example.h"

#include <attngen/la_decode.h>

#include <cmath>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

void check(gen_status status)
{
    if (status != GEN_OK)
        throw std::runtime_error(gen_last_error());
}

struct Close {
    void operator()(gen_library *library) const
    {
        gen_close(library);
    }
};
using Library = std::unique_ptr<gen_library, Close>;

Library open(const char *path)
{
    gen_open_options options{};
    options.size = sizeof options;
    options.path = path;
    gen_library *library = nullptr;
    check(gen_open(&options, &library));
    return Library(library);
}

class Memory
{
  public:
    Memory(const gen_device &device, size_t size)
        : device_(device), data_(example_memory(&device, size))
    {
    }
    ~Memory()
    {
        example_free(&device_, data_);
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    template <typename T> T *as() const
    {
        return static_cast<T *>(data_);
    }

  private:
    gen_device device_;
    void *data_;
};

gen_la_decode_problem problem_of(int batch, int heads)
{
    gen_la_decode_problem problem{};
    problem.base.size = sizeof problem;
    problem.base.family = GEN_LA_DECODE;
    problem.batch = batch;
    problem.num_qk_heads = problem.num_v_heads = heads;
    problem.head_dim = 128;
    problem.dtype = GEN_DTYPE_BF16;
    problem.state_layout = GEN_LA_STATE_VK;
    return problem;
}

gen_plan select(const Library &library, const gen_device &device,
                const gen_la_decode_problem &problem)
{
    gen_plan plan{};
    plan.size = sizeof plan;
    check(gen_select(library.get(), &device, &problem.base, &plan));
    return plan;
}

void foresee(const Library &library)
{
    for (const char *name : {"h200", "h20", "h100"}) {
        gen_device device{};
        device.size = sizeof device;
        check(gen_device_named(name, &device));
        const gen_plan plan = select(library, device, problem_of(64, 64));
        gen_variant_info info{};
        info.size = sizeof info;
        check(gen_variant_get(library.get(), plan.launch[0].variant, &info));
        std::cout << name << ": " << info.name << ", " << plan.predicted_us << " us\n";
    }
}

// One row, q = k = 1, v = its column: o = scale * 128 * v.
double decode(const Library &library)
{
    constexpr int dim = 128;
    const gen_device device = example_device();
    const gen_la_decode_problem problem = problem_of(1, 1);
    const gen_plan plan = select(library, device, problem);
    check(gen_preload(library.get(), &plan));
    const Memory q(device, 2 * dim), v(device, 2 * dim), o(device, 2 * dim),
        decay(device, sizeof(float)), state(device, sizeof(float) * dim * dim),
        workspace(device, plan.workspace_bytes);
    std::vector<uint16_t> ones(dim, example_to_bf16(1.0f)), columns(dim), result(dim);
    for (size_t i = 0; i < columns.size(); i++)
        columns[i] = example_to_bf16(static_cast<float>(i) / 64.0f);
    example_copy(q.as<void>(), ones.data(), 2 * dim);
    example_copy(v.as<void>(), columns.data(), 2 * dim);
    gen_la_decode_args args{};
    args.base.size = sizeof args;
    args.base.family = GEN_LA_DECODE;
    args.q = args.k = q.as<void>();
    args.v = v.as<void>();
    args.o = o.as<void>();
    args.decay = decay.as<float>();
    args.state = state.as<float>();
    args.num_slots = args.num_decays = 1;
    args.scale = 1.0f / 128.0f;
    check(gen_launch(library.get(), &plan, &args.base, workspace.as<void>(), nullptr));
    example_copy(result.data(), o.as<void>(), 2 * dim);
    double worst = 0;
    for (size_t i = 0; i < result.size(); i++)
        worst =
            std::fmax(worst, std::fabs(double{example_from_bf16(result[i])} - double(i) / 64.0));
    return worst;
}

} // namespace

int main(int argc, char **argv)
try {
    const Library library = open(argc > 1 ? argv[1] : "attngen.fatbin");
    foresee(library);
    const double worst = decode(library);
    std::cout << "largest error " << worst << "\n";
    return worst < 5e-3 ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
