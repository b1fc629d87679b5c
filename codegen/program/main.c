/* The program NAME: .npy files in, .npy files out, and how long a run takes. README.md says how to use it. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model.h"
#include "npy.h"

enum { REFUSED = 2, BROKEN = 3 }; /* exit codes: wrong arguments or files; a fault of the generated code */
enum { ALIGNMENT = 64, MAX_RUNS = 10000000 };

typedef struct {
    const char **inputs;  /* a file for each input; NULL: not given */
    const char **outputs; /* a file for each output; NULL: not wanted */
    const char *weights;  /* NULL: weights.bin beside the program */
    long bench;           /* runs to time */
    int help;
    int list;
} options;

static void stop(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("NAME: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

static void *allocate(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGNMENT, bytes > 0 ? bytes : 1) != 0) {
        stop(REFUSED, "no memory: %zu bytes are needed", bytes);
    }
    return memory;
}

static void *allocate_zeros(size_t bytes) {
    return memset(allocate(bytes), 0, bytes);
}

/* ---- arguments ---- */

static const char usage[] =
    "usage: NAME --input x.npy --output y.npy [--bench RUNS]\n"
    "\n"
    "  --input [TENSOR=]FILE   .npy file to read; once for each input, by name or in order\n"
    "  --output [TENSOR=]FILE  .npy file to write; for as many outputs as are wanted\n"
    "  --bench RUNS            time as many runs, after some to warm up; inputs not given are random\n"
    "  --weights FILE          weights; weights.bin beside the program if not given\n"
    "  --list                  print inputs, outputs and memory\n"
    "  --help                  print this\n";

static int tensor_named(const NAME_tensor *tensors, int count, const char *text, size_t length) {
    for (int k = 0; k < count; ++k) {
        if (strlen(tensors[k].name) == length && strncmp(tensors[k].name, text, length) == 0) {
            return k;
        }
    }
    return -1;
}

/* Note TENSOR=FILE, or FILE for the first tensor that has none. */
static void assign(const char *option, const NAME_tensor *tensors, int count, const char **files,
                   const char *text) {
    int which = -1;
    const char *file = text;
    for (const char *equals = strchr(text, '='); equals != NULL && which < 0;
         equals = strchr(equals + 1, '=')) {
        which = tensor_named(tensors, count, text, (size_t)(equals - text));
        file = which < 0 ? text : equals + 1;
    }
    for (int k = 0; k < count && which < 0; ++k) {
        which = files[k] == NULL ? k : -1;
    }
    if (which < 0) {
        stop(REFUSED, "%s %s: found more than %d; see --list", option, text, count);
    }
    if (files[which] != NULL) {
        stop(REFUSED, "%s %s: %s has a file already: %s", option, text, tensors[which].name, files[which]);
    }
    files[which] = file;
}

static long run_count(const char *text) {
    char *end;
    errno = 0;
    const long runs = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || runs < 1 || runs > MAX_RUNS) {
        stop(REFUSED, "--bench %s: accepted: a number of runs from 1 to %d", text, (int)MAX_RUNS);
    }
    return runs;
}

static options parse_arguments(int argc, char **argv) {
    options given = {NULL, NULL, NULL, 0, 0, 0};
    given.inputs = allocate_zeros((size_t)NAME_input_count * sizeof *given.inputs);
    given.outputs = allocate_zeros((size_t)NAME_output_count * sizeof *given.outputs);
    for (int k = 1; k < argc; ++k) {
        const char *option = argv[k];
        if (strcmp(option, "--help") == 0) {
            given.help = 1;
            continue;
        }
        if (strcmp(option, "--list") == 0) {
            given.list = 1;
            continue;
        }
        const int known = strcmp(option, "--input") == 0 || strcmp(option, "--output") == 0 ||
                          strcmp(option, "--bench") == 0 || strcmp(option, "--weights") == 0;
        if (!known) {
            stop(REFUSED, "%s: not an option; see --help", option);
        }
        if (k + 1 == argc) {
            stop(REFUSED, "%s: nothing follows it; see --help", option);
        }
        const char *value = argv[++k];
        if (strcmp(option, "--input") == 0) {
            assign(option, NAME_inputs, NAME_input_count, given.inputs, value);
        } else if (strcmp(option, "--output") == 0) {
            assign(option, NAME_outputs, NAME_output_count, given.outputs, value);
        } else if (strcmp(option, "--bench") == 0) {
            given.bench = run_count(value);
        } else {
            given.weights = value;
        }
    }
    return given;
}

static void print_tensor(FILE *file, const char *what, const NAME_tensor *tensor) {
    fprintf(file, "%s %s %s [", what, tensor->name, tensor->dtype);
    for (int axis = 0; axis < tensor->rank; ++axis) {
        fprintf(file, "%s%lld", axis > 0 ? ", " : "", (long long)tensor->shape[axis]);
    }
    fputs("]", file);
    if (tensor->scale != 0.0f) {
        fprintf(file, ", %.9g * (integer - %d)", (double)tensor->scale, tensor->zero_point);
    }
    fputs("\n", file);
}

static void print_list(void) {
    for (int k = 0; k < NAME_input_count; ++k) {
        print_tensor(stdout, "input", &NAME_inputs[k]);
    }
    for (int k = 0; k < NAME_output_count; ++k) {
        print_tensor(stdout, "output", &NAME_outputs[k]);
    }
    printf("context %zu bytes, of which arena %zu\n", NAME_context_bytes(), NAME_arena_bytes());
    printf("weights %zu bytes%s\n", NAME_weights_bytes(), NAME_weights_bytes() > 0 ? "" : ": linked in");
}

/* ---- weights ---- */

/* weights.bin in the folder of the program, however it was started. */
static void find_weights(const char *program, char *path, size_t size) {
    static const char name[] = "weights.bin";
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length > 0) {
        path[length] = '\0';
    } else {
        snprintf(path, size, "%s", program);
    }
    char *slash = strrchr(path, '/');
    char *file = slash == NULL ? path : slash + 1;
    if (sizeof name > size - (size_t)(file - path)) {
        stop(REFUSED, "the path of the program is too long; give --weights");
    }
    memcpy(file, name, sizeof name);
}

/* The file, mapped: pages are shared by all who run the model, and read when they are first used. */
static const void *map_weights(const char *path) {
    const size_t bytes = NAME_weights_bytes();
    const int file = open(path, O_RDONLY);
    if (file < 0) {
        stop(REFUSED, "weights %s: %s", path, strerror(errno));
    }
    struct stat status;
    if (fstat(file, &status) != 0 || status.st_size < 0 || (uintmax_t)status.st_size != bytes) {
        stop(REFUSED, "weights %s: not this model's: accepted: a file of %zu bytes", path, bytes);
    }
    const void *weights = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (weights == MAP_FAILED) {
        stop(REFUSED, "weights %s: %s", path, strerror(errno));
    }
    close(file);
    return weights;
}

/* ---- tensors ---- */

static npy_array described(const NAME_tensor *tensor) {
    const npy_array array = {tensor->dtype, tensor->rank, tensor->shape, tensor->bytes};
    return array;
}

/* The same numbers each time: in [-1, 1) where they are real, else 0. */
static void fill(const NAME_tensor *tensor, void *data) {
    memset(data, 0, tensor->bytes);
    if (strcmp(tensor->dtype, "float32") != 0) {
        return;
    }
    float *values = data;
    uint32_t state = 2463534242u;
    for (size_t k = 0; k < tensor->bytes / sizeof *values; ++k) {
        state ^= state << 13; /* xorshift32 */
        state ^= state >> 17;
        state ^= state << 5;
        values[k] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

static void read_inputs(const options *given, void **inputs) {
    for (int k = 0; k < NAME_input_count; ++k) {
        const NAME_tensor *tensor = &NAME_inputs[k];
        const npy_array wanted = described(tensor);
        npy_error error;
        if (given->inputs[k] == NULL && given->bench == 0) {
            stop(REFUSED, "input %s is not given; accepted: --input %s=FILE.npy; see --list", tensor->name,
                 tensor->name);
        }
        inputs[k] = allocate(tensor->bytes);
        if (given->inputs[k] == NULL) {
            fill(tensor, inputs[k]);
        } else if (npy_read(given->inputs[k], &wanted, inputs[k], &error) != 0) {
            stop(REFUSED, "input %s: %s", tensor->name, error.text);
        }
    }
}

static void write_outputs(const options *given, void *const *outputs) {
    for (int k = 0; k < NAME_output_count; ++k) {
        const npy_array array = described(&NAME_outputs[k]);
        npy_error error;
        if (given->outputs[k] != NULL && npy_write(given->outputs[k], &array, outputs[k], &error) != 0) {
            stop(REFUSED, "output %s: %s", NAME_outputs[k].name, error.text);
        }
    }
}

/* ---- running ---- */

static void run(NAME_context *context, void *const *inputs, void *const *outputs) {
    static const char *const faults[] = {
        "", "", "the generated code wrote outside its arena", "a thread could not be started",
        "a step read what was not in the buffer, or wrote where there was no room"};
    const int found = NAME_run(context, (const void *const *)inputs, outputs);
    if (found != 0) {
        stop(BROKEN, "%s", faults[found]);
    }
}

#ifdef NAME_COUNTED
static void print_counts(const NAME_context *context) {
    static const char *const kinds[] = {"input", "output", "weight", "parameter", "spill"};
    unsigned long long total = 0;
    for (int kind = 0; kind < NAME_KINDS; ++kind) {
        const unsigned long long bytes = NAME_dram_bytes(context, kind);
        printf("%-9s %15llu B\n", kinds[kind], bytes);
        total += bytes;
    }
    printf("%-9s %15llu B counted between DRAM and the buffer\n", "total", total);
    const unsigned long long read = NAME_dram_bytes(context, NAME_L2_READ),
                             written = NAME_dram_bytes(context, NAME_L2_WRITTEN);
    if (read + written > 0) {
        printf("%-9s %15llu B read from the second level, %llu B written there\n", "L2", read, written);
    }
}
#endif

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static int ascending(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Where `share` of the sorted values lie below; between two values, in proportion. */
static double quantile(const double *sorted, long count, double share) {
    const double at = share * (double)(count - 1);
    const long low = (long)at;
    const long high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

static void bench(NAME_context *context, void *const *inputs, void *const *outputs, long runs) {
    const long warm_up = 1 + runs / 10;
    for (long k = 0; k < warm_up; ++k) {
        run(context, inputs, outputs);
    }
    double *times = allocate((size_t)runs * sizeof *times);
    for (long k = 0; k < runs; ++k) {
        const double start = milliseconds();
        run(context, inputs, outputs);
        times[k] = milliseconds() - start;
    }
    qsort(times, (size_t)runs, sizeof *times, ascending);
    printf("median %.4f ms, min %.4f, quartiles %.4f %.4f; %ld runs after %ld to warm up\n",
           quantile(times, runs, 0.5), times[0], quantile(times, runs, 0.25), quantile(times, runs, 0.75),
           runs, warm_up);
    free(times);
}

/* Everything that is asked for: outputs written, times printed. */
static void run_model(const options *given, const char *program) {
    int wanted = given->bench > 0;
    for (int k = 0; k < NAME_output_count; ++k) {
        wanted |= given->outputs[k] != NULL;
    }
    if (!wanted) {
        stop(REFUSED, "nothing is asked for; accepted: --output FILE.npy, --bench RUNS, or both; see --help");
    }

    void **inputs = allocate_zeros((size_t)NAME_input_count * sizeof *inputs);
    void **outputs = allocate_zeros((size_t)NAME_output_count * sizeof *outputs);
    read_inputs(given, inputs);
    for (int k = 0; k < NAME_output_count; ++k) {
        outputs[k] = allocate(NAME_outputs[k].bytes);
    }
    char beside[4096];
    const char *file = given->weights;
    if (file == NULL) {
        find_weights(program, beside, sizeof beside);
        file = beside;
    }
    const void *weights = NAME_weights_bytes() > 0 ? map_weights(file) : NULL;
    NAME_context *context = allocate(NAME_context_bytes());
    if (NAME_init(context, weights) != 0) {
        stop(REFUSED, "weights %s: not this model's", file);
    }

    run(context, inputs, outputs);
    write_outputs(given, outputs);
#ifdef NAME_COUNTED
    print_counts(context);
#endif
    if (given->bench > 0) {
        bench(context, inputs, outputs, given->bench);
    }

    for (int k = 0; k < NAME_input_count; ++k) {
        free(inputs[k]);
    }
    for (int k = 0; k < NAME_output_count; ++k) {
        free(outputs[k]);
    }
    free(inputs);
    free(outputs);
    NAME_end(context);
    free(context);
}

int main(int argc, char **argv) {
    const options given = parse_arguments(argc, argv);
    if (given.help) {
        fputs(usage, stdout);
    } else if (given.list) {
        print_list();
    } else {
        run_model(&given, argv[0]);
    }
    free(given.inputs);
    free(given.outputs);
    return 0;
}
