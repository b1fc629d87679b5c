#ifndef NAME_MODEL_H
#define NAME_MODEL_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    const char *dtype; /* as NumPy calls it */
    int rank;
    const int64_t *shape;
    size_t bytes;
} NAME_tensor;
typedef struct NAME_context NAME_context;

extern const int NAME_input_count, NAME_output_count;
extern const NAME_tensor NAME_inputs[], NAME_outputs[];

size_t NAME_context_bytes(void); /* memory of one caller, to be aligned to 64 bytes */
size_t NAME_arena_bytes(void);   /* of which: the buffer that fusion groups run in, or one of each thread */
size_t NAME_weights_bytes(void); /* of the file of weights; 0 where they are linked in */
uint64_t NAME_weights_hash(void);

/* 0; 1 if the weights are not this model's. They must be aligned to 64 bytes and outlive the context; NULL where they are linked in. */
int NAME_init(NAME_context *memory, const void *weights);
/* Dense arrays in C order, by position. 0; 2 if something was written beside the arena; 3 if a thread could not be started. */
int NAME_run(NAME_context *context, const void *const *inputs, void *const *outputs);
/* Ends the threads that the first run of this context started and that wait for its next one: before its memory is used for anything else, and
   before this code is unloaded. The next run would start others. */
void NAME_end(NAME_context *context);

#if COUNTED
enum {
    NAME_INPUT, NAME_OUTPUT, NAME_WEIGHT, NAME_PARAMETER, NAME_SPILL, NAME_KINDS, /* between DRAM and the buffer */
    NAME_L2_READ = NAME_KINDS, NAME_L2_WRITTEN                                    /* between a second level of memory and the buffer */
};

/* Bytes of one kind that the last run moved. */
uint64_t NAME_dram_bytes(const NAME_context *context, int kind);
#endif /* COUNTED */

#if PROFILED
/* What a group of the plan took in the last run, from the first thread's point of view. */
double NAME_group_seconds(const NAME_context *context, int group);
#endif /* PROFILED */

#endif
