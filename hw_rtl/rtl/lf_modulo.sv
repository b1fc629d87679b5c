// Remainder of a division, one bit of the value a cycle.
`include "lf_assert.svh"

module lf_modulo (
  input  logic        clk_i,
  input  logic        rst_ni,
  // The division, accepted when valid and ready. By 0 it takes as long, and its remainder means nothing.
  input  logic        valid_i,
  input  logic [15:0] value_i,
  input  logic [11:0] divisor_i,
  output logic        ready_o,
  // One cycle, when the remainder is there; it stays until the next division is accepted.
  output logic        valid_o,
  output logic [11:0] remainder_o
);
  logic        busy_q;
  logic        valid_q;
  logic [3:0]  bit_q;  // bits of the value that are left, less one
  logic [15:0] value_q;
  logic [11:0] divisor_q;
  logic [11:0] rest_q;
  logic [12:0] shifted;
  logic [11:0] less;

  assign shifted     = {rest_q, value_q[15]};
  assign less        = 12'(shifted - {1'b0, divisor_q});
  assign ready_o     = !busy_q;
  assign valid_o     = valid_q;
  assign remainder_o = rest_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q    <= 1'b0;
      valid_q   <= 1'b0;
      bit_q     <= '0;
      value_q   <= '0;
      divisor_q <= '0;
      rest_q    <= '0;
    end else begin
      valid_q <= busy_q && bit_q == '0;
      if (busy_q) begin
        bit_q   <= bit_q - 4'd1;
        value_q <= {value_q[14:0], 1'b0};
        rest_q  <= shifted >= {1'b0, divisor_q} ? less : shifted[11:0];
        busy_q  <= bit_q != '0;
      end else if (valid_i) begin
        busy_q    <= 1'b1;
        bit_q     <= 4'd15;
        value_q   <= value_i;
        divisor_q <= divisor_i;
        rest_q    <= '0;
      end
    end
  end

  `LF_ASSERT(ValidOnce, valid_o |=> !valid_o, "a remainder is there twice")
  `LF_ASSERT(RemainderHeld, ready_o && !valid_i |=> $stable(remainder_o),
             "a remainder changes before the next division")
endmodule
