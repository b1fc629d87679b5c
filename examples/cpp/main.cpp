// Two networks in one program, each in a thread of its own, on the same input.

#include "first_model.h"
#include "second_model.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

/// A network with memory of its own: what the C interface says, with an end that cannot be forgotten. One
/// caller at a time.
template <typename Context>
class Network {
public:
    using Init = int (*)(Context *, const void *);
    using Run = int (*)(Context *, const void *const *, void *const *);
    using End = void (*)(Context *);

    Network(std::size_t bytes, Init init, Run run, End end)
        : run_(run), context_(allocate(bytes), Ender{end}) {
        if (init(context_.get(), nullptr) != 0)
            throw std::runtime_error("the weights are not linked in: lfopt codegen --embed");
    }

    void operator()(const float *input, float *output) {
        const void *inputs[] = {input};
        void *outputs[] = {output};
        if (const int status = run_(context_.get(), inputs, outputs))
            throw std::runtime_error("status " + std::to_string(status));
    }

private:
    struct Ender {
        End end;
        void operator()(Context *context) const {
            end(context);
            std::free(context);
        }
    };

    static Context *allocate(std::size_t bytes) {
        void *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (!memory) throw std::bad_alloc();
        return static_cast<Context *>(memory);
    }

    Run run_;
    std::unique_ptr<Context, Ender> context_;
};

int main() {
    Network<first_context> first(first_context_bytes(), first_init, first_run, first_end);
    Network<second_context> second(second_context_bytes(), second_init, second_run, second_end);

    std::vector<float> input(first_inputs[0].bytes / sizeof(float), 0.5F);
    std::vector<float> left(first_outputs[0].bytes / sizeof(float)),
        right(second_outputs[0].bytes / sizeof(float));
    std::thread other([&] { second(input.data(), right.data()); });
    first(input.data(), left.data());
    other.join();

    for (const auto *output : {&left, &right}) {
        const auto best = std::max_element(output->begin(), output->end());
        std::printf("%s: class %td, %.6g\n", output == &left ? "first" : "second", best - output->begin(),
                    static_cast<double>(*best));
    }
}
