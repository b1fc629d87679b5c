// Runs EXEC commands: set-up, columns through the array into the accumulators, drain. Up to four commands are
// inside at once (one set up, one whose windows are found, one whose columns go, one that is drained); they
// finish in order.
`include "lf_assert.svh"

module lf_exec
  import lf_isa_pkg::*;
  import lf_port_pkg::*;
  import lf_setup_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic                                clk_i,
  input  logic                                rst_ni,
  // One command, which is set up as soon as it is there. It is accepted when it may start and ready is high.
  input  logic                                valid_i,
  input  logic                                may_start_i,
  output logic                                ready_o,
  input  computation_t                        descriptor_i,
  input  logic [15:0]                         row_i,
  input  logic [11:0]                         count_i,
  output logic                                done_o,  // pulse: the oldest command not yet done is finished
  output logic                                idle_o,
  output logic                                error_o,  // level; commands before the one at fault are done
  output error_e                              error_code_o,
  // Buffer. Reads: 0 operand, 1 second operand or held sums, 2 weights and bias; which may go first.
  output buffer_request_t [2:0]               rd_o,
  output logic                                rd_first_o,
  input  buffer_response_t [2:0]              rd_response_i,
  input  logic [2:0][Window-1:0][Lanes*8-1:0] rd_data_i,
  output buffer_request_t                     wr_o,
  output logic [Window-1:0][Lanes*8-1:0]      wr_data_o,
  output logic [Lanes-1:0]                    wr_lanes_o,
  input  buffer_response_t                    wr_response_i,
  // Factors and tables, a word of Lanes bytes.
  input  aux_write_t                          aux_i,
  input  logic [Lanes*8-1:0]                  aux_data_i,
  output exec_events_t                        events_o
);
  localparam int unsigned LaneBits = $clog2(Lanes);

  logic   error_q;
  error_e error_code_q;

  // Set-up. The columns, the second operand and the weights take a command each when they are ready for it.
  // The command at the door is known when its set-up has begun; what is set up goes on once it is accepted.
  logic               known_q, accepted_q, offered;
  logic               set_up, set_up_bad, setting_up, set_valid, set_free, set_bad, set_ready, set_busy,
                      set_moved, begins, accept;
  error_e             set_bad_code;
  command_t           set;

  lf_setup #(
    .Lanes(Lanes)
  ) u_setup (
    .clk_i,
    .rst_ni,
    .valid_i   (offered),
    .ready_o   (set_ready),
    .descriptor_i,
    .row_i,
    .count_i,
    .valid_o   (set_up),
    .free_i    (set_free),
    .bad_o     (set_up_bad),
    .bad_code_o(set_bad_code),
    .busy_o    (setting_up),
    .moved_o   (set_moved),
    .command_o (set)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      known_q <= 1'b0;
      accepted_q <= 1'b0;
    end else begin
      known_q <= !accept && (known_q || begins);
      accepted_q <= accept || (accepted_q && !set_free);
    end
  end

  assign offered = valid_i && !known_q && !error_q;
  assign begins = offered && set_ready;
  assign ready_o = (known_q || begins) && !error_q;
  assign accept = ready_o && may_start_i;
  assign set_valid = set_up && accepted_q;
  assign set_bad = set_up_bad && accepted_q;
  assign set_busy = setting_up && accepted_q;

  // Who still has to take the command that is set up.
  logic [2:0] taken_q, take;  // columns, second operand, weights
  logic       columns_free, columns_busy, columns_new, second_busy, weights_busy, reads_second, needs_weights;
  logic [2:0] set_number_q, walk_number_q, columns_number_q, second_number_q, weights_number_q, done_number_q;

  always_comb begin
    reads_second = !set.d.first || needs_second(set.d.operation);
    needs_weights = has_weights(set.d.operation) && set.kernel_rows != '0;
    take[0] = set_valid && !taken_q[0] && columns_free;
    take[1] = set_valid && !taken_q[1] && (!reads_second || !second_busy);
    take[2] = set_valid && !taken_q[2] && (!needs_weights || !weights_busy);
    set_free = set_valid && (taken_q | take) == '1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      taken_q <= '0;
      set_number_q <= '0;
      walk_number_q <= '0;
      columns_number_q <= '0;
      second_number_q <= '0;
      weights_number_q <= '0;
      done_number_q <= '0;
    end else begin
      taken_q <= set_free ? '0 : taken_q | take;
      if (set_free) set_number_q <= set_number_q + 1'b1;
      if (take[0]) walk_number_q <= set_number_q;
      if (columns_new) columns_number_q <= walk_number_q;
      if (take[1] && reads_second) second_number_q <= set_number_q;
      if (take[2] && needs_weights) weights_number_q <= set_number_q;
      if (done_o) done_number_q <= done_number_q + 1'b1;
    end
  end

  // Columns.
  work_t             work;
  buffer_request_t   a, b, w, c;  // operand; second operand or held sums; weights; bias
  logic [2:0]        granted;
  logic              columns_fault, second_fault, weights_fault;
  logic [1:0]        drain_fault;
  logic [1:0][2:0]   drain_fault_number;
  logic              weights_valid;
  logic [1:0]        bank_busy;
  logic              second_ready, issue, final_start, uses_second, second_end, uses_weights, bank;
  step_t             step;
  logic [2:0]        together, shift;
  logic              request_valid, request_ready;
  logic              busy, weight_stall, buffer_stall, drain_stall;
  block_t            request;

  lf_columns #(
    .BufferWords(BufferWords)
  ) u_columns (
    .clk_i,
    .rst_ni,
    .start_i        (take[0]),
    .free_o         (columns_free),
    .command_i      (set),
    .busy_o         (columns_busy),
    .new_o          (columns_new),
    .work_o         (work),
    .together_o     (together),
    .rd_valid_o     (a.valid),
    .rd_word_o      (a.word),
    .rd_mask_o      (a.mask),
    .rd_grant_i     (granted[0]),
    .fault_o        (columns_fault),
    .weights_valid_i(weights_valid),
    .second_i       (second_ready),
    .bank_busy_i    (bank_busy),
    .issue_o        (issue),
    .step_o         (step),
    .shift_o        (shift),
    .final_start_o  (final_start),
    .uses_second_o  (uses_second),
    .second_end_o   (second_end),
    .uses_weights_o (uses_weights),
    .bank_o         (bank),
    .request_valid_o(request_valid),
    .request_ready_i(request_ready),
    .request_o      (request),
    .wait_weights_o (weight_stall),
    .wait_buffer_o  (buffer_stall),
    .wait_drain_o   (drain_stall)
  );

  // A step on its way: issued; its window here, its products found, its sums of four rows, its sums computed,
  // its sums there; they are in the accumulators.
  typedef struct packed {
    logic       valid;  // it makes columns
    logic       first;
    logic       final_pass;
    logic       bank;
    logic       most;
    logic [8:0] column;
    logic [2:0] count;
  } column_t;
  column_t    window_q, products_q, quarters_q, sums_q, grow_q;
  step_t      step_q;
  // start: of a pass with weights; new: the command at work.
  logic       arrived_q, uses_second_q, second_end_q, start_q, new_q;
  logic [2:0] filled_q;
  logic       filled_bank_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      window_q <= '0;
      products_q <= '0;
      quarters_q <= '0;
      sums_q <= '0;
      grow_q <= '0;
      step_q <= '0;
      arrived_q <= 1'b0;
      uses_second_q <= 1'b0;
      second_end_q <= 1'b0;
      start_q <= 1'b0;
      new_q <= 1'b0;
      filled_q <= '0;
      filled_bank_q <= 1'b0;
    end else begin
      new_q <= columns_new;
      step_q <= step;
      arrived_q <= issue;
      uses_second_q <= uses_second;
      second_end_q <= second_end;
      start_q <= issue && step.pass_start && uses_weights;
      window_q <= '{
        valid: issue && !step.fetch,
        first: step.first,
        final_pass: step.final_pass,
        bank: bank,
        most: work.d.operation == 3'(DoMax),
        column: step.column,
        count: step.count
      };
      products_q <= window_q;
      quarters_q <= products_q;
      sums_q <= quarters_q;
      grow_q <= sums_q;
      filled_q <= grow_q.valid && grow_q.final_pass ? grow_q.count : '0;
      filled_bank_q <= grow_q.bank;
    end
  end

  // Second operand.
  logic [Window-1:0][Lanes*8-1:0] second_data;

  lf_second #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_second (
    .clk_i,
    .rst_ni,
    .start_i   (take[1] && reads_second),
    .command_i (set),
    .busy_o    (second_busy),
    .rd_valid_o(b.valid),
    .rd_word_o (b.word),
    .rd_mask_o (b.mask),
    .rd_grant_i(granted[1]),
    .rd_data_i (rd_data_i[1]),
    .fault_o   (second_fault),
    .ready_o   (second_ready),
    .use_i     (issue && uses_second && second_end),
    .pop_i     (arrived_q && uses_second_q && second_end_q),
    .data_o    (second_data)
  );

  // Weights; they share a read port with the drain's bias, which goes first.
  logic                row_valid, row_depthwise, weights_unsigned;
  logic [2:0]          row_together;
  logic [LaneBits-1:0] row;
  logic [Window-1:0][Lanes*8-1:0] row_data;
  logic [2:0]          row_count;
  logic                w_first;
  logic signed [8:0]   weights_zero;

  lf_weights #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_weights (
    .clk_i,
    .rst_ni,
    .start_i        (take[2] && needs_weights),
    .command_i      (set),
    .busy_o         (weights_busy),
    .rd_valid_o     (w.valid),
    .rd_word_o      (w.word),
    .rd_mask_o      (w.mask),
    .rd_first_o     (w_first),
    .rd_grant_i     (granted[2] && !c.valid),
    .rd_data_i      (rd_data_i[2]),
    .fault_o        (weights_fault),
    .row_valid_o    (row_valid),
    .row_o          (row),
    .row_count_o    (row_count),
    .row_depthwise_o(row_depthwise),
    .row_together_o (row_together),
    .row_data_o     (row_data),
    .zero_o         (weights_zero),
    .unsigned_o     (weights_unsigned),
    .valid_o        (weights_valid),
    .take_i         (issue && step.pass_start && uses_weights)
  );

  logic signed [31:0] sum [Window][Lanes];

  lf_array #(
    .Lanes(Lanes)
  ) u_array (
    .clk_i,
    .rst_ni,
    .descriptor_i   (work.d),
    .together_i     (together),
    .start_i        (new_q),
    .valid_i        (arrived_q),
    .fetch_i        (step_q.fetch),
    .window_i       (rd_data_i[0]),
    .present_i      (step_q.present),
    .from_i         (step_q.from),
    .shift_i        (shift),
    .taps_i         (step_q.taps),
    .lanes_i        (step_q.lanes),
    .lane_i         (step_q.lane),
    .pass_start_i   (start_q),
    .first_i        (window_q.first),
    .second_used_i  (uses_second_q),
    .second_i       (second_data),
    .sum_o          (sum),
    .row_valid_i    (row_valid),
    .row_depthwise_i(row_depthwise),
    .row_together_i (row_together),
    .row_i          (row),
    .row_count_i    (row_count),
    .row_data_i     (row_data),
    .zero_i         (weights_zero),
    .unsigned_i     (weights_unsigned)
  );

  logic                sum_read, sum_bank, sum_grant;
  logic [8:0]          sum_column;
  logic [Lanes*32-1:0] sum_data;

  lf_accumulators #(
    .Lanes(Lanes)
  ) u_accumulators (
    .clk_i,
    .rst_ni,
    .valid_i      (grow_q.valid),
    .first_i      (grow_q.first),
    .max_i        (grow_q.most),
    .bank_i       (grow_q.bank),
    .column_i     (grow_q.column),
    .count_i      (grow_q.count),
    .sum_i        (sum),
    .read_i       (sum_read),
    .read_bank_i  (sum_bank),
    .read_column_i(sum_column),
    .read_grant_o (sum_grant),
    .read_data_o  (sum_data)
  );

  logic            drain_busy;
  buffer_request_t drain_wr;

  lf_drain #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_drain (
    .clk_i,
    .rst_ni,
    .request_valid_i(request_valid),
    .request_ready_o(request_ready),
    .request_i      (request),
    .number_i       (columns_number_q),
    .work_i         (work),
    .busy_o         (drain_busy),
    .done_o,
    .final_start_i  (issue && final_start),
    .final_bank_i   (bank),
    .filled_i       (filled_q),
    .filled_bank_i  (filled_bank_q),
    .bank_busy_o    (bank_busy),
    .sum_read_o     (sum_read),
    .sum_bank_o     (sum_bank),
    .sum_column_o   (sum_column),
    .sum_grant_i    (sum_grant),
    .sum_data_i     (sum_data),
    .rd_valid_o     (c.valid),
    .rd_word_o      (c.word),
    .rd_grant_i     (granted[2]),
    .rd_data_i      (rd_data_i[2][0]),
    .wr_valid_o     (drain_wr.valid),
    .wr_word_o      (drain_wr.word),
    .wr_mask_o      (drain_wr.mask),
    .wr_data_o,
    .wr_lanes_o,
    .wr_grant_i     (wr_response_i.grant && !error_q),
    .fault_o        (drain_fault),
    .fault_number_o (drain_fault_number),
    .aux_i,
    .aux_data_i
  );

  // What stands still asks for nothing.
  assign c.mask = Window'(1);
  always_comb begin
    rd_o = {c.valid ? c : w, b, a};
    wr_o = drain_wr;
    for (int unsigned k = 0; k < 3; k++) if (error_q) rd_o[k].valid = 1'b0;
    if (error_q) wr_o.valid = 1'b0;
  end
  for (genvar k = 0; k < 3; k++) begin : gen_granted
    assign granted[k] = rd_response_i[k].grant && !error_q;
  end
  assign rd_first_o = w_first;

  // An engine at fault stands still; the error is raised once every command before its own is done.
  logic   raise;
  error_e raise_code;
  always_comb begin
    raise = 1'b0;
    raise_code = ErrBuffer;
    for (int unsigned k = 0; k < 3; k++) if (rd_response_i[k].fault) raise = 1'b1;
    if (wr_response_i.fault) raise = 1'b1;
    if (columns_fault && columns_number_q == done_number_q) raise = 1'b1;
    if (second_fault && second_number_q == done_number_q) raise = 1'b1;
    if (weights_fault && weights_number_q == done_number_q) raise = 1'b1;
    for (int unsigned k = 0; k < 2; k++)
      if (drain_fault[k] && drain_fault_number[k] == done_number_q) raise = 1'b1;
    if (set_bad && set_number_q == done_number_q) begin
      raise = 1'b1;
      raise_code = set_bad_code;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      error_q <= 1'b0;
      error_code_q <= ErrNone;
    end else if (raise && !error_q) begin
      error_q <= 1'b1;
      error_code_q <= raise_code;
    end
  end

  assign error_o = error_q;
  assign error_code_o = error_code_q;
  assign busy = !error_q && (set_busy || columns_busy || arrived_q || products_q.valid || quarters_q.valid ||
                             sums_q.valid || grow_q.valid || drain_busy);
  assign idle_o = !busy;
  assign events_o = '{
    busy: busy,
    moved: set_moved || issue,
    array_active: issue && uses_weights,
    weight_stall: weight_stall,
    buffer_stall: buffer_stall,
    drain_stall: drain_stall
  };

  logic unused;
  assign unused = ^step_q;

  `LF_ASSERT(AcceptedOnce, !accept || !accepted_q || set_free,
             "a command is accepted while the one before is set up")
  `LF_ASSERT(DoneOnceTaken, !done_o || done_number_q != set_number_q,
             "a command is finished that has not started")
endmodule
