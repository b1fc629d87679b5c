/* The interface of one network: C99, or C++ (the code itself is compiled as C).

   Several networks link into one program if their names differ: everything that they define begins with the
   name, which `lfopt codegen --prefix` sets.

   Memory   Nothing here allocates or frees memory, opens a file or keeps state, but for the threads of a
            context. The caller owns weights, contexts, inputs and outputs.
   Threads  Functions with a context may be called from any thread, but never two at a time with the same
            context. Contexts are independent: one for each caller. All share the weights, which nobody
            writes.
   Status   Functions that give an int give a NAME_status; 0 is success. After any other, outputs are
            worthless, and the context is of no use until NAME_init prepares it again. */

#ifndef NAME_MODEL_H
#define NAME_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum NAME_status {
    NAME_OK = 0,
    /* Of NAME_init: the weights are not this network's, or some were given where they are linked in. */
    NAME_WRONG_WEIGHTS = 1,
    /* Of NAME_run: the code wrote beside its arena, a fault of lfopt. */
    NAME_OUT_OF_ARENA = 2,
    /* Of NAME_run: the system gave no thread or no memory for its stack; only code for several threads. */
    NAME_NO_THREAD = 3,
    /* Of NAME_run: a step of the plan read what was not in the buffer, a fault of lfopt; only code that
       counts (--count). */
    NAME_OUT_OF_STEP = 4
};

enum { NAME_ALIGNMENT = 64 }; /* bytes: of contexts, and of weights that are not linked in */

typedef struct {
    const char *name;
    const char *dtype; /* as NumPy calls it: float32, int8, uint8, int64, bool ... */
    int rank;
    const int64_t *shape; /* `rank` extents */
    size_t bytes;         /* of the whole array: dense, C order, native byte order, aligned as its elements */
    float scale; /* of integers that stand for scale * (integer - zero_point); 0 where they are numbers */
    int zero_point;
} NAME_tensor;
typedef struct NAME_context NAME_context; /* memory of one caller; what is in it is nobody else's business */

/* Descriptions of inputs and outputs, by position: constant, and there as long as the code is. */
extern const int NAME_input_count, NAME_output_count;
extern const NAME_tensor NAME_inputs[], NAME_outputs[];

size_t NAME_context_bytes(void);  /* that a context takes */
size_t NAME_arena_bytes(void);    /* of which: the buffer that fusion groups run in, or one of each thread */
size_t NAME_weights_bytes(void);  /* of the file of weights; 0 where they are linked in */
uint64_t NAME_weights_hash(void); /* of these weights */

/* Prepares `memory`, NAME_context_bytes() bytes aligned to NAME_ALIGNMENT, to be a context: NAME_OK or
   NAME_WRONG_WEIGHTS. `weights`: what is in weights.bin, aligned to NAME_ALIGNMENT (a mapped file is); it is
   read from end to end here, and must outlive the context. NULL where the weights are linked in. */
int NAME_init(NAME_context *memory, const void *weights);

/* Runs the network: NAME_OK, NAME_OUT_OF_ARENA, NAME_NO_THREAD or NAME_OUT_OF_STEP. `inputs` and `outputs`:
   NAME_input_count and NAME_output_count arrays in the order of NAME_inputs and NAME_outputs. Outputs overlap
   neither inputs nor one another. Returns when all outputs are written. */
int NAME_run(NAME_context *context, const void *const *inputs, void *const *outputs);

/* Ends the threads that the first run of a context started and that wait for its next one; does nothing in
   code for one thread. To be called before the memory of the context is used for anything else, and before
   this code is unloaded. The next run would start others. */
void NAME_end(NAME_context *context);

#if QUANTIZED
/* Integers of an input from floats, and floats from the integers of an output, as QuantizeLinear and
   DequantizeLinear have them: of all elements of the input or output at a position. 1, or 0 where it is not
   of such integers, and nothing is done. */
int NAME_quantize(int input, const float *from, void *to);
int NAME_dequantize(int output, const void *from, float *to);
#endif /* QUANTIZED */

#if COUNTED
enum {
    /* Between DRAM and the buffer. */
    NAME_INPUT, NAME_OUTPUT, NAME_WEIGHT, NAME_PARAMETER, NAME_SPILL, NAME_KINDS,
    /* Between a second level of memory and the buffer. */
    NAME_L2_READ = NAME_KINDS, NAME_L2_WRITTEN
};

/* Bytes of one kind that the last run moved. */
uint64_t NAME_dram_bytes(const NAME_context *context, int kind);
#endif /* COUNTED */

#if PROFILED
/* What a group of the plan took in the last run, from the first thread's point of view. */
double NAME_group_seconds(const NAME_context *context, int group);
#endif /* PROFILED */

#ifdef __cplusplus
}
#endif

#endif
