// The arithmetic of a step: Lanes x Lanes products, of which every operation uses some. Four stages:
// operands, less their zero points; products; sums of four rows; their sums.
//
//   CONV         each row of the multipliers has an element of one input channel, or of one input channel and
//                kernel column
//   DEPTHWISE    each has a kernel column of one of up to 4 neighbouring columns (lf_reach_pkg): rows 0 to 3
//                of the first, 4 to 7 of the second, ..; of 3 columns, the fifth kernel column is in rows 12
//                to 14; of 2, rows 0 to 7 are of the first, 8 to 15 of the second
//   the others   rows 0 to 3: the first two with other factors than weights (the second operand, a
//                multiplier, 1), the last two as they are
`include "lf_assert.svh"

module lf_array
  import lf_isa_pkg::*;
  import lf_reach_pkg::Reach;
#(
  parameter int unsigned Lanes = 16,
  localparam int unsigned LaneBits = $clog2(Lanes)
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  input  computation_t                   descriptor_i,  // of the step in the first stage
  input  logic [2:0]                     together_i,  // columns of the result that a step makes
  input  logic                           start_i,  // it is new
  // First stage: the window has come from the buffer.
  input  logic                           valid_i,
  input  logic                           fetch_i,  // it is kept for the next step, and is no column itself
  input  logic [Window-1:0][Lanes*8-1:0] window_i,
  input  logic [Reach-1:0]               present_i,  // words that are no padding
  // Word of the window that window_i begins with; those before it were in the window before, shift_i words
  // farther on.
  input  logic [2:0]                     from_i,
  input  logic [2:0]                     shift_i,
  input  logic [2:0]                     taps_i,
  input  logic [6:0]                     lanes_i,
  input  logic [5:0]                     lane_i,
  input  logic                           pass_start_i,  // it needs the next weights
  input  logic                           first_i,  // pass of the block
  input  logic                           second_used_i,
  input  logic [Window-1:0][Lanes*8-1:0] second_i,  // second operand, or held sums that a block begins with
  // Sums of the pass, of neighbouring columns, four cycles later.
  output logic signed [31:0]             sum_o [Window][Lanes],
  // Rows of the weights of the next pass.
  input  logic                           row_valid_i,
  input  logic                           row_depthwise_i,
  input  logic [2:0]                     row_together_i,
  input  logic [LaneBits-1:0]            row_i,  // input lane or, depthwise, kernel column; the first
  input  logic [2:0]                     row_count_i,  // of so many; depthwise: 1
  input  logic [Window-1:0][Lanes*8-1:0] row_data_i,
  input  logic signed [8:0]              zero_i,
  input  logic                           unsigned_i
);
  localparam int unsigned NarrowLanes = Lanes / Window;
  localparam int unsigned Spread = Window * Window;  // rows of a depthwise convolution

  // Operands need 10 bits, products 20. Simulation has 32, with which its loops become vector instructions;
  // an assertion says what operands hold.
`ifdef SYNTHESIS
  typedef logic signed [9:0] operand_t;
  typedef logic signed [25:0] factor_t;
  typedef logic signed [19:0] product_t;
  typedef logic signed [35:0] wide_t;
  typedef logic signed [23:0] sum_t;
`else
  typedef logic signed [31:0] operand_t;
  typedef logic signed [31:0] factor_t;
  typedef logic signed [31:0] product_t;
  typedef logic signed [31:0] wide_t;
  typedef logic signed [31:0] sum_t;
`endif

  logic conv, depthwise, plain;
  assign conv = descriptor_i.operation == 3'(DoConv);
  assign depthwise = descriptor_i.operation == 3'(DoDepthwise);
  assign plain = conv && !descriptor_i.narrow;

  // An element as a number.
  function automatic operand_t number(logic [7:0] value, logic is_unsigned);
    return operand_t'(signed'({value[7] && !is_unsigned, value}));
  endfunction

  // The larger of two, of which there may be one alone.
  function automatic operand_t larger(operand_t one, logic there, operand_t other, logic too);
    return too && (!there || other > one) ? other : one;
  endfunction

  // -- Weights: those of the pass at work, and those that come for the next ---------------------------------

  operand_t           weight_q [Lanes][Lanes], next_q [Lanes][Lanes];  // [row][output lane]
  operand_t           row_number [Window][Lanes];  // of the rows k, k + Window, ..
  logic [Lanes-1:0]   row_goes;

  always_comb begin
    for (int unsigned k = 0; k < Window; k++) for (int unsigned o = 0; o < Lanes; o++) row_number[k][o] = 'x;
    row_goes = '0;
    if (row_valid_i) begin
      for (int unsigned k = 0; k < Window; k++) begin
        for (int unsigned o = 0; o < Lanes; o++) begin
          row_number[k][o] = number(row_data_i[row_depthwise_i ? 2'd0 : 2'(k) - row_i[1:0]][o*8 +: 8],
                                    unsigned_i) - operand_t'(zero_i);
        end
      end
      for (int unsigned r = 0; r < Lanes; r++) begin
        if (!row_depthwise_i) row_goes[r] = LaneBits'(LaneBits'(r) - row_i) < LaneBits'(row_count_i);
        else if (r >= Spread) row_goes[r] = 1'b0;
        else if (row_together_i == 3'd2) row_goes[r] = LaneBits'(r % Reach) == row_i;
        else if (row_together_i == 3'd3 && r >= 3 * Window) row_goes[r] = row_i == LaneBits'(Window);
        else row_goes[r] = LaneBits'(r % Window) == row_i;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned r = 0; r < Lanes; r++) begin
      if (row_goes[r]) next_q[r] <= row_number[r % Window];
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i && pass_start_i) weight_q <= next_q;
  end

  // -- First stage: operands --------------------------------------------------------------------------------

  operand_t zero;
  operand_t number_d [Window][Lanes];  // words from the buffer, less the zero point
  operand_t window [Reach][Lanes], last_q [Reach][Lanes];
  // The largest element is the same one before.
  assign zero = descriptor_i.operation == 3'(DoMax) ? '0 : operand_t'(descriptor_i.a_zero);

  always_comb begin
    for (int unsigned j = 0; j < Window; j++) for (int unsigned o = 0; o < Lanes; o++) number_d[j][o] = 'x;
    for (int unsigned j = 0; j < Reach; j++) for (int unsigned o = 0; o < Lanes; o++) window[j][o] = 'x;
    if (valid_i) begin
      for (int unsigned o = 0; o < Lanes; o++)
        number_d[0][o] = number(window_i[0][o*8 +: 8], descriptor_i.a_unsigned) - zero;
      if (!plain) begin
        for (int unsigned j = 1; j < Window; j++) for (int unsigned o = 0; o < Lanes; o++)
          number_d[j][o] = number(window_i[j][o*8 +: 8], descriptor_i.a_unsigned) - zero;
        for (int unsigned j = 0; j < Reach; j++) window[j] = number_d[2'(3'(j) - from_i)];
        // Windows share Window words at most, and are so many apart at most where they do.
        for (int unsigned j = 0; j < Window; j++)
          if (3'(j) < from_i && !fetch_i) window[j] = last_q[3'(j) + 3'd1 + 3'(2'(shift_i - 3'd1))];
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i && !plain) last_q <= window;
  end

  // COPY: where each lane of the result comes from. The descriptor is new in the cycle in which `start_i` is
  // high; columns come two cycles later.
  logic [LaneBits-1:0] from_q [Lanes], to_q [Lanes];  // of the k-th lane
  logic [LaneBits-1:0] source_d [Lanes], source_q [Lanes];
  logic [Lanes-1:0]    moves_q;
  logic                started_q;

  always_comb begin
    for (int unsigned o = 0; o < Lanes; o++) source_d[o] = LaneBits'(o);
    if (started_q) for (int unsigned k = 0; k < Lanes; k++) if (moves_q[k]) source_d[to_q[k]] = from_q[k];
  end

  always_ff @(posedge clk_i) begin
    started_q <= start_i;
    if (start_i) begin
      for (int unsigned k = 0; k < Lanes; k++) begin
        moves_q[k] <= 7'(k) < descriptor_i.lanes;
        from_q[k] <= LaneBits'(descriptor_i.a_lane) + LaneBits'(k * 32'(descriptor_i.a_lane_step));
        to_q[k] <= LaneBits'(descriptor_i.o_lane) + LaneBits'(k * 32'(descriptor_i.o_lane_step));
      end
    end
    if (started_q) source_q <= source_d;
  end

  operand_t element [Reach][Lanes];  // of the window; 0 where it is padding
  operand_t lane [Lanes];  // CONV: an element for each row
  operand_t second [Lanes];
  operand_t x_d [Lanes][Lanes], x_q [Lanes][Lanes];
  factor_t  y_d [2][Lanes], y_q [2][Lanes];  // factors of the first two rows that are no weights
  // other: factors are no weights; most: the largest element.
  logic     other_q, most_q, conv_q, valid_q, held_q;
  logic [2:0] together_q;
  logic [Window-1:0]   present_q;
  logic [Lanes*32-1:0] second_q;

  always_comb begin
    for (int unsigned j = 0; j < Reach; j++) for (int unsigned o = 0; o < Lanes; o++) element[j][o] = 'x;
    for (int unsigned l = 0; l < Lanes; l++) lane[l] = 'x;
    if (valid_i && !fetch_i) begin
      if (plain) begin
        for (int unsigned l = 0; l < Lanes; l++)
          lane[l] = present_i[0] && 7'(l) < lanes_i && 7'(l) >= 7'(lane_i) ? number_d[0][l] : '0;
      end else begin
        for (int unsigned j = 0; j < Reach; j++) for (int unsigned o = 0; o < Lanes; o++)
          element[j][o] = present_i[j] ? window[j][o] : '0;
        for (int unsigned t = 0; t < Window; t++) begin
          for (int unsigned c = 0; c < NarrowLanes; c++)
            lane[t*NarrowLanes + c] = 7'(c) < lanes_i ? element[t][c] : '0;
        end
      end
    end
  end

  always_comb begin
    for (int unsigned r = 0; r < Lanes; r++) for (int unsigned o = 0; o < Lanes; o++) x_d[r][o] = '0;
    for (int unsigned r = 0; r < 2; r++) for (int unsigned o = 0; o < Lanes; o++) y_d[r][o] = 'x;
    for (int unsigned o = 0; o < Lanes; o++) second[o] = 'x;
    if (valid_i && !fetch_i) begin
      if (conv) begin
        for (int unsigned r = 0; r < Lanes; r++) for (int unsigned o = 0; o < Lanes; o++) x_d[r][o] = lane[r];
      end else if (depthwise) begin
        for (int unsigned r = 0; r < Spread; r++) begin
          for (int unsigned o = 0; o < Lanes; o++) begin
            if (together_i == 3'd2)
              x_d[r][o] = 3'(r % Reach) < taps_i ? element[3'(r % Reach + 2 * (r / Reach))][o] : '0;
            else if (together_i == 3'd3 && r >= 3 * Window)
              x_d[r][o] = 3'(Window) < taps_i ? element[3'(Window + r % Window)][o] : '0;
            else x_d[r][o] = 3'(r % Window) < taps_i ? element[3'(r % Window + r / Window)][o] : '0;
          end
        end
      end else begin
        for (int unsigned r = 0; r < 2; r++) for (int unsigned o = 0; o < Lanes; o++)
          y_d[r][o] = factor_t'(1);
        for (int unsigned o = 0; o < Lanes; o++)
          second[o] = number(second_i[0][o*8 +: 8], descriptor_i.b_unsigned) -
                      operand_t'(descriptor_i.b_zero);
        unique case (descriptor_i.operation)
          3'(DoSum), 3'(DoMax): for (int unsigned t = 0; t < Window; t++) x_d[t] = element[t];
          3'(DoAdd): begin
            x_d[0] = element[0];
            x_d[1] = second;
            for (int unsigned o = 0; o < Lanes; o++) begin
              y_d[0][o] = factor_t'(descriptor_i.a_multiplier);
              y_d[1][o] = factor_t'(descriptor_i.b_multiplier);
            end
          end
          3'(DoMul): begin
            x_d[0] = element[0];
            for (int unsigned o = 0; o < Lanes; o++) y_d[0][o] = factor_t'(second[o]);
          end
          default:  // COPY
            for (int unsigned o = 0; o < Lanes; o++) x_d[0][o] = element[0][source_q[o]] + zero;
        endcase
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      conv_q <= 1'b0;
      other_q <= 1'b0;
      most_q <= 1'b0;
      held_q <= 1'b0;
      together_q <= '0;
      present_q <= '0;
    end else begin
      valid_q <= valid_i && !fetch_i;
      conv_q <= conv;
      other_q <= !conv && !depthwise;
      most_q <= descriptor_i.operation == 3'(DoMax);
      held_q <= second_used_i && first_i && !descriptor_i.first;
      together_q <= together_i;
      present_q <= present_i[Window-1:0];
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i && !fetch_i) begin
      x_q <= x_d;
      if (!conv) y_q <= y_d;
      if (second_used_i) second_q <= second_i;
    end
  end

  // -- Second stage: products -------------------------------------------------------------------------------

  wide_t               low_q [2][Lanes];  // of the first two rows, whose factors may have 26 bits
  product_t            m_q [Lanes][Lanes];  // of the others
  operand_t            most_d [Lanes], most_of_q [Lanes];  // the largest element
  logic                any_q;  // there is one
  logic                quarters_valid_q, quarters_conv_q, quarters_other_q, quarters_most_q, quarters_held_q;
  logic [2:0]          quarters_together_q;
  logic [Lanes*32-1:0] held_sums_q;

  factor_t low_factor [2][Lanes];
  for (genvar r = 0; r < 2; r++) begin : gen_low
    for (genvar o = 0; o < Lanes; o++) begin : gen_lane
      assign low_factor[r][o] = other_q ? y_q[r][o] : factor_t'(weight_q[r][o]);
    end
  end

  always_comb begin
    for (int unsigned o = 0; o < Lanes; o++) most_d[o] = 'x;
    if (valid_q && most_q) begin
      for (int unsigned o = 0; o < Lanes; o++) begin
        most_d[o] = larger(larger(x_q[0][o], present_q[0], x_q[1][o], present_q[1]), |present_q[1:0],
                           larger(x_q[2][o], present_q[2], x_q[3][o], present_q[3]), |present_q[3:2]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      quarters_valid_q <= 1'b0;
      quarters_conv_q <= 1'b0;
      quarters_other_q <= 1'b0;
      quarters_most_q <= 1'b0;
      quarters_held_q <= 1'b0;
      quarters_together_q <= '0;
    end else begin
      quarters_valid_q <= valid_q;
      quarters_conv_q <= conv_q;
      quarters_other_q <= other_q;
      quarters_most_q <= most_q;
      quarters_held_q <= held_q;
      quarters_together_q <= together_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_q) begin
      for (int unsigned r = 0; r < 2; r++) for (int unsigned o = 0; o < Lanes; o++)
        low_q[r][o] <= low_factor[r][o] * x_q[r][o];
      for (int unsigned r = 2; r < Window; r++) for (int unsigned o = 0; o < Lanes; o++)
        m_q[r][o] <= (other_q ? operand_t'(1) : weight_q[r][o]) * x_q[r][o];
    end
    if (valid_q && !other_q)
      for (int unsigned r = Window; r < Lanes; r++) for (int unsigned o = 0; o < Lanes; o++)
        m_q[r][o] <= weight_q[r][o] * x_q[r][o];
    if (valid_q && most_q) begin
      most_of_q <= most_d;
      any_q <= |present_q;
    end
    if (held_q) held_sums_q <= second_q;
  end

  // -- Third stage: sums of four rows -----------------------------------------------------------------------

  logic signed [31:0] first_d [Lanes], first_q [Lanes];  // of the first four rows
  logic signed [31:0] rest_d [Lanes], rest_q [Lanes];  // of the rows behind Spread and of held sums
  sum_t     others_d [1:Window-1][Lanes], others_q [1:Window-1][Lanes];  // of four rows each
  sum_t     upper_q [Lanes];  // of the last two of these
  product_t fifth_q [Window-1][Lanes];
  logic     sums_valid_q, sums_conv_q, sums_other_q;
  logic [2:0] sums_together_q;

  always_comb begin
    for (int unsigned o = 0; o < Lanes; o++) first_d[o] = 'x;
    for (int unsigned o = 0; o < Lanes; o++) rest_d[o] = 'x;
    for (int unsigned p = 1; p < Window; p++) for (int unsigned o = 0; o < Lanes; o++) others_d[p][o] = 'x;
    if (quarters_valid_q && !quarters_other_q) begin
      for (int unsigned p = 1; p < Window; p++) begin
        for (int unsigned o = 0; o < Lanes; o++) begin
          others_d[p][o] = sum_t'(m_q[Window*p][o] + m_q[Window*p + 1][o]) +
                           sum_t'(m_q[Window*p + 2][o] + m_q[Window*p + 3][o]);
        end
      end
    end
    if (quarters_valid_q) begin
      for (int unsigned o = 0; o < Lanes; o++) rest_d[o] = '0;
      for (int unsigned o = 0; o < Lanes; o++)
        first_d[o] = (32'(low_q[0][o]) + 32'(low_q[1][o])) + 32'(m_q[2][o] + m_q[3][o]);
      if (quarters_most_q) begin
        for (int unsigned o = 0; o < Lanes; o++)
          first_d[o] = any_q ? 32'(most_of_q[o]) : signed'(32'h8000_0000);
        if (quarters_held_q) begin
          for (int unsigned o = 0; o < Lanes; o++)
            if (signed'(held_sums_q[o*32 +: 32]) > first_d[o])
              first_d[o] = signed'(held_sums_q[o*32 +: 32]);
        end
      end
      if (quarters_conv_q)
        for (int unsigned r = Spread; r < Lanes; r++) for (int unsigned o = 0; o < Lanes; o++)
          rest_d[o] += 32'(m_q[r][o]);
      if (quarters_held_q && !quarters_most_q)
        for (int unsigned o = 0; o < Lanes; o++) rest_d[o] += signed'(held_sums_q[o*32 +: 32]);
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      sums_valid_q <= 1'b0;
      sums_conv_q <= 1'b0;
      sums_other_q <= 1'b0;
      sums_together_q <= '0;
    end else begin
      sums_valid_q <= quarters_valid_q;
      sums_conv_q <= quarters_conv_q;
      sums_other_q <= quarters_other_q;
      sums_together_q <= quarters_together_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (quarters_valid_q) begin
      first_q <= first_d;
      rest_q <= rest_d;
    end
    if (quarters_valid_q && !quarters_other_q) begin
      others_q <= others_d;
      for (int unsigned o = 0; o < Lanes; o++) upper_q[o] <= others_d[2][o] + others_d[3][o];
      for (int unsigned p = 0; p < Window - 1; p++) fifth_q[p] <= m_q[3*Window + p];
    end
  end

  // -- Fourth stage: their sums -----------------------------------------------------------------------------

  logic signed [31:0] sum_d [Window][Lanes];
  sum_t more [2][Lanes], fifth [Window-1][Lanes];  // what is added to the sums of four rows

  always_comb begin
    for (int unsigned p = 0; p < Window; p++) for (int unsigned o = 0; o < Lanes; o++) sum_d[p][o] = 'x;
    for (int unsigned p = 0; p < 2; p++) for (int unsigned o = 0; o < Lanes; o++) more[p][o] = 'x;
    for (int unsigned p = 0; p < Window - 1; p++) for (int unsigned o = 0; o < Lanes; o++) fifth[p][o] = 'x;
    if (sums_valid_q) begin
      for (int unsigned o = 0; o < Lanes; o++) begin
        for (int unsigned p = 0; p < Window - 1; p++)
          fifth[p][o] = sums_together_q == 3'd3 ? sum_t'(fifth_q[p][o]) : '0;
        more[0][o] = '0;
        if (sums_conv_q || (!sums_other_q && sums_together_q == 3'd2)) more[0][o] = others_q[1][o];
        else if (!sums_other_q) more[0][o] = fifth[0][o];
        more[1][o] = others_q[1][o] + fifth[1][o];
        sum_d[0][o] = first_q[o] + rest_q[o] + 32'(more[0][o] + (sums_conv_q ? upper_q[o] : '0));
        sum_d[1][o] = 32'(sums_together_q == 3'd2 ? upper_q[o] : more[1][o]);
        sum_d[2][o] = 32'(others_q[2][o] + fifth[2][o]);
        sum_d[3][o] = 32'(others_q[3][o]);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (sums_valid_q) sum_o <= sum_d;
  end

  logic unused;
  assign unused = ^descriptor_i;

  for (genvar r = 0; r < Lanes; r++) begin : gen_operands
    for (genvar o = 0; o < Lanes; o++) begin : gen_lane
      `LF_ASSERT(OperandFits, !valid_q || (x_q[r][o] >= -512 && x_q[r][o] < 512),
                 "an operand has more than 10 bits")
    end
  end
endmodule
