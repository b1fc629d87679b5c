// Walks over the columns of a command in the order of the passes: blocks of output channels, kernel rows, groups of kernel columns, blocks of input
// channels, rows, columns. Where neighbouring columns go together (lf_reach_pkg), a row begins with a step that only fetches what their windows share.
//
// Two halves, with a short queue in between: one finds the windows of steps and their places in the buffer; the other asks the buffer for the window at
// the head of the queue, and when that is granted, the step goes on its way. The first may be a command ahead.
module lf_columns
  import lf_isa_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  // A command that was set up. It is taken in one cycle, when free_o is high.
  input  logic               start_i,
  output logic               free_o,
  input  computation_t       descriptor_i,
  input  logic [11:0]        count_i,
  input  logic [9:0]         columns_i,
  input  logic [11:0]        kernel_rows_i,
  input  logic signed [22:0] a_row_i,
  input  logic [31:0]        a_offset_i,
  input  logic [31:0]        a_row_step_i,
  input  logic [31:0]        a_kernel_step_i,
  input  logic [31:0]        a_limit_i,
  input  logic [31:0]        o_offset_i,
  input  logic [31:0]        o_row_step_i,
  input  logic [31:0]        o_limit_i,
  input  logic [31:0]        b_offset_i,
  input  logic [31:0]        b_row_step_i,
  input  logic [31:0]        b_limit_i,
  output logic               busy_o,
  // The command whose steps go, for all who deal with it.
  output logic               new_o,  // pulse: it is another one from the next cycle on
  output computation_t       descriptor_o,
  output logic [9:0]         columns_o,
  output logic [31:0]        o_offset_o,
  output logic [31:0]        o_row_step_o,
  output logic [31:0]        o_limit_o,
  output logic [31:0]        b_offset_o,
  output logic [31:0]        b_row_step_o,
  output logic [31:0]        b_limit_o,
  output logic [2:0]         together_o,  // columns of the result that a step makes
  // Operand windows.
  output logic               rd_valid_o,
  output logic [19:0]        rd_word_o,
  output logic [Window-1:0]  rd_mask_o,
  input  logic               rd_grant_i,
  output logic               fault_o,  // level: the next step lies behind the end of the buffer
  // What a step must wait for.
  input  logic               tile_full_i,  // the weights of the next pass are there
  input  logic               second_i,  // a column of the second operand, or of held sums, is there
  input  logic [1:0]         half_busy_i,  // finished sums are not all read
  // The step that goes.
  output logic               issue_o,
  output logic               fetch_o,  // it brings words for the step after it, and is no column itself
  output logic [Reach-1:0]   present_o,  // words of its window that are no padding
  output logic [2:0]         from_o,  // word of its window that the first one from the buffer is; those before are of the window before,
  output logic [2:0]         shift_o,  // so many words farther on there
  output logic [2:0]         taps_o,  // kernel columns of the group
  output logic [6:0]         lanes_o,  // CONV: input channels end here
  output logic [5:0]         lane_o,  // CONV: they begin here
  output logic               first_o,  // of the block's passes
  output logic               final_o,  // of the block's passes
  output logic               final_start_o,  // first column of that pass
  output logic               uses_second_o,
  output logic               second_end_o,  // no later column uses this one of the second operand
  output logic               uses_tile_o,
  output logic               pass_start_o,
  output logic               half_o,
  output logic [8:0]         column_o,  // the first,
  output logic [2:0]         count_o,  // of so many
  // The block at work goes to the drain while its sums grow.
  output logic               job_valid_o,
  input  logic               job_ready_i,
  output logic [9:0]         job_block_o,
  output logic               job_half_o,
  output logic               job_last_o,  // of the command
  output logic               wait_weights_o,
  output logic               wait_buffer_o,
  output logic               wait_drain_o
);
  // The command that the walk is in.
  computation_t       d_q;
  logic [11:0]        rows_q, kernel_rows_q;
  logic [9:0]         columns_q;
  logic signed [22:0] first_row_q;
  logic [31:0]        first_offset_q, row_step_q, kernel_step_q, limit_q;
  logic [31:0]        o_offset_q, o_row_step_q, o_limit_q, b_offset_q, b_row_step_q, b_limit_q;
  logic               conv_q, wide_q;  // wide: more than one kernel column in a pass
  reach_t             reach_q;
  logic [4:0]         advance_q;  // columns of the operand from one step to the next, where windows overlap
  logic               waits_q;  // the command is not yet the one whose steps go

  // Where the walk is: the next step.
  typedef struct {
    logic               busy;
    logic               fetched;  // what windows share at the beginning of the row
    logic               first;  // pass of the block
    logic [9:0]         blocks_left;
    logic [11:0]        kernel_rows_left;
    logic [11:0]        columns_left;  // of the kernel row, with this group
    logic [9:0]         in_block;
    logic [29:0]        block_offset;  // words
    logic signed [22:0] pass_row;
    logic [31:0]        pass_offset;  // words
    logic signed [22:0] pass_column;
    logic [11:0]        rows_left;
    logic [11:0]        x;
    logic [8:0]         column;
    logic signed [22:0] row;
    logic [31:0]        offset;
    logic signed [22:0] a_column;
  } walk_t;
  walk_t walk_d, walk_q;

  // What is known of a step when its place in the buffer is.
  typedef struct packed {
    logic              fetch;
    logic [Reach-1:0]  present;
    logic [2:0]        from;
    logic [2:0]        taps;
    logic [Window-1:0] mask;  // words to read
    logic [6:0]        lanes;
    logic [5:0]        lane;
    logic              first;
    logic              final_pass;
    logic              final_start;
    logic              row_end;
    logic              pass_start;
    logic              block_end;
    logic              last;  // of the command
    logic [8:0]        column;
    logic [2:0]        count;
  } step_t;

  // A step in a ring.
  function automatic logic [31:0] stepped(logic [31:0] offset, logic [31:0] step, logic [31:0] limit);
    logic [32:0] sum;
    sum = 33'(offset) + 33'(step);
    return sum >= 33'(limit) ? 32'(sum - 33'(limit)) : 32'(sum);
  endfunction

  // -- The walk ---------------------------------------------------------------------------------------------------------------------------

  step_t              step;
  logic signed [35:0] place;
  logic signed [22:0] begins;  // column of the operand that the window begins with
  logic [Reach-1:0]   meets;  // words of the window that some element of a kernel meets
  logic [2:0]         overlap;  // words that windows of one step and the next share
  logic               row_end, pass_end, in_end, group_end, final_pass, block_end, command_end, row_inside, walks, room;

  always_comb begin
    step = '0;
    step.taps = walk_q.columns_left < 12'(reach_q.taps) ? 3'(walk_q.columns_left) : reach_q.taps;
    overlap = wide_q && 4'(step.taps) > d_q.stride_columns ? step.taps - 3'(d_q.stride_columns) : '0;
    row_inside = walk_q.row >= 0 && walk_q.row < signed'(23'(d_q.a_height)) && kernel_rows_q != '0;
    step.fetch = reach_q.columns != 3'd1 && overlap != '0 && !walk_q.fetched && row_inside;
    step.from = step.fetch ? 3'(advance_q) : walk_q.x != '0 || walk_q.fetched ? overlap : '0;
    step.count = d_q.o_width - walk_q.x < 12'(reach_q.columns) ? 3'(d_q.o_width - walk_q.x) : reach_q.columns;
    begins = walk_q.a_column - (step.fetch ? 23'(advance_q) : 23'd0);
    meets = '0;
    if (step.fetch) begin
      for (int unsigned j = 0; j < Reach; j++) meets[j] = 5'(j) >= advance_q && 5'(j) < advance_q + 5'(overlap);
    end else begin
      for (int unsigned p = 0; p < Window; p++) begin
        for (int unsigned t = 0; t < Reach; t++) begin
          if (3'(p) < step.count && 4'(t) < 4'(step.taps)) meets[3'(p * 32'(d_q.stride_columns) + t)] = 1'b1;
        end
      end
    end
    for (int unsigned j = 0; j < Reach; j++) begin
      step.present[j] = meets[j] && row_inside
          && begins >= -signed'(23'(j)) && begins + signed'(23'(j)) < signed'(23'(d_q.a_width));
    end
    for (int unsigned t = 0; t < Window; t++) step.mask[t] = 4'(step.from) + 4'(t) < 4'(Reach) && step.present[step.from + 3'(t)];
    place = 36'(d_q.a_base) + 36'(walk_q.block_offset) + 36'(walk_q.offset) + 36'(begins) + 36'(step.from);
    row_end = walk_q.x + 12'(reach_q.columns) >= d_q.o_width;
    pass_end = row_end && walk_q.rows_left == 12'd1;
    in_end = !conv_q || d_q.narrow || walk_q.in_block == d_q.in_blocks - 10'd1 || kernel_rows_q == '0;
    group_end = walk_q.columns_left <= 12'(reach_q.taps) || kernel_rows_q == '0;
    final_pass = in_end && group_end && walk_q.kernel_rows_left <= 12'd1;
    block_end = pass_end && final_pass;
    command_end = block_end && walk_q.blocks_left == 10'd1;
    step.lanes = d_q.narrow || walk_q.in_block == d_q.in_blocks - 10'd1 ? d_q.in_tail : 7'h7f;
    step.lane = walk_q.in_block == '0 ? d_q.a_lane : '0;
    step.first = walk_q.first;
    step.final_pass = final_pass;
    step.final_start = final_pass && walk_q.column == '0;
    step.row_end = row_end;
    step.pass_start = walk_q.column == '0;
    step.block_end = block_end && !step.fetch;
    step.last = command_end && !step.fetch;
    step.column = walk_q.column;
    walks = walk_q.busy && room;
  end

  always_comb begin
    walk_d = walk_q;
    if (walks && step.fetch) begin
      walk_d.fetched = 1'b1;
    end else if (walks) begin
      walk_d.column = walk_q.column + 9'(step.count);
      walk_d.x = walk_q.x + 12'(reach_q.columns);
      walk_d.a_column = walk_q.a_column + 23'(advance_q);
      if (row_end) begin
        walk_d.fetched = 1'b0;
        walk_d.x = '0;
        walk_d.a_column = walk_q.pass_column;
        walk_d.rows_left = walk_q.rows_left - 1'b1;
        walk_d.row = walk_q.row + 23'(d_q.stride_rows);
        walk_d.offset = stepped(walk_q.offset, row_step_q, limit_q);
      end
      if (pass_end) begin
        walk_d.first = 1'b0;
        walk_d.in_block = walk_q.in_block + 1'b1;
        walk_d.block_offset = walk_q.block_offset + (conv_q ? 30'(d_q.a_block_words) : 30'd0);
        if (in_end) begin
          walk_d.in_block = '0;
          walk_d.block_offset = conv_q ? '0 : walk_q.block_offset;
          walk_d.columns_left = walk_q.columns_left - 12'(reach_q.taps);
          walk_d.pass_column = walk_q.pass_column + (wide_q ? 23'(reach_q.taps) : 23'(d_q.dilation));
          if (group_end) begin
            walk_d.columns_left = d_q.kernel_columns;
            walk_d.pass_column = -23'(d_q.pad_columns);
            walk_d.kernel_rows_left = walk_q.kernel_rows_left - 1'b1;
            walk_d.pass_row = walk_q.pass_row + 23'(d_q.dilation);
            walk_d.pass_offset = stepped(walk_q.pass_offset, kernel_step_q, limit_q);
          end
        end
        if (block_end) begin
          walk_d.first = 1'b1;
          walk_d.blocks_left = walk_q.blocks_left - 1'b1;
          walk_d.block_offset = conv_q ? '0 : walk_q.block_offset + 30'(d_q.a_block_words);
          walk_d.kernel_rows_left = kernel_rows_q;
          walk_d.pass_row = first_row_q;
          walk_d.pass_offset = first_offset_q;
          walk_d.busy = !command_end;
        end
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
        fetched: 1'b0,
        first: 1'b1,
        blocks_left: descriptor_i.out_blocks,
        kernel_rows_left: kernel_rows_i,
        columns_left: descriptor_i.kernel_columns,
        in_block: '0,
        block_offset: '0,
        pass_row: a_row_i,
        pass_offset: a_offset_i,
        pass_column: -23'(descriptor_i.pad_columns),
        rows_left: count_i,
        x: '0,
        column: '0,
        row: a_row_i,
        offset: a_offset_i,
        a_column: -23'(descriptor_i.pad_columns)
      };
    end
  end

  reach_t reach_new;
  assign reach_new = reach(descriptor_i.operation, descriptor_i.narrow, descriptor_i.first, descriptor_i.dilation, descriptor_i.kernel_columns,
      descriptor_i.stride_columns, descriptor_i.o_width);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      walk_q <= '{default: '0};
      waits_q <= 1'b0;
      d_q <= '0;
      rows_q <= '0;
      columns_q <= '0;
      kernel_rows_q <= '0;
      first_row_q <= '0;
      first_offset_q <= '0;
      row_step_q <= '0;
      kernel_step_q <= '0;
      limit_q <= '0;
      {o_offset_q, o_row_step_q, o_limit_q} <= '0;
      {b_offset_q, b_row_step_q, b_limit_q} <= '0;
      conv_q <= 1'b0;
      wide_q <= 1'b0;
      reach_q <= '0;
      advance_q <= '0;
    end else begin
      walk_q <= walk_d;
      if (start_i) waits_q <= 1'b1;
      else if (new_o) waits_q <= 1'b0;
      if (start_i) begin
        d_q <= descriptor_i;
        rows_q <= count_i;
        columns_q <= columns_i;
        kernel_rows_q <= kernel_rows_i;
        first_row_q <= a_row_i;
        first_offset_q <= a_offset_i;
        row_step_q <= a_row_step_i;
        kernel_step_q <= a_kernel_step_i;
        limit_q <= a_limit_i;
        {o_offset_q, o_row_step_q, o_limit_q} <= {o_offset_i, o_row_step_i, o_limit_i};
        {b_offset_q, b_row_step_q, b_limit_q} <= {b_offset_i, b_row_step_i, b_limit_i};
        conv_q <= descriptor_i.operation == 3'(DoConv);
        wide_q <= reach_new.taps != 3'd1;
        reach_q <= reach_new;
        advance_q <= reach_new.columns == 3'd1 ? 5'(descriptor_i.stride_columns) : 5'd4 - 5'(reach_new.columns == 3'd3);
      end
    end
  end

  assign free_o = !walk_q.busy && !waits_q;

  // -- The queue: a step whose place is known, then those whose reads are known to lie in the buffer or not -------------------------------

  typedef struct packed {
    step_t       step;
    logic        over;  // behind the end of the buffer
    logic [19:0] word;
  } entry_t;
  step_t              placed_q;
  logic               placed_valid_q;
  logic signed [35:0] place_q;
  entry_t             entry, queue_q [2];
  logic [1:0]         filled_q;
  logic               put_q, get_q, push;

  assign push = placed_valid_q && filled_q != 2'd2;
  assign room = !placed_valid_q || push;

  always_comb begin
    entry = '{step: placed_q, over: 1'b0, word: place_q[19:0]};
    for (int unsigned t = 0; t < Window; t++) if (placed_q.mask[t] && place_q + 36'(t) >= 36'(BufferWords)) entry.over = 1'b1;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      placed_valid_q <= 1'b0;
      placed_q <= '0;
      place_q <= '0;
      queue_q <= '{default: '0};
      filled_q <= '0;
      put_q <= 1'b0;
      get_q <= 1'b0;
    end else begin
      if (room) placed_valid_q <= walk_q.busy;
      if (walks) begin
        placed_q <= step;
        place_q <= place;
      end
      if (push) begin
        queue_q[put_q] <= entry;
        put_q <= !put_q;
      end
      if (issue_o) get_q <= !get_q;
      filled_q <= filled_q + 2'(push) - 2'(issue_o);
    end
  end

  // -- Steps that go ----------------------------------------------------------------------------------------------------------------------

  entry_t       head;
  computation_t work_q;
  logic [9:0]   work_columns_q, block_q;
  logic [31:0]  work_o_offset_q, work_o_row_step_q, work_o_limit_q, work_b_offset_q, work_b_row_step_q, work_b_limit_q;
  logic [2:0]   together_q, shift_q;
  logic         busy_q, half_q, job_q, again_q, alone_q, weighted_q, needs_second_q, held_sums_q;
  logic         waiting, go, half_ready, drain_ready, tile_ready, second_ready, calm;

  assign head = queue_q[get_q];

  always_comb begin
    // The drain reads the finished sums of a half while the last pass makes them.
    half_ready = !half_busy_i[half_q] || (head.step.final_pass && !head.step.pass_start);
    drain_ready = head.step.fetch || (half_ready && !(head.step.block_end && job_q));
    tile_ready = head.step.fetch || !weighted_q || !head.step.pass_start || tile_full_i;
    second_ready = head.step.fetch || !uses_second_o || second_i;
    calm = !(again_q && alone_q);  // a sum must be back before it is touched again
    waiting = busy_q && filled_q != '0;
    go = waiting && drain_ready && tile_ready && second_ready && calm;
    fault_o = go && head.over;
    rd_valid_o = go && head.step.mask != '0 && !head.over;
    rd_word_o = head.word;
    rd_mask_o = head.step.mask;
  end
  assign issue_o = go && !head.over && (head.step.mask == '0 || rd_grant_i);
  assign new_o = waits_q && !busy_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      half_q <= 1'b0;
      block_q <= '0;
      job_q <= 1'b0;
      again_q <= 1'b0;
      alone_q <= 1'b0;
      weighted_q <= 1'b0;
      needs_second_q <= 1'b0;
      held_sums_q <= 1'b0;
      work_q <= '0;
      work_columns_q <= '0;
      {work_o_offset_q, work_o_row_step_q, work_o_limit_q} <= '0;
      {work_b_offset_q, work_b_row_step_q, work_b_limit_q} <= '0;
      together_q <= '0;
      shift_q <= '0;
    end else begin
      again_q <= issue_o;
      if (job_ready_i) job_q <= 1'b0;
      if (issue_o && head.step.block_end) begin
        half_q <= !half_q;
        block_q <= block_q + 1'b1;
        busy_q <= !head.step.last;
        job_q <= !head.step.last;
      end
      if (new_o) begin
        busy_q <= 1'b1;
        block_q <= '0;
        job_q <= 1'b1;
        work_q <= d_q;
        work_columns_q <= columns_q;
        {work_o_offset_q, work_o_row_step_q, work_o_limit_q} <= {o_offset_q, o_row_step_q, o_limit_q};
        {work_b_offset_q, work_b_row_step_q, work_b_limit_q} <= {b_offset_q, b_row_step_q, b_limit_q};
        together_q <= reach_q.columns;
        shift_q <= 3'(advance_q);
        alone_q <= rows_q == 12'd1 && d_q.o_width <= 12'(reach_q.columns);
        weighted_q <= (conv_q || d_q.operation == 3'(DoDepthwise)) && kernel_rows_q != '0;
        held_sums_q <= d_q.operation != 3'(DoAdd) && d_q.operation != 3'(DoMul);
        needs_second_q <= !d_q.first || d_q.operation == 3'(DoAdd) || d_q.operation == 3'(DoMul);
      end
    end
  end

  assign busy_o = walk_q.busy || waits_q || busy_q;
  assign descriptor_o = work_q;
  assign columns_o = work_columns_q;
  assign {o_offset_o, o_row_step_o, o_limit_o} = {work_o_offset_q, work_o_row_step_q, work_o_limit_q};
  assign {b_offset_o, b_row_step_o, b_limit_o} = {work_b_offset_q, work_b_row_step_q, work_b_limit_q};
  assign together_o = together_q;
  assign fetch_o = head.step.fetch;
  assign present_o = head.step.present;
  assign from_o = head.step.from;
  assign shift_o = shift_q;
  assign taps_o = head.step.taps;
  assign lanes_o = head.step.lanes;
  assign lane_o = head.step.lane;
  assign first_o = head.step.first;
  assign final_o = head.step.final_pass;
  assign final_start_o = head.step.final_start && !head.step.fetch;
  assign second_end_o = !work_q.b_vector || held_sums_q || head.step.row_end;
  assign uses_second_o = head.step.first && needs_second_q && !head.step.fetch;
  assign uses_tile_o = weighted_q && !head.step.fetch;
  assign pass_start_o = head.step.pass_start && !head.step.fetch;
  assign half_o = half_q;
  assign column_o = head.step.column;
  assign count_o = head.step.fetch ? '0 : head.step.count;
  assign job_valid_o = job_q;
  assign job_block_o = block_q;
  assign job_half_o = half_q;
  assign job_last_o = block_q == work_q.out_blocks - 10'd1;
  assign wait_weights_o = waiting && drain_ready && !tile_ready;
  assign wait_buffer_o = waiting && drain_ready && tile_ready && (!second_ready || (rd_valid_o && !rd_grant_i));
  assign wait_drain_o = waiting && !drain_ready;

  logic unused;
  assign unused = ^{place_q[35:20], work_q};

`ifndef SYNTHESIS
  assert property (@(posedge clk_i) !start_i || free_o);
  assert property (@(posedge clk_i) !(issue_o && head.step.mask != '0) || rd_grant_i);
  assert property (@(posedge clk_i) !rd_grant_i || rd_valid_o);
  // Of a window, no more is read at once than the buffer gives.
  assert property (@(posedge clk_i) !walks || $countones(step.present >> step.from) == $countones(step.mask));
`endif
endmodule
