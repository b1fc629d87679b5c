/* A chip with a buffer: what is there, row by row and block by block, and how many bytes went in and out.
   DRAM is reached here and nowhere else, and so is the second level of memory, where there is one. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDE(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define SHOW(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define HIDE(at, bytes) ((void)(at), (void)(bytes))
#define SHOW(at, bytes) ((void)(at), (void)(bytes))
#endif

typedef struct {
    int first[RANK], stop[RANK];
} box;

typedef struct {
    int rank, axis; /* of rows; -1: there is one row */
    int channels;   /* axis of channels, which the buffer pads; -1: none */
    int shape[RANK];
    int size;     /* bytes of an element */
    int bits;     /* that the plan reckons for it, in the buffer and in DRAM */
    int align;    /* bytes in DRAM that a row is padded to; a block of a constant, on chip too */
    int rows;     /* index of its first row among all rows */
    int memory;   /* in which it lies */
    size_t at;    /* bytes from the start of the maps, of the weights, or of the second level */
    int fragments, fragment_count; /* of one that is read through operators that only move data */
} tensor;

/* A box of a tensor whose elements are read from another one in counted loops. */
typedef struct {
    box frame;
    int source;                 /* that other tensor */
    ptrdiff_t offset;           /* elements from its start to the first of the box */
    int counters, counter_count; /* of its loops, of every axis the innermost first */
} fragment;

typedef struct {
    int axis, count; /* of iterations */
    ptrdiff_t stride; /* elements */
} counter;

typedef struct {
    size_t address, slot_bytes; /* as the plan says */
    int slots;
} place;

typedef struct {
    int name; /* of a tensor; -1: nothing */
    int row;
    box frame; /* what of it is here */
    int step[RANK];
    char *start;
} piece;

enum { IN_MAPS, IN_WEIGHTS, IN_L2 }; /* the first two are DRAM */
enum { INPUT, OUTPUT, WEIGHT, PARAMETER, SPILL, L2_READ, L2_WRITTEN, KINDS };
struct chip {
    uint64_t bytes[KINDS];
    int missing; /* 1 + the tensor of which something was read that was not there */
    int overrun; /* 1 + the tensor that was written where there was no room */
    double nowhere[2]; /* stands for elements that are not there */
    unsigned char unwanted[TENSORS]; /* results that take no space */
    piece pieces[PIECES];
    piece *rows[ROWS];
    _Alignas(8) unsigned char flight[FLIGHT]; /* what operators make for others that follow in flight */
    char spare[SPARE]; /* for a row that is laid out anew */
    size_t picked;     /* elements of a constant that a Gather has taken */
    size_t stored;     /* bytes taken in the store for parameters */
    size_t held[TENSORS]; /* of them, by name of the parameters */
    unsigned char parameters[PARAMETERS]; /* the store, beside the buffer */
    _Alignas(8) char l2[L2]; /* the second level */
};

static const tensor tensors[TENSORS];
static const fragment fragments[FRAGMENTS];
static const counter counters[COUNTERS];

static inline void *missing(const context *m, int name)
{
    if (!m->chip->unwanted[name]) m->chip->missing = name + 1;
    return m->chip->nowhere;
}

/* Results that nobody reads take no space. */
static inline void unwanted(const context *m, int name) { m->chip->unwanted[name] = 1; }

/* What the groups before left in the buffer is gone. */
static inline void forget(const context *m)
{
    for (int k = 0; k < PIECES; k++) m->chip->pieces[k].name = -1;
    memset(m->chip->rows, 0, sizeof m->chip->rows);
    memset(m->chip->held, 0, sizeof m->chip->held);
    m->chip->stored = 0;
}

static inline int extent(const box *b, int axis) { return b->stop[axis] - b->first[axis]; }

/* Elements of one row of a box. */
static size_t row_elements(const tensor *t, const box *b)
{
    size_t found = 1;
    for (int k = 0; k < t->rank; k++)
        if (k != t->axis) found *= (size_t)extent(b, k);
    return found;
}

/* Bytes that one row of a box takes in the buffer. */
static size_t row_bytes(const tensor *t, const box *b)
{
    size_t found = (size_t)t->bits;
    for (int k = 0; k < t->rank; k++) {
        const size_t n = (size_t)extent(b, k);
        if (k != t->axis)
            found *= k == t->channels ? (n + CHANNEL_ALIGN - 1) / CHANNEL_ALIGN * CHANNEL_ALIGN : n;
    }
    return found / 8; /* elements of maps are whole bytes */
}

static void set_frame(const tensor *t, piece *p, const box *frame)
{
    int step = 1;
    p->frame = *frame;
    for (int k = t->rank - 1; k >= 0; k--) {
        p->step[k] = k == t->axis ? 0 : step;
        if (k != t->axis) step *= extent(frame, k);
    }
}

/* Copy what two pieces of a row have in common. */
static void move_row(const tensor *t, const piece *to, const piece *from)
{
    int at[RANK];
    const box *b = &from->frame;
    for (int k = 0; k < t->rank; k++) {
        at[k] = b->first[k];
        if (k != t->axis && extent(b, k) <= 0) return;
    }
    for (;;) {
        size_t here = 0, there = 0;
        for (int k = 0; k < t->rank; k++) {
            here += (size_t)((at[k] - b->first[k]) * from->step[k]);
            there += (size_t)((at[k] - to->frame.first[k]) * to->step[k]);
        }
        memcpy(to->start + there * (size_t)t->size, from->start + here * (size_t)t->size, (size_t)t->size);
        int k = t->rank - 1;
        for (; k >= 0; k--) {
            if (k == t->axis) continue;
            if (++at[k] < b->stop[k]) break;
            at[k] = b->first[k];
        }
        if (k < 0) return;
    }
}

/* Room for a box of a map, row by row, in a place's slots from `number` on; `base`: of the pieces there. */
static void claim(const context *m, int name, const box *b, const place *where, int number, int base)
{
    const tensor *t = &tensors[name];
    box whole = *b;
    m->chip->unwanted[name] = 0;
    for (int k = 0; k < t->rank; k++)
        if (k != t->axis) whole.first[k] = 0, whole.stop[k] = t->shape[k];
    const int first = t->axis < 0 ? 0 : b->first[t->axis], stop = t->axis < 0 ? 1 : b->stop[t->axis];
    const int fits = row_bytes(t, &whole) <= where->slot_bytes;
    for (int row = first; row < stop; row++) {
        const int slot = (number + row - first) % where->slots;
        piece *p = &m->chip->pieces[base + slot];
        box frame = fits ? whole : *b;
        const int here = p->name == name && p->row == row;
        int same = here;
        if (here && !fits) { /* a part that has room beside what the slot holds of the row joins it */
            box both = frame;
            for (int k = 0; k < t->rank; k++) {
                if (k == t->axis) continue;
                both.first[k] = smaller(both.first[k], p->frame.first[k]);
                both.stop[k] = larger(both.stop[k], p->frame.stop[k]);
            }
            if (row_bytes(t, &both) <= where->slot_bytes) {
                frame = both;
            } else {
                same = 0;
            }
        }
        if (row_bytes(t, &frame) > where->slot_bytes) m->chip->overrun = name + 1;
        const piece before = *p;
        p->name = name, p->row = row;
        p->start = (char *)m->arena + (where->address + (size_t)slot * where->slot_bytes) * SCALE;
        set_frame(t, p, &frame);
        if (same && memcmp(p->step, before.step, sizeof p->step) |
                        memcmp(p->frame.first, before.frame.first, sizeof p->frame.first)) {
            piece aside = before;
            aside.start = m->chip->spare;
            memcpy(aside.start, before.start, row_elements(t, &before.frame) * (size_t)t->size);
            move_row(t, p, &aside);
        }
        m->chip->rows[t->rows + row] = p;
    }
}

/* The bytes of a tensor in its memory. */
static char *memory_of(const context *m, const tensor *t)
{
    if (t->memory == IN_L2) return m->chip->l2 + t->at;
    return t->memory == IN_WEIGHTS ? (char *)(uintptr_t)m->weights + t->at : (char *)m->maps + t->at;
}

static void dram_load(const context *m, void *to, const char *from, size_t bytes)
{
    (void)m;
    SHOW(from, bytes);
    memcpy(to, from, bytes);
    HIDE(from, bytes);
}

static void dram_store(const context *m, char *to, const void *from, size_t bytes)
{
    (void)m;
    SHOW(to, bytes);
    memcpy(to, from, bytes);
    HIDE(to, bytes);
}

/* Where an element lies that is read through operators that only move data. */
static char *element_of(const context *m, const tensor *t, const int *at)
{
    const fragment *stop = &fragments[t->fragments + t->fragment_count];
    for (const fragment *p = &fragments[t->fragments]; p < stop; p++) {
        int left[RANK], inside = 1;
        for (int k = 0; k < t->rank; k++) {
            inside &= p->frame.first[k] <= at[k] && at[k] < p->frame.stop[k];
            left[k] = at[k] - p->frame.first[k];
        }
        if (!inside) continue;
        ptrdiff_t away = p->offset;
        for (const counter *c = &counters[p->counters]; c < &counters[p->counters + p->counter_count]; c++) {
            away += left[c->axis] % c->count * c->stride;
            left[c->axis] /= c->count;
        }
        return memory_of(m, &tensors[p->source]) + away * t->size;
    }
    return (char *)missing(m, (int)(t - tensors));
}

/* Move the elements of a box between their memory, where they lie in ONNX's order, and a piece. Gives their
   number. */
static size_t copied(const context *m, const tensor *t, const box *b, const piece *p, int store)
{
    int at[RANK], inner = t->rank - 1;
    size_t run = 1, count = 0;
    for (int k = 0; k < t->rank; k++) {
        at[k] = b->first[k];
        if (extent(b, k) <= 0) return 0;
    }
    if (inner >= 0 && inner != t->axis && !t->fragment_count) run = (size_t)extent(b, inner);
    else inner = t->rank;
    for (;;) {
        size_t away = 0, here = 0;
        for (int k = 0; k < t->rank; k++) {
            away = away * (size_t)t->shape[k] + (size_t)at[k];
            here += (size_t)((at[k] - p->frame.first[k]) * p->step[k]);
        }
        char *outside = t->fragment_count ? element_of(m, t, at) : memory_of(m, t) + away * (size_t)t->size;
        char *inside = p->start + here * (size_t)t->size;
        if (t->memory == IN_L2)
            memcpy(store ? outside : inside, store ? inside : outside, run * (size_t)t->size);
        else if (store) dram_store(m, outside, inside, run * (size_t)t->size);
        else dram_load(m, inside, outside, run * (size_t)t->size);
        count += run;
        int k = inner < t->rank ? inner - 1 : t->rank - 1;
        for (; k >= 0; k--) {
            if (++at[k] < b->stop[k]) break;
            at[k] = b->first[k];
        }
        if (k < 0) return count;
    }
}

/* Bytes that so many elements of a tensor take, side by side. */
static uint64_t padded(const tensor *t, size_t elements)
{
    const size_t align = (size_t)t->align, bytes = (elements * (size_t)t->bits + 7) / 8;
    return (bytes + align - 1) / align * align;
}

/* Whether a piece holds a part of one row of a map. */
static int holds(const piece *p, int name, const box *part, int row)
{
    const tensor *t = &tensors[name];
    if (!p || p->name != name || p->row != row) return 0;
    for (int k = 0; k < t->rank; k++) {
        if (k == t->axis) continue;
        if (part->first[k] < p->frame.first[k] || p->frame.stop[k] < part->stop[k]) return 0;
    }
    return 1;
}

/* Load or store a box of a map, row by row, and count what was moved. */
static void move_map(const context *m, int store, int name, int kind, const box *b, const place *where,
                     int number, int base)
{
    const tensor *t = &tensors[name];
    const int first = t->axis < 0 ? 0 : b->first[t->axis], stop = t->axis < 0 ? 1 : b->stop[t->axis];
    for (int row = first; row < stop; row++) {
        box part = *b;
        if (t->axis >= 0) part.first[t->axis] = row, part.stop[t->axis] = row + 1;
        if (!store) claim(m, name, &part, where, number + row - first, base);
        const piece *p = m->chip->rows[t->rows + row];
        if (!holds(p, name, &part, row)) {
            missing(m, name);
            return;
        }
        m->chip->bytes[kind] += padded(t, copied(m, t, &part, p, store));
    }
}

/* The newest piece, or any other, that holds a part of one row of a map; 0 if there is none. */
static const piece *piece_of(const context *m, int name, const box *part, int row)
{
    const tensor *t = &tensors[name];
    const piece *last = m->chip->rows[t->rows + row];
    for (int n = -1; n < PIECES; n++) {
        const piece *p = n < 0 ? last : &m->chip->pieces[n];
        if (holds(p, name, part, row)) return p;
    }
    return 0;
}

/* Copy a box of a map, row by row, from where it lies in the buffer to the slots of a place. */
static void carry(const context *m, int name, const box *b, const place *where, int number, int base)
{
    const tensor *t = &tensors[name];
    const int first = t->axis < 0 ? 0 : b->first[t->axis], stop = t->axis < 0 ? 1 : b->stop[t->axis];
    for (int row = first; row < stop; row++) {
        box part = *b;
        if (t->axis >= 0) part.first[t->axis] = row, part.stop[t->axis] = row + 1;
        const piece *from = piece_of(m, name, &part, row);
        if (!from) {
            missing(m, name);
            return;
        }
        piece here = *from, aside;
        here.frame = part;
        for (int k = 0; k < t->rank; k++)
            here.start += (part.first[k] - from->frame.first[k]) * from->step[k] * t->size;
        aside.start = m->chip->spare;
        set_frame(t, &aside, &part);
        move_row(t, &aside, &here);
        claim(m, name, &part, where, number + row - first, base);
        move_row(t, m->chip->rows[t->rows + row], &aside);
    }
}

/* Load a block of a constant into a slot. */
static void load_block(const context *m, int name, int kind, const box *b, const place *where, int number,
                       size_t offset, int base)
{
    const tensor *t = &tensors[name];
    const int slot = number % where->slots;
    piece *p = &m->chip->pieces[base + slot];
    p->name = name, p->row = 0;
    p->start = (char *)m->arena + (where->address + (size_t)slot * where->slot_bytes + offset) * SCALE;
    set_frame(t, p, b);
    const size_t count = copied(m, t, b, p, 0);
    if (offset + padded(t, count) > where->slot_bytes) m->chip->overrun = name + 1;
    m->chip->bytes[kind] += padded(t, count);
}

/* Count what a Gather has picked, in runs of so many elements that lie side by side. */
static void count_picked(const context *m, int name, int kind, size_t run)
{
    const tensor *t = &tensors[name];
    const size_t picked = m->chip->picked;
    m->chip->bytes[kind] += picked / run * padded(t, run) + padded(t, picked % run);
    m->chip->picked = 0;
}

/* Load bytes `first` up to `stop` of an operator's parameters into their store. */
static void load_parameters(const context *m, int name, int kind, size_t first, size_t stop)
{
    const size_t bytes = stop - first;
    if (m->chip->stored + bytes > sizeof m->chip->parameters) {
        m->chip->overrun = name + 1;
        return;
    }
    dram_load(m, m->chip->parameters + m->chip->stored, memory_of(m, &tensors[name]) + first, bytes);
    m->chip->stored += bytes;
    m->chip->held[name] += bytes;
    m->chip->bytes[kind] += bytes;
}

/* What was in the store for parameters is gone: others come. */
static inline void forget_parameters(const context *m)
{
    m->chip->stored = 0;
    memset(m->chip->held, 0, sizeof m->chip->held);
}

/* An operator can compute only while all its parameters are in their store. */
static inline void needs_parameters(const context *m, int name)
{
    if (m->chip->held[name] < (size_t)tensors[name].shape[0]) missing(m, name);
}
