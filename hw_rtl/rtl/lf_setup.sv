// Takes a command and finds what the engines need before its first column: whether its fields make sense,
// which kernel rows meet the operand at all, where rows lie in their rings, and how many bytes of weights
// there are. The next command may be set up while the one before is at work.
`include "lf_assert.svh"

module lf_setup
  import lf_isa_pkg::*;
  import lf_setup_pkg::*;
  import lf_reach_pkg::*;
#(
  parameter int unsigned Lanes = 16
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               valid_i,
  output logic               ready_o,
  input  computation_t       descriptor_i,
  input  logic [15:0]        row_i,
  input  logic [11:0]        count_i,
  // The command that is ready; it goes when `free_i` says so.
  output logic               valid_o,
  input  logic               free_i,
  output logic               bad_o,  // it cannot be done
  output error_e             bad_code_o,
  output logic               busy_o,
  output logic               moved_o,
  output command_t           command_o
);
  localparam int unsigned LaneBits = $clog2(Lanes);

  typedef enum logic [2:0] {Idle, Sizes, Rows, Rings, Ready} state_e;
  state_e             state_q;
  computation_t       d_q;
  logic [15:0]        row_q;
  logic [11:0]        count_q;
  logic signed [22:0] low_row_q;  // operand row of the first row of the result, at kernel row low_q
  logic signed [22:0] high_row_q;  // the same, at kernel row high_q - 1
  logic signed [22:0] span_q;  // operand rows from the first row of the result to the last
  logic signed [22:0] o_row_q;
  logic [11:0]        low_q, high_q;  // kernel rows low_q .. high_q - 1 remain
  logic [11:0]        kernel_rows_q;  // that meet the operand
  logic [17:0]        channels_q;  // bytes of weights of one kernel column and one output channel
  logic [23:0]        columns_q;
  // Products: row * stride, kernel rows * dilation, rows * stride, row * o_row_step.
  logic [22:0]        first_q, kernel_q, rows_q, o_first_q;
  logic               bad_q;
  error_e             code_q;
  logic               weighted, second, size_bad, enum_bad, few_bad, factors_bad, low_moves, high_moves;
  logic               size_bad_q, factors_bad_q;
  logic               rings_start, a_done, b_done, o_done;
  logic [2:0]         step_q;
  // Bytes of weights: 26 bits, or more than any buffer holds.
  typedef struct packed {
    logic        many;
    logic [25:0] bytes;
  } bytes_t;
  // kernel_row: of one output channel.
  bytes_t             factor_a, capped, kernel_row_q, skip_q, bytes_q, tail_skip_q, tail_bytes_q;
  logic [11:0]        factor_b;
  logic [6:0]         outputs_q;  // channels of the last block
  logic [37:0]        product_q;
  logic               many_q;

  // As a number, which is more than any buffer holds where there are too many.
  function automatic logic [39:0] as_bytes(bytes_t number);
    return number.many ? '1 : 40'(number.bytes);
  endfunction

  // Whether lane + step * (lanes - 1) is beyond the lanes.
  function automatic logic beyond(logic [5:0] lane, logic [5:0] step, logic [6:0] less);
    logic [2*LaneBits:0] last;
    last = (2*LaneBits+1)'(lane) +
           (2*LaneBits+1)'((2*LaneBits)'(step[LaneBits-1:0]) * (2*LaneBits)'(less[LaneBits-1:0]));
    return 32'(lane) >= Lanes ||
           (step != '0 && less != '0 && (32'(step) >= Lanes || 32'(less) >= Lanes || 32'(last) >= Lanes));
  endfunction

  always_comb begin
    weighted = has_weights(d_q.operation);
    second = !d_q.first || !d_q.last || needs_second(d_q.operation);
    enum_bad = 1'b0;
    size_bad = 1'b0;
    few_bad = columns_q > 24'(Accumulators);
    factors_bad = d_q.last && d_q.scale == 2'(ScaleChannel) &&
                  32'(d_q.factors) + 32'(d_q.out_blocks) > FactorRows;
    if (state_q == Sizes) begin
      enum_bad = d_q.kind != 2'(KindComputation) || d_q.operation > 3'(DoMul) || d_q.scale > 2'(ScaleScalar);
      size_bad = count_q == '0 || d_q.o_width == '0 || few_bad
          || d_q.kernel_rows == '0 || d_q.kernel_columns == '0 || d_q.dilation == '0
          || d_q.out_blocks == '0 || d_q.out_tail == '0 || 32'(d_q.out_tail) > Lanes
          || d_q.a_slots == '0 || d_q.a_height == '0 || d_q.a_width == '0
          || (second && d_q.b_slots == '0) || (d_q.last && d_q.o_slots == '0)
          || (weighted && d_q.w_slots == '0);
      if (d_q.last && d_q.scale == 2'(ScaleScalar) && (d_q.shift == '0 || d_q.shift == '1)) size_bad = 1'b1;
      if (!has_window(d_q.operation)) begin
        if (d_q.kernel_rows != 12'd1 || d_q.kernel_columns != 12'd1) size_bad = 1'b1;
        if (needs_second(d_q.operation) && !(d_q.first && d_q.last)) size_bad = 1'b1;
      end
      if (d_q.operation == 3'(DoCopy)) begin
        if (d_q.lanes != '0 && (beyond(d_q.a_lane, d_q.a_lane_step, d_q.lanes - 7'd1)
            || beyond(d_q.o_lane, d_q.o_lane_step, d_q.lanes - 7'd1))) size_bad = 1'b1;
      end
      if (d_q.operation == 3'(DoConv)) begin
        if (d_q.in_blocks == '0 || d_q.in_tail == '0 || 32'(d_q.in_tail) > Lanes) size_bad = 1'b1;
        if (32'(d_q.a_lane) >= (d_q.in_blocks == 10'd1 ? 32'(d_q.in_tail) : Lanes)
            || (d_q.narrow && d_q.a_lane != '0)) size_bad = 1'b1;
        if (d_q.o_lane != '0 && (d_q.out_blocks != 10'd1 || 7'(d_q.o_lane) >= d_q.out_tail
            || !d_q.first || !d_q.last)) size_bad = 1'b1;
        if (d_q.narrow && (d_q.in_blocks != 10'd1 || 32'(d_q.in_tail) > Lanes / Window)) size_bad = 1'b1;
      end
    end
    low_moves = low_row_q + span_q < 0 && low_q != d_q.kernel_rows;
    high_moves = high_row_q >= signed'(23'(d_q.a_height)) && high_q != '0;
    rings_start = state_q == Rows && !low_moves && !high_moves && !size_bad_q && !factors_bad_q;
  end

  // One multiplier for the bytes of weights; a product is there in the cycle after.
  always_comb begin
    factor_a = '{many: 1'b0, bytes: 26'(channels_q)};
    factor_b = d_q.kernel_columns;
    if (state_q == Rings) begin
      unique case (step_q)
        3'd0: begin
          factor_a = kernel_row_q;
          factor_b = low_q;
        end
        3'd1: begin
          factor_a = kernel_row_q;
          factor_b = kernel_rows_q;
        end
        3'd2: begin
          factor_a = skip_q;
          factor_b = 12'(outputs_q);
        end
        default: begin
          factor_a = bytes_q;
          factor_b = 12'(outputs_q);
        end
      endcase
    end
    capped.many = many_q || product_q[37:26] != '0;
    capped.bytes = product_q[25:0];
  end

  always_ff @(posedge clk_i) begin
    if (state_q != Idle && state_q != Ready) begin
      product_q <= 38'(factor_a.bytes) * 38'(factor_b);
      many_q <= factor_a.many && factor_b != '0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= Idle;
      d_q <= '0;
      row_q <= '0;
      count_q <= '0;
      low_row_q <= '0;
      high_row_q <= '0;
      span_q <= '0;
      o_row_q <= '0;
      low_q <= '0;
      high_q <= '0;
      channels_q <= '0;
      bad_q <= 1'b0;
      code_q <= ErrNone;
      step_q <= '0;
      kernel_row_q <= '0;
      kernel_rows_q <= '0;
      skip_q <= '0;
      bytes_q <= '0;
      tail_skip_q <= '0;
      tail_bytes_q <= '0;
      outputs_q <= '0;
      columns_q <= '0;
      first_q <= '0;
      kernel_q <= '0;
      rows_q <= '0;
      o_first_q <= '0;
      size_bad_q <= 1'b0;
      factors_bad_q <= 1'b0;
    end else begin
      unique case (state_q)
        Idle: begin
          if (valid_i) begin
            d_q <= descriptor_i;
            row_q <= row_i;
            count_q <= count_i;
            first_q <= 23'(row_i) * 23'(descriptor_i.stride_rows);
            kernel_q <= 23'(descriptor_i.kernel_rows) * 23'(descriptor_i.dilation);
            rows_q <= 23'(count_i) * 23'(descriptor_i.stride_rows);
            o_first_q <= 23'(row_i) * 23'(descriptor_i.o_row_step);
            columns_q <= 24'(count_i) * 24'(descriptor_i.o_width);
            outputs_q <= descriptor_i.out_tail -
                         (descriptor_i.operation == 3'(DoConv) ? 7'(descriptor_i.o_lane) : 7'd0);
            channels_q <= 18'd1;
            if (descriptor_i.operation == 3'(DoConv)) begin
              channels_q <= 18'(descriptor_i.in_tail) - 18'(descriptor_i.a_lane)
                  + (descriptor_i.narrow ? 18'd0 : 18'(descriptor_i.in_blocks - 10'd1) << LaneBits);
            end
            state_q <= Sizes;
          end
        end
        Sizes: begin
          low_row_q <= signed'(first_q) - 23'(d_q.pad_rows);
          high_row_q <= signed'(first_q) + signed'(kernel_q) - signed'(23'(d_q.dilation)) - 23'(d_q.pad_rows);
          span_q <= signed'(rows_q) - signed'(23'(d_q.stride_rows));
          o_row_q <= signed'(o_first_q) + signed'(23'(d_q.o_row));
          low_q <= '0;
          high_q <= d_q.kernel_rows;
          step_q <= '0;
          bad_q <= 1'b0;
          size_bad_q <= enum_bad || size_bad;
          factors_bad_q <= factors_bad;
          state_q <= Rows;
        end
        Rows: begin
          if (low_moves) begin
            low_q <= low_q + 1'b1;
            low_row_q <= low_row_q + 23'(d_q.dilation);
          end
          if (high_moves) begin
            high_q <= high_q - 1'b1;
            high_row_q <= high_row_q - 23'(d_q.dilation);
          end
          if (rings_start) begin
            kernel_rows_q <= high_q - low_q;  // none is both above the operand and below it
            state_q <= Rings;
          end
          if (size_bad_q || factors_bad_q) begin
            bad_q <= 1'b1;
            code_q <= size_bad_q ? ErrField : ErrBuffer;
            state_q <= Ready;
          end
          kernel_row_q <= capped;
        end
        Rings: begin
          if (step_q != 3'd5) step_q <= step_q + 1'b1;
          unique case (step_q)
            3'd1:    skip_q <= capped;
            3'd2:    bytes_q <= capped;
            3'd3:    tail_skip_q <= capped;
            3'd4:    tail_bytes_q <= capped;
            default: ;
          endcase
          if (a_done && b_done && o_done && (!weighted || step_q >= 3'd4)) state_q <= Ready;
        end
        default: if (free_i) state_q <= Idle;  // Ready
      endcase
    end
  end

  ring_t       a, b, o;
  logic [31:0] a_kernel_step, b_kernel_step, o_kernel_step;

  lf_ring u_ring_a (
    .clk_i,
    .rst_ni,
    .start_i      (rings_start),
    .value_i      (low_row_q),
    .row_step_i   (5'(d_q.stride_rows)),
    .kernel_step_i(d_q.dilation),
    .slots_i      (d_q.a_slots),
    .slot_words_i (d_q.a_slot_words),
    .done_o       (a_done),
    .offset_o     (a.offset),
    .row_step_o   (a.row_step),
    .kernel_step_o(a_kernel_step),
    .limit_o      (a.limit)
  );

  lf_ring u_ring_b (
    .clk_i,
    .rst_ni,
    .start_i      (rings_start),
    .value_i      (23'(row_q)),
    .row_step_i   (5'd1),
    .kernel_step_i('0),
    .slots_i      (d_q.b_slots),
    .slot_words_i (d_q.b_slot_words),
    .done_o       (b_done),
    .offset_o     (b.offset),
    .row_step_o   (b.row_step),
    .kernel_step_o(b_kernel_step),
    .limit_o      (b.limit)
  );

  lf_ring u_ring_o (
    .clk_i,
    .rst_ni,
    .start_i      (rings_start),
    .value_i      (o_row_q),
    .row_step_i   (5'(d_q.o_row_step)),
    .kernel_step_i('0),
    .slots_i      (d_q.o_slots),
    .slot_words_i (d_q.o_slot_words),
    .done_o       (o_done),
    .offset_o     (o.offset),
    .row_step_o   (o.row_step),
    .kernel_step_o(o_kernel_step),
    .limit_o      (o.limit)
  );

  assign ready_o = state_q == Idle;
  assign busy_o = state_q != Idle;
  assign moved_o = state_q == Rows;
  assign valid_o = state_q == Ready && !bad_q;
  assign bad_o = state_q == Ready && bad_q;
  assign bad_code_o = code_q;
  assign command_o = '{
    count: count_q,
    columns: columns_q[9:0],
    kernel_rows: kernel_rows_q,
    a_row: low_row_q,
    reach: reach(d_q.operation, d_q.narrow, d_q.first, d_q.dilation, d_q.kernel_columns, d_q.stride_columns,
                 d_q.o_width),
    full_weights: '{skip: as_bytes(skip_q) << LaneBits, bytes: as_bytes(bytes_q) << LaneBits},
    tail_weights: '{skip: as_bytes(tail_skip_q), bytes: as_bytes(tail_bytes_q)},
    a_kernel_step: a_kernel_step,
    a: a,
    b: b,
    o: o,
    d: d_q
  };

  logic unused;
  assign unused = ^{b_kernel_step, o_kernel_step, d_q};

  `LF_HELD(CommandHeld, valid_o, free_i, command_o)
  `LF_ASSERT(BadOrValid, !(valid_o && bad_o), "a command is ready that cannot be done")
endmodule
