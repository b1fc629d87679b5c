// What the units of the compute engine tell one another of a command.
package lf_setup_pkg;
  import lf_isa_pkg::*;
  import lf_reach_pkg::*;

  // Where the rows of a command lie in a ring, in words.
  typedef struct packed {
    logic [31:0] offset;    // of the first row, from the first slot on
    logic [31:0] row_step;  // from a row to the next, modulo the limit
    logic [31:0] limit;     // of all slots
  } ring_t;

  // Bytes of weights of a block of output channels. All ones: too many.
  typedef struct packed {
    logic [39:0] skip;   // before the kernel rows that meet the operand
    logic [39:0] bytes;  // in these
  } weight_bytes_t;

  // A command that is set up.
  typedef struct packed {
    logic [11:0]        count;        // rows
    logic [9:0]         columns;      // of all rows
    logic [11:0]        kernel_rows;  // that meet the operand; 0 or more
    logic signed [22:0] a_row;        // of the first row of the result and the first of these kernel rows
    reach_t             reach;
    weight_bytes_t      full_weights;   // of a full block of output channels
    weight_bytes_t      tail_weights;   // of the last one
    logic [31:0]        a_kernel_step;  // words, from a kernel row to the next
    ring_t              a;
    ring_t              b;
    ring_t              o;
    computation_t       d;
  } command_t;

  // What the drain, too, must know of the command whose steps go.
  typedef struct packed {
    logic [9:0]   columns;
    ring_t        b;
    ring_t        o;
    computation_t d;
  } work_t;

  // A block of output channels whose sums the drain is to take.
  typedef struct packed {
    logic [9:0] index;
    logic       bank;  // of the accumulators
    logic       last;  // of the command
  } block_t;

  // What a scaled sum becomes: the byte `low` where twice the sum, rounded down, is below `below`, `high`
  // from `above` on, else the sum plus `zero`.
  typedef struct packed {
    logic [7:0]         zero;
    logic [7:0]         low;
    logic [7:0]         high;
    logic signed [11:0] below;
    logic signed [11:0] above;
  } bounds_t;
endpackage
