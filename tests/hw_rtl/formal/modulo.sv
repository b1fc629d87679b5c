// lf_modulo finds the remainder: less than the divisor, of which the rest of the value is a multiple.
module modulo (
  input logic        clk_i,
  input logic        valid_i,
  input logic [7:0]  low_i,  // the value's bits that may be set: more would keep the solver busy for minutes
  input logic [4:0]  small_i
);
  logic        rst_nq = 1'b0;
  logic [15:0] value;
  logic [11:0] divisor;
  assign value   = 16'(low_i);
  assign divisor = 12'(small_i);
  logic        ready, found;
  logic [11:0] remainder;

  lf_modulo u_modulo (
    .clk_i,
    .rst_ni     (rst_nq),
    .valid_i    (valid_i && divisor != '0),
    .value_i    (value),
    .divisor_i  (divisor),
    .ready_o    (ready),
    .valid_o    (found),
    .remainder_o(remainder)
  );

  // Beside it: the bits of the value that were looked at, as a number, and the multiple of the divisor in it,
  // which is only ever doubled and added to.
  logic [4:0]  left_q = '0;
  logic        known_q = 1'b0;
  logic [15:0] value_q, rest_q, prefix_q, multiple_q;
  logic [11:0] divisor_q;
  logic [15:0] prefix, doubled;
  assign prefix  = {prefix_q[14:0], rest_q[15]};
  assign doubled = {multiple_q[14:0], 1'b0};

  always_ff @(posedge clk_i) begin
    rst_nq <= 1'b1;
    if (rst_nq) begin
      if (left_q != '0) begin
        left_q     <= left_q - 5'd1;
        rest_q     <= {rest_q[14:0], 1'b0};
        prefix_q   <= prefix;
        multiple_q <= prefix - doubled >= 16'(divisor_q) ? doubled + 16'(divisor_q) : doubled;
      end else if (valid_i && divisor != '0) begin
        left_q     <= 5'd16;
        known_q    <= 1'b1;
        value_q    <= value;
        rest_q     <= value;
        divisor_q  <= divisor;
        prefix_q   <= '0;
        multiple_q <= '0;
      end
    end
  end

  always_comb begin
    if (rst_nq) begin
      assert (ready == (left_q == '0));
      if (known_q) begin
        assert (remainder < divisor_q);
        assert (prefix_q == multiple_q + 16'(remainder));
        if (left_q == '0) assert (prefix_q == value_q);
      end
      if (found) assert (known_q && left_q == '0);
    end
    cover (found && remainder == 12'd20 && value_q > 16'd200);
  end
endmodule
