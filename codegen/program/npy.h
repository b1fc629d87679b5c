/* NumPy's .npy files: one dense array in C order each. Nothing in a file is trusted. */
#ifndef LFOPT_NPY_H
#define LFOPT_NPY_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_MAX_RANK = 32 };

typedef struct {
    const char *dtype; /* NumPy's name: "float32", "int64" */
    int rank;
    const int64_t *shape;
    size_t bytes; /* of all elements */
} npy_array;

typedef struct {
    char text[1024]; /* one line */
} npy_error;

/* Fill `data` from a file that must hold exactly `wanted`. 0; or 1, and `error` says why not. */
int npy_read(const char *path, const npy_array *wanted, void *data, npy_error *error);

/* Write `data` as a file. 0; or 1, and `error` says why not. */
int npy_write(const char *path, const npy_array *array, const void *data, npy_error *error);

#endif
