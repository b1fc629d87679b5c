// Brings weights from the buffer into a tile for the MAC array, in the order in which passes use them, and
// one ahead of them: words are fetched into a small queue, a funnel cuts out the n bytes of one input lane
// (or kernel column), and a row of the tile is written each cycle.
//
// Where passes are short (`wide`: depthwise, and fewer columns than a tile has words, less the cycles in
// which they come so), Window words come at once, and before the operand; and where words are rows of an
// ordinary convolution as they are, so many rows are written each cycle.
`include "lf_assert.svh"

module lf_weights
  import lf_isa_pkg::*;
  import lf_setup_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384,
  localparam int unsigned LaneBits = $clog2(Lanes)
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    start_i,
  input  command_t                command_i,
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
  // The tile is full before its pass may start. The array takes it over in the cycle behind `take_i`, in
  // which the next one's first row may come.
  output logic                    valid_o,
  input  logic                    take_i
);
  // Rows of the queue, of Window words each, which lie as in the buffer: word w in bank w mod Window.
  localparam int unsigned Rows = 4;
  localparam int unsigned RowBits = $clog2(Rows) + 1;  // rows are counted twice around
  localparam int unsigned BankBits = $clog2(Window);
  localparam int unsigned AtBits = LaneBits + BankBits;  // a byte of a row
  localparam int unsigned NarrowLanes = Lanes / Window;

  logic        busy_q, conv_q, narrow_q, wide_q;
  reach_t      reach_q;
  logic [9:0]  in_blocks_q;
  logic [6:0]  in_tail_q, out_tail_q;
  logic [LaneBits-1:0] a_lane_q;  // of the first input channel
  logic [5:0]  o_lane_q;  // of the first output channel, in the one block that there then is
  logic [11:0] kernel_rows_q, kernel_columns_q;
  logic [40:0] skip_q, end_q, tail_skip_q, tail_end_q;  // of a block's weights: first byte used, last
  logic [23:0] block_bytes_q;

  // What a command begins with.
  logic       conv_new, narrow_new;
  logic [9:0] in_blocks_new;
  logic [6:0] first_size_new;
  logic [2:0] first_group_new;

  always_comb begin
    conv_new = command_i.d.operation == 3'(DoConv);
    narrow_new = conv_new && command_i.d.narrow;
    in_blocks_new = conv_new && !narrow_new ? command_i.d.in_blocks : 10'd1;
    first_size_new = !conv_new ? 7'd1 :
                     (in_blocks_new == 10'd1 ? command_i.d.in_tail : 7'(Lanes)) - 7'(command_i.d.a_lane);
    first_group_new = taps_of(command_i.d.kernel_columns, command_i.reach.taps);
  end

  // -- Fetching: the words of a block, while those of the next are looked up --------------------------------

  // Words of the block are left; it lies behind the end of the buffer; the next is looked up.
  logic               fetch_q, over_q, ready_q;
  logic [9:0]         fetch_left_q;  // blocks that are not looked up
  logic [41:0]        base_q;  // bytes; of the block that is next
  logic [41:0]        first_q, last_q;  // words of it
  logic [41:0]        left_q;  // words, less one
  logic [19:0]        next_q;  // word
  logic [2:0]         asked, there_d;  // words
  logic [RowBits-1:0] put_q, get_q, held;  // rows of the queue
  logic [RowBits-2:0] arriving_row_q;
  logic [Window-1:0]  arriving_q;
  logic [4:0]         there_q;  // words that are there
  logic [2:0]         pop;  // words that are used up
  logic [Lanes*8-1:0] queue_q [Window][Rows];
  logic               asks, few, last_asked;

  always_comb begin
    few = left_q[41:BankBits] == '0;
    asked = 3'd1;
    if (wide_q) begin
      asked = 3'(Window) - 3'(next_q[BankBits-1:0]);
      if (few && 3'(left_q[BankBits-1:0]) < asked) asked = 3'(left_q[BankBits-1:0]) + 3'd1;
    end
    last_asked = few && 3'(left_q[BankBits-1:0]) + 3'd1 == asked;
    held = put_q - get_q;
    fault_o = fetch_q && over_q;
    rd_valid_o = fetch_q && !over_q && held < RowBits'(Rows);
    rd_first_o = wide_q && held < RowBits'(Rows / 2);
    rd_word_o = {next_q[19:BankBits], BankBits'(0)};
    for (int unsigned t = 0; t < Window; t++) begin
      rd_mask_o[t] = 3'(t) >= 3'(next_q[BankBits-1:0]) && 4'(t) < 4'(next_q[BankBits-1:0]) + 4'(asked);
    end
    asks = rd_valid_o && rd_grant_i;
    there_d = '0;
    for (int unsigned t = 0; t < Window; t++) there_d = there_d + 3'(arriving_q[t]);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fetch_q <= 1'b0;
      over_q <= 1'b0;
      ready_q <= 1'b0;
      fetch_left_q <= '0;
      base_q <= '0;
      first_q <= '0;
      last_q <= '0;
      left_q <= '0;
      next_q <= '0;
      put_q <= '0;
      arriving_q <= '0;
      arriving_row_q <= '0;
      there_q <= '0;
    end else begin
      arriving_q <= asks ? rd_mask_o : '0;
      arriving_row_q <= put_q[RowBits-2:0];
      there_q <= there_q + 5'(there_d) - 5'(pop);
      if (asks) begin
        next_q <= next_q + 20'(asked);
        left_q <= left_q - 42'(asked);
        // A block begins in a row of its own.
        if (last_asked || 3'(next_q[BankBits-1:0]) + asked == 3'(Window)) put_q <= put_q + 1'b1;
        if (last_asked) fetch_q <= 1'b0;
      end
      if (start_i) begin
        fetch_left_q <= command_i.d.out_blocks;
        base_q <= 42'(command_i.d.w_base);
      end else if (fetch_left_q != '0 && !ready_q) begin
        ready_q <= 1'b1;
        first_q <= (base_q + 42'(fetch_left_q == 10'd1 ? tail_skip_q : skip_q)) >> LaneBits;
        last_q <= (base_q + 42'(fetch_left_q == 10'd1 ? tail_end_q : end_q)) >> LaneBits;
        base_q <= base_q + 42'(block_bytes_q);
        fetch_left_q <= fetch_left_q - 1'b1;
      end
      if (ready_q && (!fetch_q || (asks && last_asked))) begin
        ready_q <= 1'b0;
        fetch_q <= 1'b1;
        over_q <= last_q >= 42'(BufferWords);
        next_q <= first_q[19:0];
        left_q <= last_q - first_q;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned b = 0; b < Window; b++) if (arriving_q[b]) queue_q[b][arriving_row_q] <= rd_data_i[b];
  end

  // -- Filling: the walk of lf_columns, but for columns -----------------------------------------------------

  logic [9:0]         blocks_left_q, in_left_q;
  logic [11:0]        kernel_rows_left_q, columns_left_q;
  logic [6:0]         first_size_q, inner_left_q;  // input channels: of the first block, left of this
  logic [2:0]         first_group_q, outer_left_q;  // kernel columns: of the first group, left of this
  logic [LaneBits-1:0] index_q, outer_q;  // row of the tile, and of the kernel column's first
  logic [AtBits-1:0]  at_q;  // byte of the queue's row
  logic [AtBits-1:0]  block_at_q;  // the same, where the block's weights would begin had no row been skipped
  logic [AtBits-1:0]  next_at;
  logic [6:0]         n_q;  // bytes of a row
  logic [AtBits:0]    end_at;
  logic [LaneBits:0]  end_in_word;
  logic               write, as_they_are, inner_end, row_last, in_last, group_last, block_last, go;
  logic [2:0]         rows;  // that are written
  logic [Lanes*16-1:0] pair;
  logic [Lanes*8-1:0] word [Window];

  // The row of the tile that goes to the array next.
  logic                           row_q, last_row_q, valid_q;
  logic [LaneBits-1:0]            row_index_q;
  logic [2:0]                     row_count_q;
  logic [Window-1:0][Lanes*8-1:0] row_data_q;

  always_comb begin
    in_last = in_left_q == 10'd1;
    group_last = columns_left_q <= 12'(reach_q.taps);
    // Words that are rows as they are.
    as_they_are = wide_q && conv_q && !narrow_q && n_q == 7'(Lanes) && at_q[LaneBits-1:0] == '0;
    rows = 3'd1;
    if (as_they_are)
      for (int unsigned k = 2; k <= Window; k++)
        if (7'(k) <= inner_left_q && 5'(k) <= there_q) rows = 3'(k);
    inner_end = inner_left_q == 7'(rows);
    row_last = inner_end && outer_left_q == 3'd1;
    block_last = row_last && in_last && group_last && kernel_rows_left_q == 12'd1;
    end_in_word = (LaneBits+1)'(at_q[LaneBits-1:0]) + (LaneBits+1)'(n_q);
    end_at = (AtBits+1)'(at_q) + (as_they_are ? (AtBits+1)'({rows, LaneBits'(0)}) : (AtBits+1)'(n_q));
    go = row_q && !valid_q;
    write = busy_q && (!row_q || go) &&
            (there_q > 5'd1 || (there_q == 5'd1 && end_in_word <= (LaneBits+1)'(Lanes)));
    // The next block begins with a word of its own, even if it is the same.
    pop = '0;
    if (write && as_they_are) pop = rows;
    else if (write)
      pop = 3'(end_in_word >= (LaneBits+1)'(Lanes) || block_last) +
            3'(end_in_word > (LaneBits+1)'(Lanes) && block_last);
    next_at = block_at_q + AtBits'(blocks_left_q == 10'd2 ? tail_skip_q : skip_q) + AtBits'(block_bytes_q);
    for (int unsigned k = 0; k < Window; k++) begin
      word[k] = queue_q[BankBits'(k) + at_q[AtBits-1:LaneBits]]
          [(RowBits-1)'(get_q) +
           (RowBits-1)'(BankBits'(BankBits'(k) + at_q[AtBits-1:LaneBits]) < at_q[AtBits-1:LaneBits])];
    end
  end

  assign pair = {word[1], word[0]} >> {at_q[LaneBits-1:0], 3'b000};

  always_ff @(posedge clk_i) begin
    if (write) begin
      row_data_q[0] <= pair[Lanes*8-1:0] << {o_lane_q, 3'b000};
      for (int unsigned k = 1; k < Window; k++) row_data_q[k] <= word[k];
      row_index_q <= index_q;
      row_count_q <= rows;
      last_row_q <= row_last;
    end
  end

  assign row_valid_o = go;
  assign row_o = row_index_q;
  assign row_count_o = row_count_q;
  assign row_data_o = row_data_q;
  assign row_depthwise_o = !conv_q;
  assign row_together_o = reach_q.columns;
  assign valid_o = valid_q || (go && last_row_q);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      row_q <= 1'b0;
      valid_q <= 1'b0;
    end else begin
      row_q <= write || (row_q && !go);
      valid_q <= valid_o && !take_i;
    end
  end

  always_ff @(posedge clk_i) begin
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
      end_q <= '0;
      tail_skip_q <= '0;
      tail_end_q <= '0;
      block_bytes_q <= '0;
      in_left_q <= '0;
      kernel_rows_left_q <= '0;
      columns_left_q <= '0;
      first_size_q <= '0;
      inner_left_q <= '0;
      first_group_q <= '0;
      outer_left_q <= '0;
      index_q <= '0;
      outer_q <= '0;
      at_q <= '0;
      block_at_q <= '0;
      n_q <= '0;
      get_q <= '0;
      zero_o <= '0;
      unsigned_o <= 1'b0;
    end else if (start_i) begin
      busy_q <= 1'b1;
      conv_q <= conv_new;
      narrow_q <= narrow_new;
      wide_q <= command_i.d.operation == 3'(DoDepthwise) || command_i.columns < 10'(Lanes - Lanes / Window);
      reach_q <= command_i.reach;
      blocks_left_q <= command_i.d.out_blocks;
      in_blocks_q <= in_blocks_new;
      in_tail_q <= command_i.d.in_tail;
      out_tail_q <= command_i.d.out_tail;
      a_lane_q <= conv_new ? LaneBits'(command_i.d.a_lane) : '0;
      o_lane_q <= conv_new ? command_i.d.o_lane : '0;
      kernel_rows_q <= command_i.kernel_rows;
      kernel_columns_q <= command_i.d.kernel_columns;
      skip_q <= 41'(command_i.full_weights.skip);
      end_q <= 41'(command_i.full_weights.skip) + 41'(command_i.full_weights.bytes) - 41'd1;
      tail_skip_q <= 41'(command_i.tail_weights.skip);
      tail_end_q <= 41'(command_i.tail_weights.skip) + 41'(command_i.tail_weights.bytes) - 41'd1;
      block_bytes_q <= command_i.d.w_block_bytes;
      in_left_q <= in_blocks_new;
      kernel_rows_left_q <= command_i.kernel_rows;
      columns_left_q <= command_i.d.kernel_columns;
      first_size_q <= first_size_new;
      inner_left_q <= first_size_new;
      first_group_q <= first_group_new;
      outer_left_q <= first_group_new;
      index_q <= conv_new ? LaneBits'(command_i.d.a_lane) : '0;
      outer_q <= '0;
      block_at_q <= AtBits'(command_i.d.w_base);
      at_q <= AtBits'(command_i.d.w_base) +
              AtBits'(command_i.d.out_blocks == 10'd1
                      ? command_i.tail_weights.skip : command_i.full_weights.skip);
      n_q <= command_i.d.out_blocks == 10'd1
             ? command_i.d.out_tail - (conv_new ? 7'(command_i.d.o_lane) : 7'd0) : 7'(Lanes);
      zero_o <= command_i.d.b_zero;
      unsigned_o <= command_i.d.b_unsigned;
    end else if (write) begin
      at_q <= AtBits'(end_at);
      get_q <= get_q + RowBits'(end_at[AtBits]);
      inner_left_q <= inner_left_q - 7'(rows);
      index_q <= index_q + LaneBits'(rows);
      if (inner_end) begin
        inner_left_q <= first_size_q;
        outer_left_q <= outer_left_q - 1'b1;
        outer_q <= outer_q + (narrow_q ? LaneBits'(NarrowLanes) : LaneBits'(1));
        index_q <= outer_q + (narrow_q ? LaneBits'(NarrowLanes) : LaneBits'(1));
      end
      if (row_last) begin
        outer_left_q <= first_group_q;
        outer_q <= '0;
        index_q <= '0;
        in_left_q <= in_left_q - 1'b1;
        if (!in_last) begin
          inner_left_q <= in_left_q == 10'd2 ? in_tail_q : 7'(Lanes);
          outer_left_q <= 3'd1;
        end else begin
          in_left_q <= in_blocks_q;
          index_q <= a_lane_q;
          columns_left_q <= columns_left_q - 12'(reach_q.taps);
          if (!group_last) outer_left_q <= taps_behind(columns_left_q, reach_q.taps);
          if (group_last) begin
            columns_left_q <= kernel_columns_q;
            kernel_rows_left_q <= kernel_rows_left_q - 1'b1;
          end
        end
      end
      if (block_last) begin
        kernel_rows_left_q <= kernel_rows_q;
        at_q <= next_at;
        get_q <= get_q + (end_at > (AtBits+1)'(Window * Lanes) ? RowBits'(2) : RowBits'(1));
        block_at_q <= block_at_q + AtBits'(block_bytes_q);
        blocks_left_q <= blocks_left_q - 1'b1;
        n_q <= blocks_left_q == 10'd2 ? out_tail_q - 7'(o_lane_q) : 7'(Lanes);
        busy_q <= blocks_left_q != 10'd1;
      end
    end
  end

  assign busy_o = busy_q || row_q;

  logic unused;
  assign unused = ^{command_i, pair[Lanes*16-1:Lanes*8]};

  `LF_ASSERT(StartedWhenFree, !start_i || !busy_o, "a command comes while one is at work")
  `LF_ASSERT(QueueHasWords, 5'(pop) <= there_q, "words are used up that are not there")
  `LF_ASSERT(TakenOnceValid, !take_i || valid_o, "a tile is taken that is not full")
  `LF_ASSERT(WeightsHeld, valid_o && !take_i |=> valid_o, "weights go before they are taken")
endmodule
