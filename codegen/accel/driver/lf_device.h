/*
 * Driver of the accelerator, for bare metal: C99, no heap, no library. See docs/driver.md.
 *
 *     lf_init     finds the accelerator and stops whatever it does
 *     lf_load     checks a command stream and puts it in DRAM
 *     lf_pack     puts an input where the program reads it
 *     lf_run      starts the program and waits for its end; or lf_start and lf_wait
 *     lf_unpack   takes an output
 *
 * Not reentrant, but for lf_interrupt, which an interrupt handler calls.
 */
#ifndef LF_DEVICE_H
#define LF_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lf_manifest.h"
#include "lf_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

enum lf_result {
    LF_OK = 0,
    LF_NO_DEVICE,     /* ID is not that of the accelerator */
    LF_WRONG_VERSION, /* the registers are not those that this driver was made for */
    LF_BUSY,          /* a run is under way */
    LF_NOT_LOADED,    /* there is no command stream */
    LF_BAD_MANIFEST,  /* it is not one, or is damaged, or contradicts itself */
    LF_BAD_CHECKSUM,  /* program or constants are not those of the manifest */
    LF_OTHER_DEVICE,  /* the program is for another instruction set, other lanes or a larger buffer */
    LF_NO_ROOM,       /* the memory is too small, or does not begin at a page */
    LF_NO_SUCH_MAP,   /* the network has fewer inputs or outputs */
    LF_FAILED,        /* the run was stopped: lf_last_fault says why */
    LF_GAVE_UP,       /* the platform's wait did not want to wait any longer */
    LF_DEAD_BUS       /* the run was aborted, and memory still does not answer */
};

/* What the driver needs of its surroundings. Functions may be null but for read and write. */
struct lf_platform {
    void *context; /* the first argument of every function */
    uint32_t (*read)(void *context, uint32_t offset); /* a register */
    void (*write)(void *context, uint32_t offset, uint32_t value);
    /* Memory is written before registers are, and registers are read before memory is. */
    void (*barrier)(void *context);
    /* What the processor wrote goes from its cache to memory. */
    void (*clean)(void *context, const void *from, size_t bytes);
    void (*invalidate)(void *context, void *from, size_t bytes); /* what it reads next comes from memory */
    /* Until an interrupt, or for a while; false: give up. Null: registers are read again and again. */
    bool (*wait)(void *context);
    bool interrupts; /* whether a handler calls lf_interrupt; else the interrupt stays masked */
};

/* Memory that belongs to the accelerator. */
struct lf_memory {
    uint8_t *data;    /* as the processor sees it */
    uint32_t address; /* as the accelerator sees it; a multiple of LF_PAGE_BYTES */
    size_t bytes;
};

/* A command stream, as the files of its folder. It stays where it is: the driver reads the manifest again. */
struct lf_stream {
    const uint8_t *manifest;
    size_t manifest_bytes;
    const uint8_t *program;
    size_t program_bytes;
    const uint8_t *constants;
    size_t constants_bytes;
};

/* An input or output of the network. */
struct lf_map {
    uint32_t address; /* in the memory, from its first byte on */
    uint32_t channels;
    uint32_t rows;
    uint32_t columns;
    uint32_t row_bytes; /* from one row to the next */
    bool is_signed;     /* int8, else uint8 */
};

/* Why a run was stopped. */
struct lf_fault {
    enum lf_error code;
    enum lf_queue queue; /* who found it */
    uint32_t index;      /* commands of that queue (words, of the sequencer) before the one at fault */
};

/* The accelerator. Its fields are the driver's own, but may be read. */
struct lf_device {
    struct lf_platform platform;
    uint32_t lanes;
    uint32_t buffer_bytes;
    /* Cycles of silence, and of a run, before it is stopped; 0: never. May be set before lf_start. */
    uint32_t watchdog;
    uint32_t cycle_limit;
    struct lf_memory memory;
    const uint8_t *manifest; /* null: nothing is loaded */
    volatile uint32_t pending; /* interrupts since the last start: LF_INTERRUPT_PENDING_... */
};

/* Find the accelerator. A run that somebody else left under way is aborted. */
enum lf_result lf_init(struct lf_device *device, const struct lf_platform *platform);

/* Check a command stream, and put it in memory. Nothing is written if it is refused. */
enum lf_result lf_load(struct lf_device *device, const struct lf_stream *stream,
                       const struct lf_memory *memory);

/* The inputs and outputs of what is loaded, by their number. */
enum lf_result lf_input(const struct lf_device *device, uint32_t number, struct lf_map *map);
enum lf_result lf_output(const struct lf_device *device, uint32_t number, struct lf_map *map);

/* Elements [channel][row][column], of one byte, to the map and from it. */
void lf_pack(const struct lf_device *device, const struct lf_map *map, const void *elements);
void lf_unpack(const struct lf_device *device, const struct lf_map *map, void *elements);

/* Run what is loaded. Counters are those of this run. */
enum lf_result lf_start(struct lf_device *device);
enum lf_result lf_wait(struct lf_device *device);
enum lf_result lf_run(struct lf_device *device);

/* Whether a run is under way. */
bool lf_is_busy(const struct lf_device *device);

/* Give up the run, and wait until memory is at rest. The next one may start at once. */
enum lf_result lf_abort(struct lf_device *device);

/* For the interrupt handler: acknowledge what is pending, and say what it was. */
uint32_t lf_interrupt(struct lf_device *device);

/* How the last run went. */
uint64_t lf_read_counter(const struct lf_device *device, enum lf_counter counter);
struct lf_fault lf_last_fault(const struct lf_device *device);

/* For people to read. */
const char *lf_result_text(enum lf_result result);
const char *lf_error_text(enum lf_error code);
const char *lf_queue_text(enum lf_queue queue);

#ifdef __cplusplus
}
#endif

#endif
