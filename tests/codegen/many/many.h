/* Runs models one after the other, with inputs from a file and outputs to another: arrays side by side. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, ODD = 0xff /* every byte of memory that nobody has written to: not a number, or -1 */ };

static FILE *given, *made;

typedef struct {
    int count;
    size_t bytes[MOST];
    void *arrays[MOST], *again[MOST]; /* each as large as its tensor, for a sanitizer to watch its ends */
} many_tensors;

static void fail(const char *name, const char *what)
{
    fprintf(stderr, "%s: %s\n", name, what);
    exit(1);
}

static void *memory_of(size_t bytes, size_t alignment)
{
    void *memory;
    if (posix_memalign(&memory, alignment, bytes) != 0) fail("memory", "there is none");
    memset(memory, ODD, bytes);
    return memory;
}

static void get(const char *name, many_tensors *inputs)
{
    for (int k = 0; k < inputs->count; k++) {
        inputs->arrays[k] = memory_of(inputs->bytes[k], sizeof(double));
        if (fread(inputs->arrays[k], 1, inputs->bytes[k], given) != inputs->bytes[k])
            fail(name, "the file of inputs ends");
    }
}

static void make_room(many_tensors *outputs)
{
    for (int k = 0; k < outputs->count; k++) {
        outputs->arrays[k] = memory_of(outputs->bytes[k], sizeof(double));
        outputs->again[k] = memory_of(outputs->bytes[k], sizeof(double));
    }
}

static void put(const char *name, const many_tensors *inputs, many_tensors *outputs)
{
    for (int k = 0; k < outputs->count; k++) {
        if (memcmp(outputs->arrays[k], outputs->again[k], outputs->bytes[k]) != 0)
            fail(name, "the second run gives something else");
        fwrite(outputs->arrays[k], 1, outputs->bytes[k], made);
        free(outputs->arrays[k]);
        free(outputs->again[k]);
    }
    fflush(made);
    for (int k = 0; k < inputs->count; k++) free(inputs->arrays[k]);
}

#define RUN(NAME)                                                                                           \
    do {                                                                                                    \
        many_tensors inputs = {0}, outputs = {0};                                                           \
        for (int k = 0; k < NAME##_input_count; k++) inputs.bytes[inputs.count++] = NAME##_inputs[k].bytes; \
        for (int k = 0; k < NAME##_output_count; k++)                                                       \
            outputs.bytes[outputs.count++] = NAME##_outputs[k].bytes;                                       \
        get(#NAME, &inputs);                                                                                \
        make_room(&outputs);                                                                                \
        NAME##_context *context = memory_of(NAME##_context_bytes(), 64);                                    \
        if (NAME##_init(context, NULL) != 0) fail(#NAME, "weights are refused");                            \
        if (NAME##_run(context, (const void *const *)inputs.arrays, outputs.arrays) != 0)                   \
            fail(#NAME, "run fails");                                                                       \
        if (NAME##_run(context, (const void *const *)inputs.arrays, outputs.again) != 0)                    \
            fail(#NAME, "run 2 fails");                                                                     \
        NAME##_end(context);                                                                                \
        free(context);                                                                                      \
        put(#NAME, &inputs, &outputs);                                                                      \
    } while (0)
