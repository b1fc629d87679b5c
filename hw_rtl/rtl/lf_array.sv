// The arithmetic of a column: Lanes x Lanes products of CONV, 4 x Lanes of DEPTHWISE (which are the first rows of the same multipliers, fed with the
// elements of a window), and what the other operations do with a window. Two stages: operands, less their zero points; then sums of one pass.
//
// Operands are kept as int: bits 31 to 10 are copies of the sign, which synthesis merges, and the simulator's loops become vector instructions.
module lf_array
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  localparam int unsigned LaneBits = $clog2(Lanes)
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  input  computation_t                   descriptor_i,  // of the column in the first stage; stays for one cycle more
  input  logic                           start_i,  // it is new
  // First stage: the window has come from the buffer.
  input  logic                           valid_i,
  input  logic [Window-1:0][Lanes*8-1:0] window_i,
  input  logic [Window-1:0]              taps_i,
  input  logic [Window-1:0]              again_i,  // elements that the column before had, stride_columns farther on
  input  logic [6:0]                     lanes_i,
  input  logic [5:0]                     lane_i,
  input  logic                           pass_start_i,  // it needs the next weights
  // Second stage, a cycle later: the second operand, or the held sums with which a block begins.
  input  logic                           first_i,  // pass of the block
  input  logic                           second_used_i,
  input  logic [Window-1:0][Lanes*8-1:0] second_i,
  // Sums of the pass, another cycle later.
  output int                             sum_o [Lanes],
  // Rows of the weights of the next pass.
  input  logic                           row_valid_i,
  input  logic [LaneBits-1:0]            row_i,
  input  logic [Lanes*8-1:0]             row_data_i,
  input  logic signed [8:0]              zero_i,
  input  logic                           unsigned_i
);
  localparam int unsigned NarrowLanes = Lanes / Window;

  int                weight_q [Lanes][Lanes], next_q [Lanes][Lanes];  // [input lane, or kernel column][output lane]
  int                lane_q [Lanes];  // CONV: one element of each input channel
  int                window_q [Window][Lanes];  // else: elements of a window
  logic [Window-1:0] taps_q;
  logic              valid_q;
  logic              conv, depthwise;
  logic [Window-1:0][Lanes*8-1:0] window, last_q;

  // An element as a number.
  function automatic int number(logic [7:0] value, logic is_unsigned);
    return signed'({{24{value[7] && !is_unsigned}}, value});
  endfunction

  always_comb begin
    window = window_i;
    if (again_i != '0) for (int unsigned t = 0; t < Window; t++) if (again_i[t]) window[t] = last_q[2'(t) + descriptor_i.stride_columns[1:0]];
  end

  always_ff @(posedge clk_i) begin
    if (valid_i && (!conv || descriptor_i.narrow)) last_q <= window;
  end

  // COPY: where each lane of the result comes from. The descriptor is new in the cycle in which `start_i` is high; columns come later.
  logic [LaneBits-1:0] source_d [Lanes], source_q [Lanes];
  logic [6:0]          from_lane, to_lane;
  always_comb begin
    for (int unsigned o = 0; o < Lanes; o++) source_d[o] = LaneBits'(o);
    from_lane = 7'(descriptor_i.a_lane);
    to_lane = 7'(descriptor_i.o_lane);
    if (start_i) begin
      for (int unsigned k = 0; k < Lanes; k++) begin
        if (7'(k) < descriptor_i.lanes) source_d[LaneBits'(to_lane)] = LaneBits'(from_lane);
        from_lane = from_lane + 7'(descriptor_i.a_lane_step);
        to_lane = to_lane + 7'(descriptor_i.o_lane_step);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) source_q <= source_d;
  end

  assign conv = descriptor_i.operation == 3'(DoConv);
  assign depthwise = descriptor_i.operation == 3'(DoDepthwise);

  always_ff @(posedge clk_i) begin
    if (valid_i && pass_start_i) weight_q <= next_q;
  end

  always_ff @(posedge clk_i) begin
    if (row_valid_i) begin
      for (int unsigned o = 0; o < Lanes; o++) next_q[row_i][o] <= number(row_data_i[o*8 +: 8], unsigned_i) - 32'(zero_i);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      taps_q <= '0;
    end else begin
      valid_q <= valid_i;
      taps_q <= taps_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      if (!conv) begin
        for (int unsigned t = 0; t < Window; t++) begin
          for (int unsigned l = 0; l < Lanes; l++) begin
            window_q[t][l] <= taps_i[t] ? number(window[t][l*8 +: 8], descriptor_i.a_unsigned) - 32'(descriptor_i.a_zero) : 0;
          end
        end
      end else if (descriptor_i.narrow) begin
        for (int unsigned t = 0; t < Window; t++) begin
          for (int unsigned c = 0; c < NarrowLanes; c++) begin
            lane_q[t*NarrowLanes + c] <= taps_i[t] && 7'(c) < lanes_i
                ? number(window[t][c*8 +: 8], descriptor_i.a_unsigned) - 32'(descriptor_i.a_zero) : 0;
          end
        end
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          lane_q[l] <= taps_i[0] && 7'(l) < lanes_i && 7'(l) >= 7'(lane_i) ? number(window[0][l*8 +: 8], descriptor_i.a_unsigned) - 32'(descriptor_i.a_zero) : 0;
        end
      end
    end
  end

  int sum_d [Lanes];
  always_comb begin
    for (int unsigned o = 0; o < Lanes; o++) sum_d[o] = 0;
    if (valid_q) begin
      if (conv) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          for (int unsigned o = 0; o < Lanes; o++) sum_d[o] += lane_q[l] * weight_q[l][o];
        end
      end else if (depthwise) begin
        for (int unsigned t = 0; t < Window; t++) begin
          for (int unsigned o = 0; o < Lanes; o++) sum_d[o] += window_q[t][o] * weight_q[t][o];
        end
      end else begin
        unique case (descriptor_i.operation)
          3'(DoSum): begin
            for (int unsigned t = 0; t < Window; t++) for (int unsigned o = 0; o < Lanes; o++) sum_d[o] += window_q[t][o];
          end
          3'(DoMax): begin
            for (int unsigned o = 0; o < Lanes; o++) sum_d[o] = signed'(32'h8000_0000);
            for (int unsigned t = 0; t < Window; t++) begin
              for (int unsigned o = 0; o < Lanes; o++) begin
                if (taps_q[t] && window_q[t][o] + 32'(descriptor_i.a_zero) > sum_d[o]) sum_d[o] = window_q[t][o] + 32'(descriptor_i.a_zero);
              end
            end
          end
          3'(DoAdd): begin
            for (int unsigned o = 0; o < Lanes; o++) begin
              sum_d[o] = 32'(descriptor_i.a_multiplier) * window_q[0][o]
                  + 32'(descriptor_i.b_multiplier) * (number(second_i[0][o*8 +: 8], descriptor_i.b_unsigned) - 32'(descriptor_i.b_zero));
            end
          end
          3'(DoMul): begin
            for (int unsigned o = 0; o < Lanes; o++) begin
              sum_d[o] = window_q[0][o] * (number(second_i[0][o*8 +: 8], descriptor_i.b_unsigned) - 32'(descriptor_i.b_zero));
            end
          end
          default: begin  // COPY
            for (int unsigned o = 0; o < Lanes; o++) sum_d[o] = window_q[0][source_q[o]] + 32'(descriptor_i.a_zero);
          end
        endcase
      end
      // Held sums: int32, side by side.
      if (second_used_i && first_i && !descriptor_i.first) begin
        for (int unsigned o = 0; o < Lanes; o++) begin
          if (descriptor_i.operation == 3'(DoMax)) begin
            if (signed'(second_i[o / NarrowLanes][(o % NarrowLanes)*32 +: 32]) > sum_d[o]) begin
              sum_d[o] = signed'(second_i[o / NarrowLanes][(o % NarrowLanes)*32 +: 32]);
            end
          end else begin
            sum_d[o] += signed'(second_i[o / NarrowLanes][(o % NarrowLanes)*32 +: 32]);
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_q) sum_o <= sum_d;
  end

  logic unused;
  assign unused = ^descriptor_i;
endmodule
