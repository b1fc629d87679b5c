// Sends the steps of a command on their way: asks the buffer for the window of each, once all that it needs
// is there. Steps are found by lf_walk, which may be a command ahead.
`include "lf_assert.svh"

module lf_columns
  import lf_isa_pkg::*;
  import lf_setup_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  // A command that was set up. It is taken in one cycle, when free_o is high.
  input  logic               start_i,
  output logic               free_o,
  input  command_t           command_i,
  output logic               busy_o,
  // The command whose steps go, for all who deal with it.
  output logic               new_o,  // pulse: it is another one from the next cycle on
  output work_t              work_o,
  output logic [2:0]         together_o,  // columns of the result that a step makes
  // Operand windows.
  output logic               rd_valid_o,
  output logic [19:0]        rd_word_o,
  output logic [Window-1:0]  rd_mask_o,
  input  logic               rd_grant_i,
  output logic               fault_o,  // level: the next step lies behind the end of the buffer
  // What a step must wait for.
  input  logic               weights_valid_i,  // the weights of the next pass are there
  input  logic               second_i,  // a column of the second operand, or of held sums, is there
  input  logic [1:0]         bank_busy_i,  // finished sums are not all read
  // The step that goes.
  output logic               issue_o,
  output step_t              step_o,
  output logic [2:0]         shift_o,  // columns of the operand from its window to the next
  output logic               final_start_o,  // first column of a block's last pass
  output logic               uses_second_o,
  output logic               second_end_o,  // no later column uses this one of the second operand
  output logic               uses_weights_o,
  output logic               bank_o,
  // The block at work goes to the drain while its sums grow.
  output logic               request_valid_o,
  input  logic               request_ready_i,
  output block_t             request_o,
  output logic               wait_weights_o,
  output logic               wait_buffer_o,
  output logic               wait_drain_o
);
  work_t       walk_q, work_q;  // of the command of the walk; of that whose steps go
  logic [11:0] rows_q;
  logic        kernel_meets_q;  // some row of the kernel meets the map
  logic        waits_q;  // the walk's is not yet the one whose steps go
  logic        walking, valid;
  logic [2:0]  together;
  logic [4:0]  advance;
  step_t       step;

  lf_walk #(
    .BufferWords(BufferWords)
  ) u_walk (
    .clk_i,
    .rst_ni,
    .start_i,
    .command_i,
    .busy_o    (walking),
    .together_o(together),
    .advance_o (advance),
    .valid_o   (valid),
    .step_o    (step),
    .take_i    (issue_o)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      waits_q <= 1'b0;
      walk_q <= '0;
      rows_q <= '0;
      kernel_meets_q <= 1'b0;
    end else if (start_i) begin
      waits_q <= 1'b1;
      walk_q <= '{columns: command_i.columns, b: command_i.b, o: command_i.o, d: command_i.d};
      rows_q <= command_i.count;
      kernel_meets_q <= command_i.kernel_rows != '0;
    end else if (new_o) begin
      waits_q <= 1'b0;
    end
  end

  assign free_o = !walking && !waits_q;

  // The command whose steps go.
  logic [9:0]   block_q;
  logic [2:0]   together_q, shift_q;
  logic         busy_q, bank_q, request_q, again_q, fresh_q, alone_q, weighted_q, reads_second_q, held_sums_q;
  logic         waiting, go, bank_ready, drain_ready, weights_ready, second_ready, hazard_free;

  always_comb begin
    // The drain reads the finished sums of a bank while the last pass makes them.
    bank_ready = !bank_busy_i[bank_q] || (step.final_pass && !step.pass_start);
    drain_ready = step.fetch || (bank_ready && !(step.block_end && request_q));
    weights_ready = step.fetch || !weighted_q || !step.pass_start || weights_valid_i;
    second_ready = step.fetch || !uses_second_o || second_i;
    hazard_free = !(again_q && alone_q) && !fresh_q;  // a sum must be back before it is touched again
    waiting = busy_q && valid;
    go = waiting && drain_ready && weights_ready && second_ready && hazard_free;
    fault_o = go && step.over;
    rd_valid_o = go && step.mask != '0 && !step.over;
    rd_word_o = step.word;
    rd_mask_o = step.mask;
  end
  assign issue_o = go && !step.over && (step.mask == '0 || rd_grant_i);
  assign new_o = waits_q && !busy_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      bank_q <= 1'b0;
      block_q <= '0;
      request_q <= 1'b0;
      again_q <= 1'b0;
      fresh_q <= 1'b0;
      alone_q <= 1'b0;
      weighted_q <= 1'b0;
      reads_second_q <= 1'b0;
      held_sums_q <= 1'b0;
      work_q <= '0;
      together_q <= '0;
      shift_q <= '0;
    end else begin
      again_q <= issue_o;
      fresh_q <= new_o && walk_q.d.operation == 3'(DoCopy);  // its lanes are looked up
      if (request_ready_i) request_q <= 1'b0;
      if (issue_o && step.block_end) begin
        bank_q <= !bank_q;
        block_q <= block_q + 1'b1;
        busy_q <= !step.command_end;
        request_q <= !step.command_end;
      end
      if (new_o) begin
        busy_q <= 1'b1;
        block_q <= '0;
        request_q <= 1'b1;
        work_q <= walk_q;
        together_q <= together;
        shift_q <= 3'(advance);
        alone_q <= rows_q == 12'd1 && walk_q.d.o_width <= 12'(together);
        weighted_q <= has_weights(walk_q.d.operation) && kernel_meets_q;
        held_sums_q <= !needs_second(walk_q.d.operation);
        reads_second_q <= !walk_q.d.first || needs_second(walk_q.d.operation);
      end
    end
  end

  assign busy_o = walking || waits_q || busy_q;
  assign work_o = work_q;
  assign together_o = together_q;
  assign step_o = step;
  assign shift_o = shift_q;
  assign final_start_o = step.final_pass && step.pass_start;
  assign second_end_o = !work_q.d.b_vector || held_sums_q || step.row_end;
  assign uses_second_o = step.first && reads_second_q && !step.fetch;
  assign uses_weights_o = weighted_q && !step.fetch;
  assign bank_o = bank_q;
  assign request_valid_o = request_q;
  assign request_o = '{index: block_q, bank: bank_q, last: block_q == work_q.d.out_blocks - 10'd1};
  assign wait_weights_o = waiting && drain_ready && !weights_ready;
  assign wait_buffer_o = waiting && drain_ready && weights_ready &&
                         (!second_ready || (rd_valid_o && !rd_grant_i));
  assign wait_drain_o = waiting && !drain_ready;

  logic unused;
  assign unused = ^{work_q, advance[4:3], command_i};

  `LF_ASSERT(StartedWhenFree, !start_i || free_o, "a command comes while there is no room for it")
  `LF_ASSERT(StepsWithWindow, !(issue_o && step.mask != '0) || rd_grant_i,
             "a step goes whose window is not granted")
  `LF_ASSERT(GrantedOnceAsked, !rd_grant_i || rd_valid_o, "a window is granted that was not asked for")
  `LF_HELD(RequestHeld, request_valid_o, request_ready_i, request_o)
endmodule
