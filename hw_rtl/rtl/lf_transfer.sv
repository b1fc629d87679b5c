// What loads and stores have in common: prepares the head of the queue, asks for its beats, walks over its
// words, and counts commands.
//
// Three commands may be in work at once: one is being prepared, one asks for its beats, the words of one are
// moved. What is prepared waits where requests are made, so that the first is made when the command starts.
`include "lf_assert.svh"

module lf_transfer
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384,
  parameter bit Store = 1'b0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               stop_i,       // begin nothing more, move nothing more
  input  region_t            region_i,
  // Head of the queue. may_start_i: its waits are over. It stays until take_o.
  input  logic               head_valid_i,
  input  logic               may_start_i,
  input  transfer_t          transfer_i,
  input  entry_t             entry_i,
  output logic               take_o,
  input  logic               done_i,       // pulse: the oldest command not yet done is finished
  input  logic               bus_error_i,
  output fault_t             fault_o,      // level
  // Requests. Accepted when valid and ready.
  output logic               request_valid_o,
  output request_t           request_o,
  input  logic               request_ready_i,
  // Words, as lf_words walks over them.
  output logic               start_o,      // pulse: the words of a command begin, whose rows are these
  output rows_t              rows_o,
  output logic               valid_o,      // there is a word, and it may be moved
  output logic [19:0]        word_o,
  output logic [6:0]         lanes_o,
  output logic [Lanes*8-1:0] mask_o,
  output space_e             space_o,
  output logic               row_end_o,
  output logic               last_o,
  input  logic               step_i
);
  // Jobs: ready -> loaded -> asking, next -> moved.
  job_t        ready_job;
  logic        ready;
  logic        bad;
  logic        asking_idle;
  logic        asking_loaded;
  logic        outside_dram;
  job_t        next_q;
  logic        next_valid_q;
  logic        active;
  logic        outside_chip;
  logic [31:0] taken_q;
  logic [31:0] finished_q;

  lf_job #(
    .Lanes(Lanes),
    .Store(Store)
  ) u_job (
    .clk_i,
    .rst_ni,
    .valid_i(head_valid_i),
    .transfer_i,
    .entry_i,
    .ready_o(ready),
    .bad_o  (bad),
    .job_o  (ready_job),
    .take_i (take_o)
  );

  // A request that was not made is the newest command's.
  assign take_o = asking_loaded && may_start_i && !outside_dram && !next_valid_q && !stop_i;

  lf_requests u_requests (
    .clk_i,
    .rst_ni,
    .load_i   (ready && asking_idle),
    .job_i    (ready_job),
    .region_i,
    .idle_o   (asking_idle),
    .loaded_o (asking_loaded),
    .start_i  (take_o),
    .outside_o(outside_dram),
    .valid_o  (request_valid_o),
    .request_o,
    .ready_i  (request_ready_i)
  );

  assign start_o = next_valid_q && (!active || (step_i && last_o));
  assign rows_o  = '{rows: next_q.rows, line_beats: next_q.line_beats, rest_bytes: next_q.rest_bytes};
  assign valid_o = active && !outside_chip && !stop_i;

  lf_words #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_words (
    .clk_i,
    .rst_ni,
    .start_i  (start_o),
    .job_i    (next_q),
    .step_i,
    .active_o (active),
    .word_o,
    .outside_o(outside_chip),
    .lanes_o,
    .mask_o,
    .space_o,
    .row_end_o,
    .last_o
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      next_q       <= '0;
      next_valid_q <= 1'b0;
      taken_q      <= '0;
      finished_q   <= '0;
    end else begin
      if (done_i) finished_q <= finished_q + 32'd1;
      if (take_o) begin
        next_q       <= ready_job;
        next_valid_q <= 1'b1;
        taken_q      <= taken_q + 32'd1;
      end else if (start_o) begin
        next_valid_q <= 1'b0;
      end
    end
  end

  always_comb begin
    if (bus_error_i) fault_o = '{valid: 1'b1, code: ErrBus, index: finished_q};
    else if (active && outside_chip) fault_o = '{valid: 1'b1, code: ErrBuffer, index: finished_q};
    else if (outside_dram) fault_o = '{valid: 1'b1, code: ErrRegion, index: taken_q - 32'd1};
    else if (bad && may_start_i) fault_o = '{valid: 1'b1, code: ErrField, index: taken_q};
    else fault_o = '{valid: 1'b0, code: ErrNone, index: finished_q};
  end

  `LF_ASSERT(TakenOnceReady, !take_o || ready, "a transfer starts that is not prepared")
  `LF_ASSERT(DoneOnceTaken, !done_i || finished_q != taken_q, "a transfer is finished that has not started")
endmodule
