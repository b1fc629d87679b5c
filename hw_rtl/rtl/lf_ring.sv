// Places in a ring of slots, as words from its first: where row `value` lies, and how far steps of rows go.
// All are products of a remainder and slot_words; remainders are found by shifting and subtracting, one bit a
// cycle, and in no cycle at all where the value is below `slots`. Takes 4 cycles, and bits(value) -
// bits(slots) + 3 more if value >= slots.
`include "lf_assert.svh"

module lf_ring (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,  // inputs stay as they are until done
  input  logic signed [22:0] value_i,  // a row; below 0 counts from the end, as in mathematics
  input  logic [4:0]         row_step_i,  // rows
  input  logic [4:0]         kernel_step_i,  // rows
  input  logic [11:0]        slots_i,
  input  logic [19:0]        slot_words_i,
  output logic               done_o,  // level, until the next start; places are there a cycle later
  output logic [31:0]        offset_o,  // words
  output logic [31:0]        row_step_o,  // words
  output logic [31:0]        kernel_step_o,  // words
  output logic [31:0]        limit_o  // words of all slots
);
  typedef enum logic [1:0] {Done, Look, Subtract, Multiply} state_e;
  state_e      state_q;
  logic [1:0]  item_q;  // value, row step, kernel step, all slots
  logic [21:0] rest_q;
  logic [33:0] shifted_q;
  logic [4:0]  left_q;
  logic [22:0] magnitude;
  logic [21:0] item, remainder;
  logic [11:0] factor_q;
  logic [1:0]  item_of_q;  // that the factor is of
  logic        multiply_q;
  logic        negative, below;
  logic [31:0] product;
  logic [4:0]  distance;

  // Number of the highest bit that is set; 0 if none is.
  function automatic logic [4:0] top(logic [21:0] number);
    logic [4:0] found;
    found = '0;
    for (int unsigned k = 0; k < 22; k++) if (number[k]) found = 5'(k);
    return found;
  endfunction

  always_comb begin
    magnitude = '0;
    item = '0;
    negative = 1'b0;
    below = 1'b0;
    distance = '0;
    remainder = '0;
    product = '0;
    if (multiply_q) product = 32'(factor_q) * 32'(slot_words_i);
    if (state_q != Done) begin
      magnitude = value_i < 0 ? 23'(-value_i) : 23'(value_i);
      unique case (item_q)
        2'd0:    item = magnitude[21:0];
        2'd1:    item = 22'(row_step_i);
        2'd2:    item = 22'(kernel_step_i);
        default: item = 22'(slots_i);
      endcase
      negative = item_q == 2'd0 && value_i < 0;
      below = item < 22'(slots_i) || item_q == 2'd3;
      if (state_q == Look && !below) distance = top(item) - top(22'(slots_i));
      remainder = state_q == Look ? item : rest_q;
      if (negative && remainder != '0) remainder = 22'(slots_i) - remainder;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= Done;
      item_q <= '0;
      rest_q <= '0;
      shifted_q <= '0;
      left_q <= '0;
      factor_q <= '0;
      item_of_q <= '0;
      multiply_q <= 1'b0;
      offset_o <= '0;
      row_step_o <= '0;
      kernel_step_o <= '0;
      limit_o <= '0;
    end else begin
      multiply_q <= 1'b0;
      if (multiply_q) begin
        unique case (item_of_q)
          2'd0:    offset_o <= product;
          2'd1:    row_step_o <= product;
          2'd2:    kernel_step_o <= product;
          default: limit_o <= product;
        endcase
      end
      unique case (state_q)
        Done: begin
          item_q <= '0;
          if (start_i) state_q <= Look;
        end
        Subtract: begin
          if (34'(rest_q) >= shifted_q) rest_q <= 22'(34'(rest_q) - shifted_q);
          shifted_q <= shifted_q >> 1;
          left_q <= left_q - 1'b1;
          if (left_q == '0) state_q <= Multiply;
        end
        default: begin  // Look, Multiply
          if (state_q == Look && !below) begin
            rest_q <= item;
            shifted_q <= 34'(slots_i) << distance;
            left_q <= distance;
            state_q <= Subtract;
          end else begin
            multiply_q <= 1'b1;
            factor_q <= remainder[11:0];
            item_of_q <= item_q;
            item_q <= item_q + 1'b1;
            state_q <= item_q == 2'd3 ? Done : Look;
          end
        end
      endcase
    end
  end

  assign done_o = state_q == Done && !start_i;

  logic unused;
  assign unused = ^{magnitude[22], remainder[21:12]};

  `LF_ASSERT(StartedWhenDone, !start_i || state_q == Done, "a start comes while places are found")
  `LF_ASSERT(InputsHeld, state_q != Done |->
             $stable({value_i, row_step_i, kernel_step_i, slots_i, slot_words_i}),
             "inputs change before places are found")
endmodule
