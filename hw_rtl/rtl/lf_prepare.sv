// Moves the descriptor at the head of the queue of computations by the numbers of its command, so that
// lf_exec sees plain addresses.
//
// One multiplier, one product a cycle; it works while the command before is computed.
`include "lf_assert.svh"

module lf_prepare
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  // Head of the queue. It stays until take_i.
  input  head_t        head_i,
  input  computation_t computation_i,
  // The command as it is to run. take_i comes together with the end of the head.
  output prepared_t    prepared_o,
  input  logic         take_i
);
  localparam int unsigned LaneBits = $clog2(Lanes);

  typedef enum logic [3:0] {
    Idle,
    Ask,
    Answer,
    MoveA,
    MoveB,
    MoveO,
    MoveWeights,
    MoveBias,
    Ready
  } state_e;

  state_e      state_d, state_q;
  logic [11:0] slot_q;
  logic [19:0] a_base_q;
  logic [19:0] b_base_q;
  logic [19:0] o_base_q;
  logic [19:0] bias_q;
  logic [27:0] w_base_q;
  logic        over_q;  // an address does not fit its field

  logic        weighted;  // takes weights
  logic        paired;    // b is an operand, not held sums
  logic        modulo_ready;
  logic        modulo_valid;
  logic [11:0] remainder;
  logic [11:0] factor;    // of the multiplier
  logic [19:0] words;
  logic [31:0] product_q;  // of the step before
  logic [19:0] base;      // what the product of the step before is added to
  logic [32:0] sum;
  logic [36+LaneBits:0] weight_sum;
  logic [8:0]  factors;
  logic        bad;
  error_e      error;
  logic        unused;

  assign weighted = has_weights(computation_i.operation);
  assign paired   = needs_second(computation_i.operation);
  assign factors  = 9'(computation_i.factors) + 9'(head_i.entry.factor);
  assign unused   = ^{head_i.may_start, head_i.entry.descriptor, head_i.entry.row, head_i.entry.count,
                      head_i.entry.wait_valid, head_i.entry.target};

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Idle:        if (head_i.valid)
                     state_d = head_i.entry.slot < 16'(computation_i.w_slots) ||
                               computation_i.w_slots == '0 ? MoveA : Ask;
      Ask:         if (modulo_ready) state_d = Answer;
      Answer:      if (modulo_valid) state_d = MoveA;
      MoveA:       state_d = MoveB;
      MoveB:       state_d = MoveO;
      MoveO:       state_d = MoveWeights;
      MoveWeights: state_d = MoveBias;
      MoveBias:    state_d = Ready;
      Ready:       if (take_i) state_d = Idle;
      default:     state_d = Idle;
    endcase
  end

  lf_modulo u_modulo (
    .clk_i,
    .rst_ni,
    .valid_i    (state_q == Ask),
    .value_i    (head_i.entry.slot),
    .divisor_i  (computation_i.w_slots),
    .ready_o    (modulo_ready),
    .valid_o    (modulo_valid),
    .remainder_o(remainder)
  );

  // What the next step adds: a step multiplies while the one before adds.
  always_comb begin
    unique case (state_q)
      MoveA:       {factor, words} = {2'd0, paired ? head_i.entry.from_block : head_i.entry.to_block, 4'd0,
                                      computation_i.b_block_words};
      MoveB:       {factor, words} = {2'd0, head_i.entry.to_block, 4'd0, computation_i.o_block_words};
      MoveO:       {factor, words} = {slot_q, computation_i.w_slot_words};
      MoveWeights: {factor, words} = {slot_q, computation_i.bias_slot_words};
      default:     {factor, words} = {2'd0, head_i.entry.from_block, 4'd0, computation_i.a_block_words};
    endcase
  end

  always_comb begin
    unique case (state_q)
      MoveA:   base = computation_i.a_base;
      MoveB:   base = computation_i.b_base;
      MoveO:   base = computation_i.o_base;
      default: base = computation_i.bias;
    endcase
  end

  assign sum        = 33'(product_q) + 33'(base);
  assign weight_sum = (37 + LaneBits)'(computation_i.w_base) + ((37 + LaneBits)'(product_q) << LaneBits);

  always_ff @(posedge clk_i) begin
    if (head_i.valid) product_q <= 32'(factor) * 32'(words);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q  <= Idle;
      slot_q   <= '0;
      a_base_q <= '0;
      b_base_q <= '0;
      o_base_q <= '0;
      bias_q   <= '0;
      w_base_q <= '0;
      over_q   <= 1'b0;
    end else begin
      state_q <= state_d;
      unique case (state_q)
        Idle: begin
          slot_q <= computation_i.w_slots == '0 ? '0 : head_i.entry.slot[11:0];
          over_q <= factors[8];
        end
        Answer:      slot_q <= remainder;
        MoveA:       a_base_q <= sum[19:0];
        MoveB:       b_base_q <= sum[19:0];
        MoveO:       o_base_q <= sum[19:0];
        MoveWeights: w_base_q <= weight_sum[27:0];
        MoveBias:    bias_q <= sum[19:0];
        default:     ;
      endcase
      if (state_q == MoveWeights && weight_sum[36+LaneBits:28] != '0) over_q <= 1'b1;
      if ((state_q == MoveA || state_q == MoveB || state_q == MoveO || state_q == MoveBias) &&
          sum[32:20] != '0) over_q <= 1'b1;
    end
  end

  assign bad   = state_q == Ready && (over_q || error == ErrField);
  assign error = weighted && computation_i.w_slots == '0 ? ErrField : ErrBuffer;

  always_comb begin
    prepared_o = '{valid: state_q == Ready && !bad, bad: bad, error: error, d: computation_i};
    prepared_o.d.a_base = a_base_q;
    prepared_o.d.b_base = b_base_q;
    prepared_o.d.o_base = o_base_q;
    prepared_o.d.bias = bias_q;
    prepared_o.d.w_base = w_base_q;
    prepared_o.d.factors = factors[7:0];
  end

  `LF_ASSERT(TakenOnceReady, !take_i || prepared_o.valid, "a command starts that is not prepared")
  `LF_HELD(CommandHeld, prepared_o.valid, take_i, prepared_o.d)
endmodule
