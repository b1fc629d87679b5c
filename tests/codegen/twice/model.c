#include "model.h"

#ifdef EMBED
enum { COUNT = 1 * 3 * 4 * 4, WEIGHTS = 0 };
static const float embedded[] = {2.0f};
#else
enum { COUNT = 1 * 3 * 4 * 4, WEIGHTS = 4 };
#endif

static const int64_t shape[] = {1, 3, 4, 4};

struct twice_context {
    float arena[COUNT];
    uint64_t canary;
    const float *weights;
};

#ifdef SCALED /* a second input, before the other: a factor */
const int twice_input_count = 2, twice_output_count = 1;
const twice_tensor twice_inputs[] = {{"s=1", "int64", 0, shape, sizeof(int64_t), 0, 0},
                                     {"x", "float32", 4, shape, COUNT * sizeof(float), 0, 0}};
#else
const int twice_input_count = 1, twice_output_count = 1;
const twice_tensor twice_inputs[] = {{"x", "float32", 4, shape, COUNT * sizeof(float), 0, 0}};
#endif
const twice_tensor twice_outputs[] = {{"y", "float32", 4, shape, COUNT * sizeof(float), 0, 0}};

size_t twice_context_bytes(void) { return sizeof(twice_context); }
size_t twice_arena_bytes(void) { return COUNT * sizeof(float); }
size_t twice_weights_bytes(void) { return WEIGHTS; }
uint64_t twice_weights_hash(void) { return UINT64_C(0x4d25b67f9dce80b5); }

#ifndef EMBED
static uint64_t fnv1a(const unsigned char *bytes, size_t count) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t k = 0; k < count; ++k) {
        hash = (hash ^ bytes[k]) * UINT64_C(0x100000001b3);
    }
    return hash;
}
#endif

int twice_init(twice_context *memory, const void *weights) {
#ifdef EMBED
    weights = embedded;
#else
    if (weights == NULL || fnv1a(weights, WEIGHTS) != twice_weights_hash()) {
        return 1;
    }
#endif
    memory->weights = weights;
    memory->canary = twice_weights_hash();
    return 0;
}

int twice_run(twice_context *context, const void *const *inputs, void *const *outputs) {
#ifdef SCALED
    const int64_t *factor = inputs[0];
    const float *x = inputs[1];
#else
    const int64_t factor[] = {1};
    const float *x = inputs[0];
#endif
    float *y = outputs[0];
    for (int k = 0; k < COUNT; ++k) {
        context->arena[k] = context->weights[0] * x[k] * (float)factor[0];
    }
#ifdef OVERRUN
    context->canary = 0;
#endif
    for (int k = 0; k < COUNT; ++k) {
        y[k] = context->arena[k];
    }
    return context->canary == twice_weights_hash() ? 0 : 2;
}

void twice_end(twice_context *context) { (void)context; }
