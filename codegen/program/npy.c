/* NumPy's .npy files, format 1 to 3: magic, version, length of header, header (a Python dict), elements. */
#include "npy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX = 10, MAX_HEADER = 65536, HEADER_ALIGN = 64 };

static const char magic[] = "\x93NUMPY";

typedef struct {
    char descr[16];  /* byte order, kind and size of an element: "<f4" */
    int fortran_order;
    int rank;
    int64_t shape[NPY_MAX_RANK];
} npy_header;

static const struct {
    const char *dtype;
    const char *descr; /* without the byte order */
} types[] = {
    {"bool", "b1"},   {"int8", "i1"},    {"int16", "i2"},   {"int32", "i4"},
    {"int64", "i8"},  {"uint8", "u1"},   {"uint16", "u2"},  {"uint32", "u4"},
    {"uint64", "u8"}, {"float16", "f2"}, {"float32", "f4"}, {"float64", "f8"},
};

static int failed(npy_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return 1;
}

/* ---- what a header says ---- */

/* The type as .npy files name it, in this machine's byte order. 0 if there is a name for it. */
static int descr_of(const char *dtype, char descr[16]) {
    const uint16_t one = 1;
    const char order = *(const unsigned char *)&one ? '<' : '>';
    for (size_t k = 0; k < sizeof types / sizeof *types; ++k) {
        if (strcmp(types[k].dtype, dtype) == 0) {
            snprintf(descr, 16, "%c%s", types[k].descr[1] == '1' ? '|' : order, types[k].descr);
            return 0;
        }
    }
    return 1;
}

/* A shape as Python writes it: (), (5,), (1, 3). */
static void shape_text(int rank, const int64_t *shape, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "(");
    for (int axis = 0; axis < rank && used < size; ++axis) {
        const char *after = axis + 1 < rank ? ", " : rank == 1 ? "," : "";
        used += (size_t)snprintf(text + used, size - used, "%lld%s", (long long)shape[axis], after);
    }
    if (used < size) {
        snprintf(text + used, size - used, ")");
    }
}

/* ---- the header's text ---- */

static void skip_blanks(const char **at) {
    while (**at == ' ' || **at == '\t' || **at == '\n' || **at == '\r') {
        ++*at;
    }
}

/* Step over `token`, and over blanks before it. 0 if it is not there. */
static int take(const char **at, const char *token) {
    skip_blanks(at);
    const size_t length = strlen(token);
    if (strncmp(*at, token, length) != 0) {
        return 0;
    }
    *at += length;
    return 1;
}

static int take_string(const char **at, char *text, size_t size) {
    skip_blanks(at);
    const char quote = **at;
    if (quote != '\'' && quote != '"') {
        return 0;
    }
    const char *first = *at + 1;
    const char *last = strchr(first, quote);
    if (last == NULL || (size_t)(last - first) >= size) {
        return 0;
    }
    memcpy(text, first, (size_t)(last - first));
    text[last - first] = '\0';
    *at = last + 1;
    return 1;
}

static int take_number(const char **at, int64_t *number) {
    skip_blanks(at);
    if (**at < '0' || **at > '9') {
        return 0;
    }
    int64_t value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        if (value > (INT64_MAX - 9) / 10) {
            return 0;
        }
        value = 10 * value + (**at - '0');
    }
    *number = value;
    return 1;
}

static int take_shape(const char **at, npy_header *header) {
    header->rank = 0;
    if (!take(at, "(")) {
        return 0;
    }
    while (!take(at, ")")) {
        if (header->rank == NPY_MAX_RANK || !take_number(at, &header->shape[header->rank])) {
            return 0;
        }
        ++header->rank;
        if (!take(at, ",")) {
            return take(at, ")");
        }
    }
    return 1;
}

static int take_bool(const char **at, int *value) {
    *value = take(at, "True");
    return *value || take(at, "False");
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3)}, in any order. 0 if the text is anything else. */
static int parse_header(const char *text, npy_header *header) {
    const char *at = text;
    int seen_descr = 0, seen_order = 0, seen_shape = 0;
    if (!take(&at, "{")) {
        return 0;
    }
    while (!take(&at, "}")) {
        char key[16];
        if (!take_string(&at, key, sizeof key) || !take(&at, ":")) {
            return 0;
        }
        int known;
        if (strcmp(key, "descr") == 0) {
            known = !seen_descr++ && take_string(&at, header->descr, sizeof header->descr);
        } else if (strcmp(key, "fortran_order") == 0) {
            known = !seen_order++ && take_bool(&at, &header->fortran_order);
        } else {
            known = strcmp(key, "shape") == 0 && !seen_shape++ && take_shape(&at, header);
        }
        if (!known) {
            return 0;
        }
        if (!take(&at, ",")) {
            if (!take(&at, "}")) {
                return 0;
            }
            break;
        }
    }
    skip_blanks(&at);
    return *at == '\0' && seen_descr && seen_order && seen_shape;
}

/* ---- files ---- */

static int read_header(FILE *file, const char *path, npy_header *header, npy_error *error) {
    unsigned char prefix[PREFIX + 2];
    errno = 0; /* C99 does not say that fread sets it */
    if (fread(prefix, 1, PREFIX, file) != PREFIX) {
        return ferror(file) && errno ? failed(error, "%s: %s", path, strerror(errno))
                                     : failed(error, "%s: not a .npy file: it ends before its header", path);
    }
    if (memcmp(prefix, magic, sizeof magic - 1) != 0) {
        return failed(error, "%s: not a .npy file", path);
    }
    const int version = prefix[6];
    if (version < 1 || version > 3) {
        return failed(error, "%s: found .npy format %d; accepted: 1 to 3", path, version);
    }
    size_t length = (size_t)prefix[8] | (size_t)prefix[9] << 8;
    if (version > 1) { /* 4 bytes of length instead of 2 */
        if (fread(prefix + PREFIX, 1, 2, file) != 2) {
            return failed(error, "%s: not a .npy file: it ends before its header", path);
        }
        length |= (size_t)prefix[10] << 16 | (size_t)prefix[11] << 24;
    }
    if (length > MAX_HEADER) {
        return failed(error, "%s: found a header of %zu bytes; accepted: at most %d", path, length,
                      (int)MAX_HEADER);
    }
    char *text = malloc(length + 1);
    if (text == NULL) {
        return failed(error, "%s: no memory for its header", path);
    }
    const size_t got = fread(text, 1, length, file);
    text[got] = '\0';
    const int whole = got == length && strlen(text) == length;
    const int legal = whole && parse_header(text, header);
    free(text);
    return legal ? 0 : failed(error, "%s: not a .npy file of one array: its header cannot be read", path);
}

static int check_header(const char *path, const npy_header *found, const npy_array *wanted,
                        npy_error *error) {
    char descr[16], found_shape[256], wanted_shape[256];
    if (descr_of(wanted->dtype, descr) != 0) {
        return failed(error, "%s: .npy files have no type %s", path, wanted->dtype);
    }
    int same = strcmp(found->descr, descr) == 0 && found->rank == wanted->rank;
    for (int axis = 0; same && axis < found->rank; ++axis) {
        same = found->shape[axis] == wanted->shape[axis];
    }
    if (!same) {
        shape_text(found->rank, found->shape, found_shape, sizeof found_shape);
        shape_text(wanted->rank, wanted->shape, wanted_shape, sizeof wanted_shape);
        return failed(error, "%s: found %s %s; accepted: %s %s (%s)", path, found->descr, found_shape, descr,
                      wanted_shape, wanted->dtype);
    }
    if (found->fortran_order && found->rank > 1) {
        return failed(error, "%s: found Fortran order; accepted: C order (numpy.ascontiguousarray)", path);
    }
    return 0;
}

static int read_elements(FILE *file, const char *path, size_t bytes, void *data, npy_error *error) {
    const size_t got = fread(data, 1, bytes, file);
    if (got != bytes) {
        return failed(error, "%s: cut off: found %zu bytes of elements; accepted: %zu", path, got, bytes);
    }
    return fgetc(file) == EOF ? 0 : failed(error, "%s: goes on after its %zu bytes of elements", path, bytes);
}

int npy_read(const char *path, const npy_array *wanted, void *data, npy_error *error) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return failed(error, "%s: %s", path, strerror(errno));
    }
    npy_header found;
    const int status = read_header(file, path, &found, error) || check_header(path, &found, wanted, error) ||
                       read_elements(file, path, wanted->bytes, data, error);
    fclose(file);
    return status;
}

int npy_write(const char *path, const npy_array *array, const void *data, npy_error *error) {
    char descr[16], shape[1024], text[1280];
    if (descr_of(array->dtype, descr) != 0) {
        return failed(error, "%s: .npy files have no type %s", path, array->dtype);
    }
    shape_text(array->rank, array->shape, shape, sizeof shape);
    const int used =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    /* Elements begin at a multiple of 64 bytes, to be mapped: blanks and a line break fill the header. */
    const int length = (PREFIX + used + HEADER_ALIGN) / HEADER_ALIGN * HEADER_ALIGN - PREFIX;
    unsigned char prefix[PREFIX] = {0};
    memcpy(prefix, magic, sizeof magic - 1);
    prefix[6] = 1;
    prefix[8] = (unsigned char)(length & 255);
    prefix[9] = (unsigned char)(length >> 8);

    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return failed(error, "%s: %s", path, strerror(errno));
    }
    errno = 0;
    fwrite(prefix, 1, PREFIX, file);
    fprintf(file, "%-*s\n", length - 1, text);
    fwrite(data, 1, array->bytes, file);
    const int broken = ferror(file);
    if (fclose(file) != 0 || broken) {
        return failed(error, "%s: %s", path, errno ? strerror(errno) : "cannot be written");
    }
    return 0;
}
