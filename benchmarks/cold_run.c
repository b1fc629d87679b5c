/* At most one run of model NAME, from a cache that holds nothing of it: bench_traffic.py counts misses. */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model.h"

enum { ALIGNMENT = 64, LINE = 64, MOST = 64 }; /* bytes; bytes; inputs and outputs */

static void *allocate(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, bytes > 0 ? bytes : 1) != 0) {
        fputs("no memory\n", stderr);
        exit(2);
    }
    return memory;
}

/* Numbers in [-1, 1) where they are real, else 0. */
static void fill(const NAME_tensor *tensor, void *data) {
    memset(data, 0, tensor->bytes);
    if (strcmp(tensor->dtype, "float32") != 0) {
        return;
    }
    float *values = data;
    for (size_t k = 0; k < tensor->bytes / sizeof *values; ++k) {
        values[k] = (float)(k * 7919 % 2000) / 1000.0f - 1.0f;
    }
}

/* Read so much that nothing else is left in the cache. */
static void drain(size_t bytes) {
    volatile const char *memory = memset(allocate(bytes), 0, bytes);
    for (size_t k = 0; k < bytes; k += LINE) {
        (void)memory[k];
    }
}

/* cold_run WEIGHTS BYTES_TO_DRAIN RUNS */
int main(int argc, char **argv) {
    void *inputs[MOST], *outputs[MOST];
    if (argc != 4 || NAME_input_count > MOST || NAME_output_count > MOST) {
        fputs("cold_run WEIGHTS BYTES_TO_DRAIN RUNS\n", stderr);
        return 2;
    }
    for (int k = 0; k < NAME_input_count; ++k) {
        inputs[k] = allocate(NAME_inputs[k].bytes);
        fill(&NAME_inputs[k], inputs[k]);
    }
    for (int k = 0; k < NAME_output_count; ++k) {
        outputs[k] = allocate(NAME_outputs[k].bytes);
    }
    const size_t bytes = NAME_weights_bytes(); /* 0: they are linked in */
    const int file = open(argv[1], O_RDONLY);
    const void *weights = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
    NAME_context *context = allocate(NAME_context_bytes());
    if (weights == MAP_FAILED || NAME_init(context, weights) != 0) {
        fprintf(stderr, "%s: not the weights\n", argv[1]);
        return 2;
    }
    drain(strtoull(argv[2], NULL, 10));
    return strcmp(argv[3], "1") == 0 ? NAME_run(context, (const void *const *)inputs, outputs) : 0;
}
