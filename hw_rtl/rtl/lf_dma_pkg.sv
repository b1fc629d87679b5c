// Types that the units of the DMA share.
package lf_dma_pkg;
  import lf_isa_pkg::*;

  parameter int unsigned MaxBeats = 64;  // of one request; none crosses a multiple of it, so none of 4 KiB
  parameter int unsigned Outstanding = 4;  // requests under way, reads and writes each
  parameter int unsigned BeatWidth = 38;  // bits of a beat's number in DRAM: sums of a transfer's fields fit
  parameter int unsigned LengthWidth = 34;  // bits of a number of beats that follow one another
  parameter int unsigned PlaceWidth = 35;  // bits of a word's number on chip: sums of a transfer's fields fit

  // A LOAD or STORE ready to run: its descriptor, and what follows from it for the rows of the command.
  typedef struct packed {
    class_e                 class_;
    space_e                 space;
    logic [11:0]            rows;
    logic [9:0]             blocks;
    logic [19:0]            columns;
    logic [6:0]             tail;          // bytes of a column in the last block
    logic [BeatWidth-1:0]   beat;          // first beat of the first row
    logic [19:0]            row_beats;     // from row to row in DRAM
    logic [19:0]            block_beats;   // from block to block in DRAM
    logic                   merge_blocks;  // the blocks of a row follow one another in DRAM
    logic                   merge_rows;    // and so do the rows
    logic [23:0]            full_beats;    // of one block of a row, if it is not the last
    logic [23:0]            tail_beats;    // of the last block of a row
    logic [LengthWidth-1:0] line_beats;    // of all blocks of a row
    logic [LengthWidth-1:0] first_beats;   // of the first stretch that follows one another in DRAM
    logic [4:0]             rest_bytes;    // of the last beat of a row: 1 to 16, the others are padding
    logic [11:0]            slots;
    logic [11:0]            slot;          // of the first row
    logic [PlaceWidth-1:0]  base;          // word of slot 0, in the block where the row begins
    logic [PlaceWidth-1:0]  place;         // word of the first row's slot
    logic [19:0]            slot_words;
    logic [19:0]            block_words;
  } job_t;

  // The rows of a transfer, as their beats come from DRAM.
  typedef struct packed {
    logic [11:0] rows;
    logic [33:0] line_beats;  // of a row
    logic [4:0]  rest_bytes;  // of the last beat of a row
  } rows_t;

  // What the sequencer puts in a queue.
  typedef struct packed {
    logic [5:0]       descriptor;
    logic [15:0]      row;
    logic [11:0]      count;
    logic [15:0]      slot;
    logic [9:0]       from_block;
    logic [9:0]       to_block;
    logic [7:0]       factor;
    logic [2:0]       wait_valid;  // LOAD, STORE, EXEC: whether to wait for that queue
    logic [2:0][15:0] target;      // commands of that queue that must be finished, modulo 2**16
  } entry_t;

  // A piece of DRAM to read or write.
  typedef struct packed {
    logic [27:0] beat;  // byte address / 16
    logic [6:0]  beats; // 1 to MaxBeats
    class_e      class_;
    logic        last;  // of its command
  } request_t;

  // Beats of DRAM that may be touched: first .. limit - 1.
  typedef struct packed {
    logic [28:0] first;
    logic [28:0] limit;
  } region_t;

  // An error, as STATUS shows it.
  typedef struct packed {
    logic        valid;
    error_e      code;
    logic [31:0] index;  // commands (words) that came before the one at fault
  } fault_t;
endpackage
