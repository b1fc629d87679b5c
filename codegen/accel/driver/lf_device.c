#include "lf_device.h"

enum { ADLER_BASE = 65521, ADLER_RUN = 5552 /* bytes whose sums cannot overflow */, BYTES_OF_WORD = 4 };

/* ---- registers ---- */

static uint32_t get(const struct lf_device *device, uint32_t offset) {
    return device->platform.read(device->platform.context, offset);
}

static void set(const struct lf_device *device, uint32_t offset, uint32_t value) {
    device->platform.write(device->platform.context, offset, value);
}

static void mask(const struct lf_device *device, bool interrupts) {
    set(device, LF_REG_INTERRUPT_ENABLE, interrupts ? LF_INTERRUPT_ENABLE_DONE : 0);
}

static void barrier(const struct lf_device *device) {
    if (device->platform.barrier) {
        device->platform.barrier(device->platform.context);
    }
}

static void clean(const struct lf_device *device, uint32_t address, uint32_t bytes) {
    if (device->platform.clean && bytes) {
        device->platform.clean(device->platform.context, device->memory.data + address, bytes);
    }
}

static bool waited(const struct lf_device *device) {
    return !device->platform.wait || device->platform.wait(device->platform.context);
}

/* ---- manifests: words of 32 bits, little-endian, wherever they lie ---- */

static uint32_t word(const uint8_t *manifest, uint32_t number) {
    const uint8_t *at = manifest + (size_t)number * BYTES_OF_WORD;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t adler32(const uint8_t *data, size_t bytes) {
    uint32_t a = 1;
    uint32_t b = 0;
    while (bytes) {
        size_t run = bytes < ADLER_RUN ? bytes : ADLER_RUN;
        bytes -= run;
        for (; run; --run) {
            a += *data++;
            b += a;
        }
        a %= ADLER_BASE;
        b %= ADLER_BASE;
    }
    return b << 16 | a;
}

static struct lf_map map_at(const uint8_t *manifest, uint32_t number) {
    const uint32_t at = LF_MANIFEST_WORDS + number * LF_MAP_WORDS;
    struct lf_map map;
    map.address = word(manifest, at + LF_MAP_ADDRESS);
    map.channels = word(manifest, at + LF_MAP_CHANNELS);
    map.rows = word(manifest, at + LF_MAP_ROWS);
    map.columns = word(manifest, at + LF_MAP_COLUMNS);
    map.row_bytes = word(manifest, at + LF_MAP_ROW_BYTES);
    map.is_signed = word(manifest, at + LF_MAP_SIGNED) != 0;
    return map;
}

/* Whether a map lies where maps lie, and its elements lie in it. No product overflows: sizes are below 2^32,
   and checked one by one. */
static bool map_fits(const uint8_t *manifest, const struct lf_map *map) {
    const uint64_t end = word(manifest, LF_MANIFEST_MEMORY_BYTES);
    const uint64_t row = (uint64_t)map->channels * map->columns;
    if (!map->channels || !map->rows || !map->columns || row > map->row_bytes) {
        return false;
    }
    return map->address % LF_BEAT_BYTES == 0 && map->row_bytes % LF_BEAT_BYTES == 0 &&
           map->address >= word(manifest, LF_MANIFEST_MAPS_ADDRESS) && map->address <= end &&
           (uint64_t)map->rows * map->row_bytes <= end - map->address;
}

static bool is_manifest(const uint8_t *manifest, size_t bytes) {
    if (bytes < LF_MANIFEST_WORDS * BYTES_OF_WORD || bytes % BYTES_OF_WORD ||
        word(manifest, LF_MANIFEST_MAGIC) != LF_MANIFEST_MAGIC_VALUE ||
        word(manifest, LF_MANIFEST_BYTES) != bytes) {
        return false;
    }
    const size_t summed = (LF_MANIFEST_CHECKSUM + 1) * BYTES_OF_WORD;
    const uint64_t maps = (uint64_t)word(manifest, LF_MANIFEST_INPUTS) + word(manifest, LF_MANIFEST_OUTPUTS);
    if (adler32(manifest + summed, bytes - summed) != word(manifest, LF_MANIFEST_CHECKSUM) ||
        bytes / BYTES_OF_WORD - LF_MANIFEST_WORDS != maps * LF_MAP_WORDS) {
        return false;
    }
    /* Program, constants and maps follow one another. */
    const uint64_t program = word(manifest, LF_MANIFEST_PROGRAM_ADDRESS);
    const uint64_t constants = word(manifest, LF_MANIFEST_CONSTANTS_ADDRESS);
    const uint64_t first_map = word(manifest, LF_MANIFEST_MAPS_ADDRESS);
    const uint32_t program_bytes = word(manifest, LF_MANIFEST_PROGRAM_BYTES);
    if (!program_bytes || program_bytes % LF_WORD_BYTES || program % LF_WORD_BYTES ||
        program + program_bytes > constants ||
        constants + word(manifest, LF_MANIFEST_CONSTANTS_BYTES) > first_map ||
        first_map > word(manifest, LF_MANIFEST_MEMORY_BYTES)) {
        return false;
    }
    for (uint32_t k = 0; k < maps; ++k) {
        const struct lf_map map = map_at(manifest, k);
        if (!map_fits(manifest, &map)) {
            return false;
        }
    }
    return true;
}

/* ---- what the accelerator is, and what it runs ---- */

enum lf_result lf_init(struct lf_device *device, const struct lf_platform *platform) {
    device->platform = *platform;
    device->manifest = NULL;
    device->pending = 0;
    device->watchdog = LF_RESET_WATCHDOG;
    device->cycle_limit = LF_RESET_CYCLE_LIMIT;
    if (get(device, LF_REG_ID) != LF_FIXED_ID) {
        return LF_NO_DEVICE;
    }
    if (get(device, LF_REG_VERSION) != LF_FIXED_VERSION) {
        return LF_WRONG_VERSION;
    }
    device->lanes = get(device, LF_REG_CAPABILITY) & LF_CAPABILITY_LANES;
    device->buffer_bytes = get(device, LF_REG_BUFFER_BYTES);
    return lf_abort(device);
}

enum lf_result lf_load(struct lf_device *device, const struct lf_stream *stream,
                       const struct lf_memory *memory) {
    const uint8_t *manifest = stream->manifest;
    if (lf_is_busy(device)) {
        return LF_BUSY;
    }
    device->manifest = NULL;
    if (!is_manifest(manifest, stream->manifest_bytes)) {
        return LF_BAD_MANIFEST;
    }
    if (word(manifest, LF_MANIFEST_ISA) != get(device, LF_REG_ISA) ||
        word(manifest, LF_MANIFEST_LANES) != device->lanes ||
        word(manifest, LF_MANIFEST_BUFFER_BYTES) > device->buffer_bytes) {
        return LF_OTHER_DEVICE;
    }
    if (word(manifest, LF_MANIFEST_PROGRAM_BYTES) != stream->program_bytes ||
        word(manifest, LF_MANIFEST_CONSTANTS_BYTES) != stream->constants_bytes ||
        adler32(stream->program, stream->program_bytes) != word(manifest, LF_MANIFEST_PROGRAM_CHECKSUM) ||
        adler32(stream->constants, stream->constants_bytes) !=
            word(manifest, LF_MANIFEST_CONSTANTS_CHECKSUM)) {
        return LF_BAD_CHECKSUM;
    }
    const uint32_t bytes = word(manifest, LF_MANIFEST_MEMORY_BYTES);
    if (bytes > memory->bytes || memory->address % LF_PAGE_BYTES || bytes > UINT32_MAX - memory->address) {
        return LF_NO_ROOM;
    }
    device->memory = *memory;
    const uint32_t program = word(manifest, LF_MANIFEST_PROGRAM_ADDRESS);
    const uint32_t constants = word(manifest, LF_MANIFEST_CONSTANTS_ADDRESS);
    /* Written one by one, so that no compiler makes a call of memcpy of it. */
    volatile uint8_t *to = memory->data;
    for (size_t k = 0; k < stream->program_bytes; ++k) {
        to[program + k] = stream->program[k];
    }
    for (size_t k = 0; k < stream->constants_bytes; ++k) {
        to[constants + k] = stream->constants[k];
    }
    clean(device, program, (uint32_t)stream->program_bytes);
    clean(device, constants, (uint32_t)stream->constants_bytes);
    device->manifest = manifest;
    return LF_OK;
}

static enum lf_result map_of(const struct lf_device *device, uint32_t number, uint32_t first, uint32_t maps,
                             struct lf_map *map) {
    if (number >= maps) {
        return LF_NO_SUCH_MAP;
    }
    *map = map_at(device->manifest, first + number);
    return LF_OK;
}

enum lf_result lf_input(const struct lf_device *device, uint32_t number, struct lf_map *map) {
    return device->manifest ? map_of(device, number, 0, word(device->manifest, LF_MANIFEST_INPUTS), map)
                            : LF_NOT_LOADED;
}

enum lf_result lf_output(const struct lf_device *device, uint32_t number, struct lf_map *map) {
    if (!device->manifest) {
        return LF_NOT_LOADED;
    }
    return map_of(device, number, word(device->manifest, LF_MANIFEST_INPUTS),
                  word(device->manifest, LF_MANIFEST_OUTPUTS), map);
}

/* Where an element lies: rows hold blocks of `lanes` channels, blocks hold columns, and the last block has
   only the lanes that it needs. */
static size_t place(const struct lf_device *device, const struct lf_map *map, uint32_t channel, uint32_t row,
                    uint32_t column) {
    const uint32_t first = channel / device->lanes * device->lanes;
    const uint32_t lanes = map->channels - first < device->lanes ? map->channels - first : device->lanes;
    return map->address + (size_t)row * map->row_bytes + (size_t)first * map->columns +
           (size_t)column * lanes + (channel - first);
}

void lf_pack(const struct lf_device *device, const struct lf_map *map, const void *elements) {
    const uint8_t *from = elements;
    for (uint32_t c = 0; c < map->channels; ++c) {
        for (uint32_t y = 0; y < map->rows; ++y) {
            for (uint32_t x = 0; x < map->columns; ++x) {
                device->memory.data[place(device, map, c, y, x)] = *from++;
            }
        }
    }
}

void lf_unpack(const struct lf_device *device, const struct lf_map *map, void *elements) {
    uint8_t *to = elements;
    for (uint32_t c = 0; c < map->channels; ++c) {
        for (uint32_t y = 0; y < map->rows; ++y) {
            for (uint32_t x = 0; x < map->columns; ++x) {
                *to++ = device->memory.data[place(device, map, c, y, x)];
            }
        }
    }
}

/* ---- runs ---- */

enum lf_result lf_start(struct lf_device *device) {
    const uint8_t *manifest = device->manifest;
    if (!manifest) {
        return LF_NOT_LOADED;
    }
    if (lf_is_busy(device)) {
        return LF_BUSY;
    }
    const uint32_t maps = word(manifest, LF_MANIFEST_MAPS_ADDRESS);
    const uint32_t end = word(manifest, LF_MANIFEST_MEMORY_BYTES);
    /* Inputs; and no line of an output may be written back over what the accelerator writes. */
    clean(device, maps, end - maps);
    set(device, LF_REG_DRAM_OFFSET, device->memory.address);
    set(device, LF_REG_PROGRAM_ADDRESS, word(manifest, LF_MANIFEST_PROGRAM_ADDRESS));
    set(device, LF_REG_PROGRAM_WORDS, word(manifest, LF_MANIFEST_PROGRAM_BYTES) / LF_WORD_BYTES);
    set(device, LF_REG_READ_BASE, 0);
    set(device, LF_REG_READ_LIMIT, end);
    set(device, LF_REG_WRITE_BASE, maps);
    set(device, LF_REG_WRITE_LIMIT, end);
    set(device, LF_REG_WATCHDOG, device->watchdog);
    set(device, LF_REG_CYCLE_LIMIT, device->cycle_limit);
    mask(device, false);
    lf_interrupt(device);
    device->pending = 0;
    mask(device, device->platform.interrupts);
    barrier(device);
    set(device, LF_REG_CONTROL, LF_CONTROL_START | LF_CONTROL_CLEAR);
    return LF_OK;
}

bool lf_is_busy(const struct lf_device *device) {
    return (get(device, LF_REG_STATUS) & LF_STATUS_BUSY) != 0;
}

uint32_t lf_interrupt(struct lf_device *device) {
    const uint32_t found = get(device, LF_REG_INTERRUPT_PENDING);
    set(device, LF_REG_INTERRUPT_PENDING, found);
    device->pending |= found;
    return found;
}

enum lf_result lf_wait(struct lf_device *device) {
    if (!device->manifest) {
        return LF_NOT_LOADED;
    }
    while (lf_is_busy(device)) {
        if (!waited(device)) {
            return LF_GAVE_UP;
        }
    }
    if (!device->platform.interrupts) {
        lf_interrupt(device);
    }
    barrier(device);
    const uint32_t maps = word(device->manifest, LF_MANIFEST_MAPS_ADDRESS);
    const uint32_t end = word(device->manifest, LF_MANIFEST_MEMORY_BYTES);
    if (device->platform.invalidate && end > maps) {
        device->platform.invalidate(device->platform.context, device->memory.data + maps, end - maps);
    }
    return get(device, LF_REG_STATUS) & LF_STATUS_FAILED ? LF_FAILED : LF_OK;
}

enum lf_result lf_run(struct lf_device *device) {
    const enum lf_result started = lf_start(device);
    return started == LF_OK ? lf_wait(device) : started;
}

enum lf_result lf_abort(struct lf_device *device) {
    mask(device, device->platform.interrupts);
    if (lf_is_busy(device)) {
        set(device, LF_REG_CONTROL, LF_CONTROL_ABORT);
    }
    while (lf_is_busy(device)) {
        if (!waited(device)) {
            return LF_GAVE_UP;
        }
    }
    mask(device, false);
    lf_interrupt(device);
    barrier(device);
    return get(device, LF_REG_STATUS) & LF_STATUS_BUS ? LF_DEAD_BUS : LF_OK;
}

/* ---- how it went ---- */

uint64_t lf_read_counter(const struct lf_device *device, enum lf_counter counter) {
    const uint32_t low = LF_REG_COUNTERS + (uint32_t)counter * 2 * BYTES_OF_WORD;
    for (;;) { /* the low half may overflow between two reads */
        const uint32_t before = get(device, low + BYTES_OF_WORD);
        const uint32_t found = get(device, low);
        if (get(device, low + BYTES_OF_WORD) == before) {
            return (uint64_t)before << 32 | found;
        }
    }
}

struct lf_fault lf_last_fault(const struct lf_device *device) {
    const uint32_t error = get(device, LF_REG_ERROR);
    struct lf_fault fault;
    fault.code = (enum lf_error)(error & LF_ERROR_CODE);
    fault.queue = (enum lf_queue)((error & LF_ERROR_QUEUE) >> LF_ERROR_QUEUE_SHIFT);
    fault.index = get(device, LF_REG_ERROR_INDEX);
    return fault;
}

#define TEXT(name, number, text) \
    case number:                 \
        return text;

const char *lf_error_text(enum lf_error code) {
    switch ((uint32_t)code) {
        LF_EACH_ERROR(TEXT)
    default:
        return "unknown error";
    }
}

const char *lf_queue_text(enum lf_queue queue) {
    switch ((uint32_t)queue) {
        LF_EACH_QUEUE(TEXT)
    default:
        return "unknown queue";
    }
}

const char *lf_result_text(enum lf_result result) {
    switch (result) {
    case LF_OK:
        return "done";
    case LF_NO_DEVICE:
        return "there is no accelerator at this address";
    case LF_WRONG_VERSION:
        return "the accelerator's registers are not those that this driver was made for";
    case LF_BUSY:
        return "a run is under way";
    case LF_NOT_LOADED:
        return "no command stream is loaded";
    case LF_BAD_MANIFEST:
        return "the manifest is damaged, or none";
    case LF_BAD_CHECKSUM:
        return "program or constants are not those of the manifest";
    case LF_OTHER_DEVICE:
        return "the program is for another instruction set, other lanes or a larger buffer";
    case LF_NO_ROOM:
        return "the memory is too small, or does not begin at a page";
    case LF_NO_SUCH_MAP:
        return "the network has fewer inputs or outputs";
    case LF_FAILED:
        return "the run was stopped";
    case LF_GAVE_UP:
        return "the platform did not wait any longer";
    case LF_DEAD_BUS:
        return "memory does not answer";
    }
    return "unknown result";
}
