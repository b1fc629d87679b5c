// Walks over the columns of a command in the order of the passes: blocks of output channels, kernel rows,
// groups of kernel columns, blocks of input channels, rows, columns; and finds the window of each step, and
// its place in the buffer. Where neighbouring columns go together (lf_reach_pkg), a row begins with a step
// that only fetches what their windows share.
//
// Three stages: the step; its place; a queue of two steps whose words are known to lie in the buffer or not.
`include "lf_assert.svh"

module lf_walk
  import lf_isa_pkg::*;
  import lf_setup_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,
  input  command_t           command_i,
  output logic               busy_o,
  output logic [2:0]         together_o,  // columns of the result that a step makes, at most
  output logic [4:0]         advance_o,  // columns of the operand from one step to the next
  output logic               valid_o,
  output step_t              step_o,
  input  logic               take_i
);
  // The command.
  computation_t       d_q;
  logic [11:0]        rows_q, kernel_rows_q;
  logic signed [22:0] first_row_q;
  logic [31:0]        first_offset_q, row_step_q, kernel_step_q, limit_q;
  logic               conv_q, wide_q;  // wide: more than one kernel column in a pass
  reach_t             reach_q;
  logic [2:0]         first_taps_q, first_taps;  // kernel columns of the first group
  logic [9:0]         in_blocks_q, in_blocks;
  logic [4:0]         advance_q;

  // The next step.
  typedef struct {
    logic               busy;
    logic               begun;  // words of the row have been brought
    logic               first;  // pass of the block
    logic [9:0]         blocks_left;
    logic [11:0]        kernel_rows_left;
    logic [11:0]        columns_left;  // of the kernel row, with this group
    logic [2:0]         taps;  // of the group
    logic [9:0]         in_left;
    logic               in_first;
    logic [29:0]        block_offset;  // words
    logic signed [22:0] pass_row;
    logic [31:0]        pass_offset;  // words
    logic signed [22:0] pass_column;
    logic [11:0]        rows_left;
    logic [11:0]        x_left;
    logic               pass_start;
    logic [8:0]         column;
    logic signed [22:0] row;
    logic [31:0]        offset;
    logic signed [22:0] a_column;
  } walk_t;
  walk_t walk_d, walk_q;

  // A step in a ring.
  function automatic logic [31:0] stepped(logic [31:0] offset, logic [31:0] step, logic [31:0] limit);
    logic [32:0] sum;
    sum = 33'(offset) + 33'(step);
    return sum >= 33'(limit) ? 32'(sum - 33'(limit)) : 32'(sum);
  endfunction

  step_t              step;
  logic [Reach-1:0]   inside_map;  // columns from a_column on
  logic [Reach-1:0]   meets;  // words of the window that some element of a kernel meets
  logic [2:0]         overlap;  // words that windows of one step and the next share
  logic               row_inside, row_end, pass_end, in_end, group_end, command_end, walks, room;

  always_comb begin
    row_inside = walk_q.row >= 0 && walk_q.row < signed'(23'(d_q.a_height)) && kernel_rows_q != '0;
    for (int unsigned j = 0; j < Reach; j++) begin
      inside_map[j] = walk_q.a_column >= -signed'(23'(j)) &&
                      walk_q.a_column < signed'(23'(d_q.a_width)) - signed'(23'(j));
    end
    overlap = wide_q && 4'(walk_q.taps) > d_q.stride_columns ? walk_q.taps - 3'(d_q.stride_columns) : '0;
    row_end = walk_q.x_left <= 12'(reach_q.columns);
    pass_end = row_end && walk_q.rows_left == 12'd1;
    in_end = walk_q.in_left == 10'd1 || kernel_rows_q == '0;
    group_end = walk_q.columns_left <= 12'(reach_q.taps) || kernel_rows_q == '0;

    step = '0;
    step.fetch = reach_q.columns != 3'd1 && overlap != '0 && !walk_q.begun && row_inside;
    step.taps = walk_q.taps;
    step.count = step.fetch ? '0 : row_end ? 3'(walk_q.x_left) : reach_q.columns;
    step.from = step.fetch ? 3'(advance_q) : walk_q.begun ? overlap : '0;
    meets = '0;
    for (int unsigned p = 0; p < Window; p++) begin
      for (int unsigned t = 0; t < Reach; t++) begin
        if (3'(p) < step.count && 4'(t) < 4'(walk_q.taps)) meets[3'(p * 32'(d_q.stride_columns) + t)] = 1'b1;
      end
    end
    for (int unsigned j = 0; j < Reach; j++) begin
      if (!step.fetch) step.present[j] = row_inside && meets[j] && inside_map[j];
      else
        step.present[j] = 3'(j) >= 3'(advance_q) && 4'(j) < 4'(advance_q) + 4'(overlap) &&
                          inside_map[3'(3'(j) - 3'(advance_q))];
    end
    for (int unsigned t = 0; t < Window; t++)
      step.mask[t] = 4'(step.from) + 4'(t) < 4'(Reach) && step.present[step.from + 3'(t)];
    step.lanes = d_q.narrow || walk_q.in_left == 10'd1 ? d_q.in_tail : 7'h7f;
    step.lane = walk_q.in_first ? d_q.a_lane : '0;
    step.first = walk_q.first;
    step.final_pass = in_end && group_end && walk_q.kernel_rows_left <= 12'd1;
    step.row_end = row_end;
    step.pass_start = walk_q.pass_start && !step.fetch;
    step.block_end = pass_end && step.final_pass && !step.fetch;
    command_end = step.block_end && walk_q.blocks_left == 10'd1;
    step.command_end = command_end;
    step.column = walk_q.column;
    walks = walk_q.busy && room;
  end

  always_comb begin
    walk_d = walk_q;
    if (walks) walk_d.begun = 1'b1;
    if (walks && !step.fetch) begin
      walk_d.pass_start = 1'b0;
      walk_d.column = walk_q.column + 9'(step.count);
      walk_d.x_left = walk_q.x_left - 12'(reach_q.columns);
      walk_d.a_column = walk_q.a_column + 23'(advance_q);
      if (row_end) begin
        walk_d.begun = 1'b0;
        walk_d.x_left = d_q.o_width;
        walk_d.a_column = walk_q.pass_column;
        walk_d.rows_left = walk_q.rows_left - 1'b1;
        walk_d.row = walk_q.row + 23'(d_q.stride_rows);
        walk_d.offset = stepped(walk_q.offset, row_step_q, limit_q);
      end
      if (pass_end) begin
        walk_d.first = 1'b0;
        walk_d.in_first = 1'b0;
        walk_d.in_left = walk_q.in_left - 1'b1;
        walk_d.block_offset = walk_q.block_offset + (conv_q ? 30'(d_q.a_block_words) : 30'd0);
        if (in_end) begin
          walk_d.in_first = 1'b1;
          walk_d.in_left = in_blocks_q;
          walk_d.block_offset = conv_q ? '0 : walk_q.block_offset;
          walk_d.columns_left = walk_q.columns_left - 12'(reach_q.taps);
          walk_d.taps = taps_behind(walk_q.columns_left, reach_q.taps);
          walk_d.pass_column = walk_q.pass_column + (wide_q ? 23'(reach_q.taps) : 23'(d_q.dilation));
          if (group_end) begin
            walk_d.columns_left = d_q.kernel_columns;
            walk_d.taps = first_taps_q;
            walk_d.pass_column = -23'(d_q.pad_columns);
            walk_d.kernel_rows_left = walk_q.kernel_rows_left - 1'b1;
            walk_d.pass_row = walk_q.pass_row + 23'(d_q.dilation);
            walk_d.pass_offset = stepped(walk_q.pass_offset, kernel_step_q, limit_q);
          end
        end
        if (step.block_end) begin
          walk_d.first = 1'b1;
          walk_d.blocks_left = walk_q.blocks_left - 1'b1;
          walk_d.block_offset = conv_q ? '0 : walk_q.block_offset + 30'(d_q.a_block_words);
          walk_d.kernel_rows_left = kernel_rows_q;
          walk_d.pass_row = first_row_q;
          walk_d.pass_offset = first_offset_q;
          walk_d.busy = !command_end;
        end
        walk_d.pass_start = 1'b1;
        walk_d.column = '0;
        walk_d.rows_left = rows_q;
        walk_d.row = walk_d.pass_row;
        walk_d.offset = walk_d.pass_offset;
        walk_d.a_column = walk_d.pass_column;
      end
    end
    if (start_i) begin
      walk_d = '{
        busy: 1'b1,
        begun: 1'b0,
        first: 1'b1,
        blocks_left: command_i.d.out_blocks,
        kernel_rows_left: command_i.kernel_rows,
        columns_left: command_i.d.kernel_columns,
        taps: first_taps,
        in_left: in_blocks,
        in_first: 1'b1,
        block_offset: '0,
        pass_row: command_i.a_row,
        pass_offset: command_i.a.offset,
        pass_column: -23'(command_i.d.pad_columns),
        rows_left: command_i.count,
        x_left: command_i.d.o_width,
        pass_start: 1'b1,
        column: '0,
        row: command_i.a_row,
        offset: command_i.a.offset,
        a_column: -23'(command_i.d.pad_columns)
      };
    end
  end

  assign first_taps = taps_of(command_i.d.kernel_columns, command_i.reach.taps);
  assign in_blocks = command_i.d.operation == 3'(DoConv) && !command_i.d.narrow ?
                     command_i.d.in_blocks : 10'd1;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      walk_q <= '{default: '0};
      d_q <= '0;
      rows_q <= '0;
      kernel_rows_q <= '0;
      first_row_q <= '0;
      first_offset_q <= '0;
      row_step_q <= '0;
      kernel_step_q <= '0;
      limit_q <= '0;
      conv_q <= 1'b0;
      wide_q <= 1'b0;
      reach_q <= '0;
      first_taps_q <= '0;
      in_blocks_q <= '0;
      advance_q <= '0;
    end else begin
      walk_q <= walk_d;
      if (start_i) begin
        d_q <= command_i.d;
        rows_q <= command_i.count;
        kernel_rows_q <= command_i.kernel_rows;
        first_row_q <= command_i.a_row;
        first_offset_q <= command_i.a.offset;
        row_step_q <= command_i.a.row_step;
        kernel_step_q <= command_i.a_kernel_step;
        limit_q <= command_i.a.limit;
        conv_q <= command_i.d.operation == 3'(DoConv);
        wide_q <= command_i.reach.taps != 3'd1;
        reach_q <= command_i.reach;
        first_taps_q <= first_taps;
        in_blocks_q <= in_blocks;
        advance_q <= command_i.reach.columns == 3'd1 ? 5'(command_i.d.stride_columns) :
                     5'd4 - 5'(command_i.reach.columns == 3'd3);
      end
    end
  end

  assign busy_o = walk_q.busy;
  assign together_o = reach_q.columns;
  assign advance_o = advance_q;

  // Places, and the queue.
  step_t              placed_q, entry, queue_q [2];
  logic               placed_valid_q, put_q, get_q, push;
  logic [35:0]        base_q;
  logic signed [23:0] column_q;
  logic signed [35:0] place;
  logic [1:0]         filled_q;

  assign push = placed_valid_q && filled_q != 2'd2;
  assign room = !placed_valid_q || push;

  always_comb begin
    place = signed'(base_q) + 36'(column_q);
    entry = placed_q;
    entry.word = place[19:0];
    entry.over = 1'b0;
    for (int unsigned t = 0; t < Window; t++)
      if (placed_q.mask[t] && place >= signed'(36'(BufferWords)) - signed'(36'(t))) entry.over = 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      placed_valid_q <= 1'b0;
      placed_q <= '0;
      base_q <= '0;
      column_q <= '0;
      queue_q <= '{default: '0};
      filled_q <= '0;
      put_q <= 1'b0;
      get_q <= 1'b0;
    end else begin
      if (room) placed_valid_q <= walk_q.busy;
      if (walks) begin
        placed_q <= step;
        base_q <= 36'(d_q.a_base) + 36'(walk_q.block_offset) + 36'(walk_q.offset);
        column_q <= 24'(walk_q.a_column) + (step.fetch ? 24'd0 : 24'(step.from));
      end
      if (push) begin
        queue_q[put_q] <= entry;
        put_q <= !put_q;
      end
      if (take_i) get_q <= !get_q;
      filled_q <= filled_q + 2'(push) - 2'(take_i);
    end
  end

  assign valid_o = filled_q != '0;
  assign step_o = queue_q[get_q];

  logic unused;
  assign unused = ^{place[35:20], d_q, command_i};

  `LF_ASSERT(StartedWhenFree, !start_i || !walk_q.busy, "a command comes while one is walked over")
  `LF_ASSERT(TakenOnceThere, !take_i || valid_o, "no step is there to take")
  `LF_ASSERT(WindowInReach, !walks || $countones(step.present >> step.from) == $countones(step.mask),
             "a window needs more words than the buffer gives at once")
  `LF_HELD(StepHeld, valid_o, take_i, step_o)
endmodule
