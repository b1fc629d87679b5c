// Walks over the columns of a command in the order of the passes: blocks of output channels, kernel rows, (groups of) kernel columns, blocks of
// input channels, rows, columns. Each cycle it asks the buffer for the window of one column; when that is granted, the column goes on its way.
module lf_columns
  import lf_isa_pkg::*;
#(
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  // A command that was set up. It is taken in one cycle.
  input  logic               start_i,
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
  // The command at work, for all who deal with it.
  output computation_t       descriptor_o,
  output logic [9:0]         columns_o,
  output logic [31:0]        o_offset_o,
  output logic [31:0]        o_row_step_o,
  output logic [31:0]        o_limit_o,
  output logic [31:0]        b_offset_o,
  output logic [31:0]        b_row_step_o,
  output logic [31:0]        b_limit_o,
  // Operand windows.
  output logic               rd_valid_o,
  output logic [19:0]        rd_word_o,
  output logic [Window-1:0]  rd_mask_o,
  input  logic               rd_grant_i,
  output logic               fault_o,  // level: the next column lies behind the end of the buffer
  // What a column must wait for.
  input  logic               tile_full_i,  // the weights of the next pass are there
  input  logic               second_i,  // a column of the second operand, or of held sums, is there
  input  logic [1:0]         half_busy_i,  // finished sums are not all read
  // The column that goes.
  output logic               issue_o,
  output logic [Window-1:0]  taps_o,  // elements of the window that are no padding
  output logic [Window-1:0]  again_o,  // those of them that the window of the column before had, stride_columns farther on
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
  output logic [8:0]         column_o,
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
  computation_t       d_q;
  logic [11:0]        rows_q, kernel_rows_q;
  logic [9:0]         columns_q;
  logic signed [22:0] first_row_q;
  logic [31:0]        first_offset_q, row_step_q, kernel_step_q, limit_q;
  logic [31:0]        o_offset_q, o_row_step_q, o_limit_q, b_offset_q, b_row_step_q, b_limit_q;
  logic               conv_q, windowed_q, weighted_q, needs_second_q, held_sums_q;

  // Fields of the command that every column needs.
  typedef struct {
    logic [11:0] kernel_columns;
    logic [11:0] a_height;
    logic [11:0] a_width;
    logic [19:0] a_base;
    logic [3:0] stride_columns;
    logic [11:0] o_width;
    logic narrow;
    logic [9:0] in_blocks;
    logic b_vector;
    logic [3:0] stride_rows;
    logic [15:0] a_block_words;
    logic [4:0] dilation;
    logic signed [12:0] pad_columns;
    logic [6:0] in_tail;
    logic [5:0] a_lane;
    logic [9:0] out_blocks;
  } fields_t;
  fields_t f_q;

  // Where the walk is: the next column.
  typedef struct {
    logic               busy;
    logic               first;  // pass of the block
    logic               half;
    logic [9:0]         block;
    logic [11:0]        kernel_rows_left;
    logic [11:0]        kernel_column;  // first of the group
    logic [9:0]         in_block;
    logic [29:0]        block_offset;  // words
    logic signed [22:0] pass_row;
    logic [31:0]        pass_offset;  // words
    logic signed [22:0] pass_column;
    logic [11:0]        r;
    logic [11:0]        x;
    logic [8:0]         column;
    logic signed [22:0] row;
    logic [31:0]        offset;
    logic signed [22:0] a_column;
  } walk_t;
  walk_t walk_d, walk_q;
  logic  job_q, again_q;

  // A step in a ring.
  function automatic logic [31:0] stepped(logic [31:0] offset, logic [31:0] step, logic [31:0] limit);
    logic [32:0] sum;
    sum = 33'(offset) + 33'(step);
    return sum >= 33'(limit) ? 32'(sum - 33'(limit)) : 32'(sum);
  endfunction

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      conv_q <= 1'b0;
      weighted_q <= 1'b0;
      windowed_q <= 1'b0;
      held_sums_q <= 1'b0;
      needs_second_q <= 1'b0;
    end else if (start_i) begin
      conv_q <= descriptor_i.operation == 3'(DoConv);
      weighted_q <= (descriptor_i.operation == 3'(DoConv) || descriptor_i.operation == 3'(DoDepthwise)) && kernel_rows_i != '0;
      windowed_q <= descriptor_i.dilation == 5'd1 && (descriptor_i.operation == 3'(DoDepthwise) || descriptor_i.operation == 3'(DoSum)
          || descriptor_i.operation == 3'(DoMax) || (descriptor_i.operation == 3'(DoConv) && descriptor_i.narrow));
      held_sums_q <= descriptor_i.operation != 3'(DoAdd) && descriptor_i.operation != 3'(DoMul);
      needs_second_q <= !descriptor_i.first || descriptor_i.operation == 3'(DoAdd) || descriptor_i.operation == 3'(DoMul);
    end
  end

  // The window of the column, and whether it may go.
  logic               row_end, pass_end, in_end, group_end, block_end;
  logic signed [35:0] address;
  logic [Window-1:0]  mask;  // words to read
  logic [11:0]        columns_left;
  logic               row_inside, over, go, half_ready, tile_ready, second_ready, drain_ready, calm;
  assign columns_left = f_q.kernel_columns - walk_q.kernel_column;

  always_comb begin
    row_inside = walk_q.row >= 0 && walk_q.row < signed'(23'(f_q.a_height)) && kernel_rows_q != '0;
    for (int unsigned t = 0; t < Window; t++) begin
      taps_o[t] = row_inside && (t == 0 || (windowed_q && 12'(t) < columns_left))
          && walk_q.a_column >= -signed'(23'(t)) && walk_q.a_column + signed'(23'(t)) < signed'(23'(f_q.a_width));
    end
    address = 36'(f_q.a_base) + 36'(walk_q.block_offset) + 36'(walk_q.offset) + 36'(walk_q.a_column);
    again_o = '0;
    if (windowed_q && walk_q.x != '0) begin
      for (int unsigned t = 0; t < Window; t++) begin
        again_o[t] = taps_o[t] && 5'(t) + 5'(f_q.stride_columns) < 5'(Window) && 12'(t) + 12'(f_q.stride_columns) < columns_left;
      end
    end
    mask = taps_o & ~again_o;
    over = 1'b0;
    for (int unsigned t = 0; t < Window; t++) if (mask[t] && address + 36'(t) >= 36'(BufferWords)) over = 1'b1;

    // The drain reads the finished sums of a half while the last pass makes them.
    half_ready = !half_busy_i[walk_q.half] || (final_o && walk_q.column != '0);
    drain_ready = half_ready && !(block_end && job_q);
    tile_ready = !weighted_q || walk_q.column != '0 || tile_full_i;
    second_ready = !uses_second_o || second_i;
    calm = !(again_q && columns_q == 10'd1);  // a sum must be back before it is touched again
    go = walk_q.busy && drain_ready && tile_ready && second_ready && calm;
    fault_o = go && over;
    rd_valid_o = go && mask != '0 && !over;
    rd_word_o = address[19:0];
    rd_mask_o = mask;
  end
  assign issue_o = go && !over && (mask == '0 || rd_grant_i);

  always_comb begin
    row_end = walk_q.x == f_q.o_width - 12'd1;
    pass_end = 10'(walk_q.column) == columns_q - 10'd1;
    in_end = !conv_q || f_q.narrow || walk_q.in_block == f_q.in_blocks - 10'd1 || kernel_rows_q == '0;
    group_end = columns_left <= (windowed_q ? 12'(Window) : 12'd1) || kernel_rows_q == '0;
    final_o = in_end && group_end && walk_q.kernel_rows_left <= 12'd1;
  end

  assign block_end = pass_end && final_o;
  assign final_start_o = final_o && walk_q.column == '0;
  assign second_end_o = !f_q.b_vector || held_sums_q || row_end;

  always_comb begin
    walk_d = walk_q;
    if (issue_o) begin
      walk_d.column = walk_q.column + 1'b1;
      walk_d.x = walk_q.x + 1'b1;
      walk_d.a_column = walk_q.a_column + 23'(f_q.stride_columns);
      if (row_end) begin
        walk_d.x = '0;
        walk_d.a_column = walk_q.pass_column;
        walk_d.r = walk_q.r + 1'b1;
        walk_d.row = walk_q.row + 23'(f_q.stride_rows);
        walk_d.offset = stepped(walk_q.offset, row_step_q, limit_q);
      end
      if (pass_end) begin
        walk_d.first = 1'b0;
        walk_d.in_block = walk_q.in_block + 1'b1;
        walk_d.block_offset = walk_q.block_offset + (conv_q ? 30'(f_q.a_block_words) : 30'd0);
        if (in_end) begin
          walk_d.in_block = '0;
          walk_d.block_offset = conv_q ? '0 : walk_q.block_offset;
          walk_d.kernel_column = walk_q.kernel_column + (windowed_q ? 12'(Window) : 12'd1);
          walk_d.pass_column = walk_q.pass_column + (windowed_q ? 23'(Window) : 23'(f_q.dilation));
          if (group_end) begin
            walk_d.kernel_column = '0;
            walk_d.pass_column = -23'(f_q.pad_columns);
            walk_d.kernel_rows_left = walk_q.kernel_rows_left - 1'b1;
            walk_d.pass_row = walk_q.pass_row + 23'(f_q.dilation);
            walk_d.pass_offset = stepped(walk_q.pass_offset, kernel_step_q, limit_q);
          end
        end
        if (block_end) begin
          walk_d.first = 1'b1;
          walk_d.half = !walk_q.half;
          walk_d.block = walk_q.block + 1'b1;
          walk_d.block_offset = conv_q ? '0 : walk_q.block_offset + 30'(f_q.a_block_words);
          walk_d.kernel_rows_left = kernel_rows_q;
          walk_d.pass_row = first_row_q;
          walk_d.pass_offset = first_offset_q;
          walk_d.busy = !job_last_o;
        end
        walk_d.column = '0;
        walk_d.r = '0;
        walk_d.row = walk_d.pass_row;
        walk_d.offset = walk_d.pass_offset;
        walk_d.a_column = walk_d.pass_column;
      end
    end
    if (start_i) begin
      walk_d.busy = 1'b1;
      walk_d.first = 1'b1;
      walk_d.block = '0;
      walk_d.kernel_rows_left = kernel_rows_i;
      walk_d.kernel_column = '0;
      walk_d.in_block = '0;
      walk_d.block_offset = '0;
      walk_d.pass_row = a_row_i;
      walk_d.pass_offset = a_offset_i;
      walk_d.pass_column = -23'(descriptor_i.pad_columns);
      walk_d.r = '0;
      walk_d.x = '0;
      walk_d.column = '0;
      walk_d.row = a_row_i;
      walk_d.offset = a_offset_i;
      walk_d.a_column = -23'(descriptor_i.pad_columns);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      walk_q <= '{default: '0};
      job_q <= 1'b0;
      again_q <= 1'b0;
    end else begin
      walk_q <= walk_d;
      again_q <= issue_o;
      if (start_i || (issue_o && block_end && !job_last_o)) job_q <= 1'b1;
      else if (job_ready_i) job_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      d_q <= '0;
      f_q <= '{default: '0};
      rows_q <= '0;
      columns_q <= '0;
      kernel_rows_q <= '0;
      first_row_q <= '0;
      first_offset_q <= '0;
      row_step_q <= '0;
      kernel_step_q <= '0;
      limit_q <= '0;
      o_offset_q <= '0;
      o_row_step_q <= '0;
      o_limit_q <= '0;
      b_offset_q <= '0;
      b_row_step_q <= '0;
      b_limit_q <= '0;
    end else if (start_i) begin
      d_q <= descriptor_i;
      f_q.kernel_columns <= descriptor_i.kernel_columns;
      f_q.a_height <= descriptor_i.a_height;
      f_q.a_width <= descriptor_i.a_width;
      f_q.a_base <= descriptor_i.a_base;
      f_q.stride_columns <= descriptor_i.stride_columns;
      f_q.o_width <= descriptor_i.o_width;
      f_q.narrow <= descriptor_i.narrow;
      f_q.in_blocks <= descriptor_i.in_blocks;
      f_q.b_vector <= descriptor_i.b_vector;
      f_q.stride_rows <= descriptor_i.stride_rows;
      f_q.a_block_words <= descriptor_i.a_block_words;
      f_q.dilation <= descriptor_i.dilation;
      f_q.pad_columns <= descriptor_i.pad_columns;
      f_q.in_tail <= descriptor_i.in_tail;
      f_q.a_lane <= descriptor_i.a_lane;
      f_q.out_blocks <= descriptor_i.out_blocks;
      rows_q <= count_i;
      columns_q <= columns_i;
      kernel_rows_q <= kernel_rows_i;
      first_row_q <= a_row_i;
      first_offset_q <= a_offset_i;
      row_step_q <= a_row_step_i;
      kernel_step_q <= a_kernel_step_i;
      limit_q <= a_limit_i;
      o_offset_q <= o_offset_i;
      o_row_step_q <= o_row_step_i;
      o_limit_q <= o_limit_i;
      b_offset_q <= b_offset_i;
      b_row_step_q <= b_row_step_i;
      b_limit_q <= b_limit_i;
    end
  end

  assign busy_o = walk_q.busy;
  assign descriptor_o = d_q;
  assign columns_o = columns_q;
  assign {o_offset_o, o_row_step_o, o_limit_o} = {o_offset_q, o_row_step_q, o_limit_q};
  assign {b_offset_o, b_row_step_o, b_limit_o} = {b_offset_q, b_row_step_q, b_limit_q};
  assign lanes_o = f_q.narrow || walk_q.in_block == f_q.in_blocks - 10'd1 ? f_q.in_tail : 7'h7f;
  assign lane_o = walk_q.in_block == '0 ? f_q.a_lane : '0;
  assign first_o = walk_q.first;
  assign uses_second_o = walk_q.first && needs_second_q;
  assign uses_tile_o = weighted_q;
  assign pass_start_o = walk_q.column == '0;
  assign half_o = walk_q.half;
  assign column_o = walk_q.column;
  assign job_valid_o = job_q;
  assign job_block_o = walk_q.block;
  assign job_half_o = walk_q.half;
  assign job_last_o = walk_q.block == f_q.out_blocks - 10'd1;
  assign wait_weights_o = walk_q.busy && drain_ready && !tile_ready;
  assign wait_buffer_o = walk_q.busy && drain_ready && tile_ready && (!second_ready || (rd_valid_o && !rd_grant_i));
  assign wait_drain_o = walk_q.busy && !drain_ready;

  logic unused;
  assign unused = ^{descriptor_i, rows_q, walk_q.r, address[35:20]};

`ifndef SYNTHESIS
  assert property (@(posedge clk_i) !start_i || !walk_q.busy);
  assert property (@(posedge clk_i) !(issue_o && mask != '0) || rd_grant_i);
  assert property (@(posedge clk_i) !rd_grant_i || rd_valid_o);
`endif
endmodule
