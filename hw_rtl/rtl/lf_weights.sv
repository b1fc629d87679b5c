// Brings weights from the buffer into a tile for the MAC array, in the order in which passes use them, and one ahead of them: words are fetched into a
// small queue, a funnel cuts out the n bytes of one input lane (or kernel column), and a row of the tile is written each cycle.
//
// Where passes are short (`wide`: depthwise, and fewer columns than a tile has words, less the cycles in which they come so), Window words come at
// once, and before the operand; and where words are rows of an ordinary convolution as they are, so many rows are written each cycle.
module lf_weights
  import lf_isa_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384,
  localparam int unsigned LaneBits = $clog2(Lanes)
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    start_i,
  input  computation_t            descriptor_i,
  input  logic [9:0]              columns_i,
  input  logic [11:0]             kernel_rows_i,
  input  logic [39:0]             skip_i,  // bytes; see lf_setup
  input  logic [39:0]             bytes_i,
  input  logic [39:0]             tail_skip_i,
  input  logic [39:0]             tail_bytes_i,
  output logic                    busy_o,
  output logic                    rd_valid_o,
  output logic [19:0]             rd_word_o,
  output logic [Window-1:0]       rd_mask_o,
  output logic                    rd_first_o,  // before others
  input  logic                    rd_grant_i,
  input  logic [Window-1:0][Lanes*8-1:0] rd_data_i,
  output logic                    fault_o,
  // Rows of the tile.
  output logic                    row_valid_o,
  output logic [LaneBits-1:0]     row_o,  // the first,
  output logic [2:0]              row_count_o,  // of so many
  output logic                    row_depthwise_o,  // it is a kernel column
  output logic [2:0]              row_together_o,  // of one of so many columns
  output logic [Window-1:0][Lanes*8-1:0] row_data_o,
  output logic signed [8:0]       zero_o,
  output logic                    unsigned_o,
  // The tile is full before its pass may start; it is promised to the pass as that starts, and free as the array takes it over.
  output logic                    full_o,
  input  logic                    take_i,
  input  logic                    release_i
);
  localparam int unsigned Depth = 16;
  localparam int unsigned DepthBits = $clog2(Depth);
  localparam int unsigned NarrowLanes = Lanes / Window;

  logic        busy_q, conv_q, narrow_q, wide_q;
  reach_t      reach_q;
  logic [9:0]  in_blocks_q;
  logic [6:0]  in_tail_q, out_tail_q;
  logic [5:0]  a_lane_q, o_lane_q;  // of the first input channel and, in the one block that there then is, of the first output channel
  logic [11:0] kernel_rows_q, kernel_columns_q;
  logic [39:0] skip_q, bytes_q, tail_skip_q, tail_bytes_q;
  logic [23:0] block_bytes_q;

  // Fetching: words from next_q to last_q of a block.
  logic        fetch_block_q, fetch_q;  // blocks are left; words of the block are left
  logic [9:0]  fetch_left_q;
  logic [41:0] base_q;  // bytes; of the block that is next
  logic [41:0] begin_byte, end_byte;
  logic [41:0] next_q, last_q, left;  // words
  logic [2:0]  asked, arriving_q, pop;  // words
  logic [DepthBits:0]   taken_q, there_q;  // places of the queue that are filled or will be; that are filled
  logic [DepthBits-1:0] put_q, get_q;
  logic [Lanes*8-1:0]   queue_q [Depth];

  always_comb begin
    begin_byte = base_q + 42'(fetch_left_q == 10'd1 ? tail_skip_q : skip_q);
    end_byte = begin_byte + 42'(fetch_left_q == 10'd1 ? tail_bytes_q : bytes_q) - 42'd1;
    left = last_q - next_q;
    asked = !wide_q ? 3'd1 : left >= 42'(Window - 1) ? 3'(Window) : 3'(left) + 3'd1;
    fault_o = fetch_q && next_q + 42'(asked) > 42'(BufferWords);
    rd_valid_o = fetch_q && !fault_o && taken_q <= (DepthBits+1)'(wide_q ? Depth - Window : Depth - 1);
    rd_word_o = next_q[19:0];
    for (int unsigned t = 0; t < Window; t++) rd_mask_o[t] = 3'(t) < asked;
    rd_first_o = wide_q && taken_q < (DepthBits+1)'(Depth / 2);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      fetch_block_q <= 1'b0;
      fetch_q <= 1'b0;
      fetch_left_q <= '0;
      base_q <= '0;
      next_q <= '0;
      last_q <= '0;
      arriving_q <= '0;
      taken_q <= '0;
      there_q <= '0;
      put_q <= '0;
      get_q <= '0;
    end else begin
      arriving_q <= rd_valid_o && rd_grant_i ? asked : '0;
      taken_q <= taken_q + (DepthBits+1)'(rd_valid_o && rd_grant_i ? asked : 3'd0) - (DepthBits+1)'(pop);
      there_q <= there_q + (DepthBits+1)'(arriving_q) - (DepthBits+1)'(pop);
      put_q <= put_q + DepthBits'(arriving_q);
      get_q <= get_q + DepthBits'(pop);
      if (start_i) begin
        fetch_block_q <= 1'b1;
        fetch_left_q <= descriptor_i.out_blocks;
        base_q <= 42'(descriptor_i.w_base);
      end else if (!fetch_q && fetch_block_q) begin
        fetch_q <= 1'b1;
        next_q <= begin_byte >> LaneBits;
        last_q <= end_byte >> LaneBits;
        base_q <= base_q + 42'(block_bytes_q);
        fetch_left_q <= fetch_left_q - 1'b1;
        fetch_block_q <= fetch_left_q != 10'd1;
      end else if (rd_valid_o && rd_grant_i) begin
        next_q <= next_q + 42'(asked);
        if (left < 42'(asked)) begin
          fetch_q <= fetch_block_q;
          if (fetch_block_q) begin
            next_q <= begin_byte >> LaneBits;
            last_q <= end_byte >> LaneBits;
            base_q <= base_q + 42'(block_bytes_q);
            fetch_left_q <= fetch_left_q - 1'b1;
            fetch_block_q <= fetch_left_q != 10'd1;
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned t = 0; t < Window; t++) if (3'(t) < arriving_q) queue_q[put_q + DepthBits'(t)] <= rd_data_i[t];
  end

  // Filling: the walk of lf_columns, but for columns.
  logic               full_q, locked_q;  // locked: promised, and not yet taken over
  logic [9:0]         blocks_left_q, in_block_q;
  logic [11:0]        kernel_rows_left_q, columns_left_q;
  logic [LaneBits-1:0] at_q;  // byte of the first word of the queue
  logic [LaneBits-1:0] block_at_q;  // the same, where the weights of the block would begin had no row been skipped
  logic [LaneBits-1:0] next_at;
  logic [6:0]         n;  // bytes of a row
  logic [6:0]         inner_q, inner_last;  // input channel
  logic [5:0]         lane;
  logic [2:0]         outer_q, outer_last;  // kernel column of the group
  logic [LaneBits:0]  end_at;
  logic               write, as_they_are, inner_end, row_last, in_last, group_last, block_last, free;
  logic [6:0]         rows_left;
  logic [2:0]         rows;  // that are written
  logic [Lanes*16-1:0] pair;

  always_comb begin
    n = (blocks_left_q == 10'd1 ? out_tail_q : 7'(Lanes)) - 7'(o_lane_q);
    lane = in_block_q == '0 ? a_lane_q : '0;
    in_last = !conv_q || narrow_q || in_block_q == in_blocks_q - 10'd1;
    group_last = columns_left_q <= 12'(reach_q.taps);
    inner_last = !conv_q ? 7'd0 : (in_last ? in_tail_q : 7'(Lanes)) - 7'(lane) - 7'd1;
    outer_last = group_last ? 3'(columns_left_q - 12'd1) : reach_q.taps - 3'd1;
    // Words that are rows as they are.
    as_they_are = wide_q && conv_q && !narrow_q && n == 7'(Lanes) && at_q == '0;
    rows_left = inner_last - inner_q + 7'd1;
    rows = 3'd1;
    if (as_they_are) for (int unsigned k = 2; k <= Window; k++) if (7'(k) <= rows_left && (DepthBits+1)'(k) <= there_q) rows = 3'(k);
    inner_end = rows_left == 7'(rows);
    row_last = inner_end && outer_q == outer_last;
    block_last = row_last && in_last && group_last && kernel_rows_left_q == 12'd1;
    end_at = (LaneBits+1)'(at_q) + (LaneBits+1)'(n);
    free = !full_q && (!locked_q || release_i);
    write = busy_q && free && (there_q > (DepthBits+1)'(1) || (there_q == (DepthBits+1)'(1) && end_at <= (LaneBits+1)'(Lanes)));
    // The next block begins with a word of its own, even if it is the same.
    pop = !write ? 3'd0 : as_they_are ? rows : 3'(end_at >= (LaneBits+1)'(Lanes) || block_last) + 3'(end_at > (LaneBits+1)'(Lanes) && block_last);
    next_at = block_at_q + LaneBits'(blocks_left_q == 10'd2 ? tail_skip_q : skip_q) + LaneBits'(block_bytes_q);
  end

  logic [Lanes*8-1:0] second_word;
  assign second_word = queue_q[get_q + DepthBits'(1)];
  assign pair = {second_word, queue_q[get_q]} >> {at_q, 3'b000};
  always_comb begin
    for (int unsigned k = 1; k < Window; k++) row_data_o[k] = queue_q[get_q + DepthBits'(k)];
    row_data_o[0] = pair[Lanes*8-1:0] << {o_lane_q, 3'b000};
  end
  assign row_count_o = rows;
  assign row_valid_o = write;
  assign row_depthwise_o = !conv_q;
  assign row_together_o = reach_q.columns;
  assign row_o = LaneBits'(narrow_q ? 7'(outer_q) * 7'(NarrowLanes) + inner_q : conv_q ? inner_q + 7'(lane) : 7'(outer_q));

  assign full_o = full_q || (write && row_last);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      full_q <= 1'b0;
      locked_q <= 1'b0;
    end else begin
      full_q <= full_o && !take_i;
      locked_q <= take_i || (locked_q && !release_i);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      conv_q <= 1'b0;
      narrow_q <= 1'b0;
      wide_q <= 1'b0;
      reach_q <= '0;
      blocks_left_q <= '0;
      in_blocks_q <= '0;
      in_tail_q <= '0;
      out_tail_q <= '0;
      a_lane_q <= '0;
      o_lane_q <= '0;
      kernel_rows_q <= '0;
      kernel_columns_q <= '0;
      skip_q <= '0;
      bytes_q <= '0;
      tail_skip_q <= '0;
      tail_bytes_q <= '0;
      block_bytes_q <= '0;
      in_block_q <= '0;
      kernel_rows_left_q <= '0;
      columns_left_q <= '0;
      at_q <= '0;
      block_at_q <= '0;
      inner_q <= '0;
      outer_q <= '0;
      zero_o <= '0;
      unsigned_o <= 1'b0;
    end else if (start_i) begin
      busy_q <= 1'b1;
      conv_q <= descriptor_i.operation == 3'(DoConv);
      narrow_q <= descriptor_i.operation == 3'(DoConv) && descriptor_i.narrow;
      reach_q <= reach(descriptor_i.operation, descriptor_i.narrow, descriptor_i.first, descriptor_i.dilation, descriptor_i.kernel_columns,
          descriptor_i.stride_columns, descriptor_i.o_width);
      wide_q <= descriptor_i.operation == 3'(DoDepthwise) || columns_i < 10'(Lanes - Lanes / Window);
      blocks_left_q <= descriptor_i.out_blocks;
      in_blocks_q <= descriptor_i.in_blocks;
      in_tail_q <= descriptor_i.in_tail;
      out_tail_q <= descriptor_i.out_tail;
      a_lane_q <= descriptor_i.operation == 3'(DoConv) ? descriptor_i.a_lane : '0;
      o_lane_q <= descriptor_i.operation == 3'(DoConv) ? descriptor_i.o_lane : '0;
      kernel_rows_q <= kernel_rows_i;
      kernel_columns_q <= descriptor_i.kernel_columns;
      skip_q <= skip_i;
      bytes_q <= bytes_i;
      tail_skip_q <= tail_skip_i;
      tail_bytes_q <= tail_bytes_i;
      block_bytes_q <= descriptor_i.w_block_bytes;
      in_block_q <= '0;
      kernel_rows_left_q <= kernel_rows_i;
      columns_left_q <= descriptor_i.kernel_columns;
      block_at_q <= LaneBits'(descriptor_i.w_base);
      at_q <= LaneBits'(descriptor_i.w_base) + LaneBits'(descriptor_i.out_blocks == 10'd1 ? tail_skip_i : skip_i);
      inner_q <= '0;
      outer_q <= '0;
      zero_o <= descriptor_i.b_zero;
      unsigned_o <= descriptor_i.b_unsigned;
    end else if (write) begin
      at_q <= LaneBits'(end_at);
      inner_q <= inner_q + 7'(rows);
      if (inner_end) begin
        inner_q <= '0;
        outer_q <= row_last ? '0 : outer_q + 1'b1;
      end
      if (row_last) begin
        in_block_q <= in_last ? '0 : in_block_q + 1'b1;
        if (in_last) begin
          columns_left_q <= columns_left_q - 12'(reach_q.taps);
          if (group_last) begin
            columns_left_q <= kernel_columns_q;
            kernel_rows_left_q <= kernel_rows_left_q - 1'b1;
          end
        end
      end
      if (block_last) begin
        kernel_rows_left_q <= kernel_rows_q;
        at_q <= next_at;
        block_at_q <= block_at_q + LaneBits'(block_bytes_q);
        blocks_left_q <= blocks_left_q - 1'b1;
        busy_q <= blocks_left_q != 10'd1;
      end
    end
  end

  assign busy_o = busy_q;

  logic unused;
  assign unused = ^{descriptor_i, n, pair[Lanes*16-1:Lanes*8], begin_byte[LaneBits-1:0], end_byte[LaneBits-1:0]};

`ifndef SYNTHESIS
  assert property (@(posedge clk_i) !start_i || !busy_q);
  assert property (@(posedge clk_i) there_q <= taken_q && taken_q <= (DepthBits+1)'(Depth));
  assert property (@(posedge clk_i) (DepthBits+1)'(pop) <= there_q);
  // A tile is promised when it is full, and taken over when it was promised.
  assert property (@(posedge clk_i) !take_i || full_o);
  assert property (@(posedge clk_i) !release_i || locked_q);
`endif
endmodule
