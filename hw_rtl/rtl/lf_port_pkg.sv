// Ports between the units of the core: a structure for all that goes one way. Where there are valid and
// ready, a thing is accepted when both are high.
package lf_port_pkg;
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;

  // -- Memory -----------------------------------------------------------------------------------------------

  // Beats of memory that are asked for, or offered.
  typedef struct packed {
    logic        valid;
    logic [31:0] addr;   // bytes; a multiple of 16
    logic [7:0]  beats;  // 1 to 64; never across 4 KiB
  } burst_t;

  typedef struct packed {
    logic         valid;
    logic [127:0] data;
    logic         err;
  } read_beat_t;

  typedef struct packed {
    logic         valid;
    logic [127:0] data;
    logic [15:0]  strb;
    logic         last;  // of its burst
  } write_beat_t;

  // One for each burst that is written, in order, always accepted.
  typedef struct packed {
    logic valid;
    logic err;
  } write_response_t;

  // What crosses the memory port in a cycle.
  typedef struct packed {
    logic   read;  // a beat that was asked for
    class_e read_class;
    logic   written;  // a beat with strobes
    class_e written_class;
    logic   moved;  // anything at all
  } port_events_t;

  // -- Registers, and the run -------------------------------------------------------------------------------

  // One access a cycle, always accepted.
  typedef struct packed {
    logic        valid;
    logic        write;
    logic [11:0] addr;  // bytes; the lowest two bits are ignored
    logic [31:0] wdata;
  } register_access_t;

  // What software sets for a run. It stays as it is while the core is busy.
  typedef struct packed {
    logic [31:$clog2(PageBytes)] dram_offset;  // pages of DRAM before address 0
    logic [27:0] program_beat;   // of the first word
    logic [31:0] program_words;
    region_t     read_region;
    region_t     write_region;
    logic [31:0] watchdog;       // cycles of silence; 0: never
    logic [31:0] cycle_limit;    // of a run; 0: never
  } settings_t;

  // How a run goes, or went.
  typedef struct packed {
    logic        busy;
    logic        done;
    logic        failed;
    error_e      error;
    queue_e      found_by;
    logic [31:0] index;
  } outcome_t;

  // -- Program and queues -----------------------------------------------------------------------------------

  typedef struct packed {
    logic         valid;
    logic [127:0] word;
  } program_word_t;

  // What becomes of the word that is there.
  typedef struct packed {
    logic        take;    // it is run in this cycle
    logic        jump;    // level: once it is run, target is wanted, and not the word that follows
    logic [31:0] target;  // a word that has been run before
    logic [31:0] keep;    // the first word that may be wanted again
  } program_step_t;

  typedef struct packed {
    logic                   valid;
    logic [5:0]             descriptor;
    logic [PayloadBits-1:0] payload;
  } describe_port_t;

  // The head of a queue: it stays until it is taken.
  typedef struct packed {
    logic   valid;      // its descriptor has been read
    logic   may_start;  // its waits are over
    entry_t entry;
  } head_t;

  typedef struct packed {
    logic [31:0] completed;  // commands that are finished
    logic        empty;      // nothing waits, nothing is under way
    logic        idle;       // nothing is under way
  } queue_state_t;

  // The computation at the head of its queue, moved by the numbers of its command.
  typedef struct packed {
    logic         valid;  // it stays so until it is taken
    logic         bad;    // level: it cannot run, for this error
    error_e       error;
    computation_t d;
  } prepared_t;

  // -- On chip ----------------------------------------------------------------------------------------------

  // Words of the buffer that are asked for: those of the window from `word` on that `mask` names.
  typedef struct packed {
    logic              valid;
    logic [19:0]       word;
    logic [Window-1:0] mask;
  } buffer_request_t;

  // In the same cycle. What is read is there in the next.
  typedef struct packed {
    logic grant;
    logic fault;  // granted, but a word lies behind the end: nothing is read or written
  } buffer_response_t;

  // A word that goes to the factors, or the tables; its data goes beside it.
  typedef struct packed {
    logic        valid;
    space_e      space;
    logic [19:0] word;
  } aux_write_t;

  // What the compute engine does in a cycle.
  typedef struct packed {
    logic busy;
    logic moved;  // it came a step on, with or without the buffer
    logic array_active;
    logic weight_stall;
    logic buffer_stall;
    logic drain_stall;
  } exec_events_t;
endpackage
