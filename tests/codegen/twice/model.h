/* A model as codegen makes them: y = w * x, where w is the only weight. */
#ifndef TWICE_MODEL_H
#define TWICE_MODEL_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    const char *dtype;
    int rank;
    const int64_t *shape;
    size_t bytes;
} twice_tensor;

typedef struct twice_context twice_context;

extern const int twice_input_count, twice_output_count;
extern const twice_tensor twice_inputs[], twice_outputs[];

size_t twice_context_bytes(void);
size_t twice_arena_bytes(void);
size_t twice_weights_bytes(void);
uint64_t twice_weights_hash(void);
int twice_init(twice_context *memory, const void *weights);
int twice_run(twice_context *context, const void *const *inputs, void *const *outputs);

#endif
