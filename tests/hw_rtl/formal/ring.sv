// Places in a ring: lf_ring gives a first place inside it, and steps shorter than it, so that going on by add
// and wrap never leaves it.
//
// Walks as lf_columns, lf_second and lf_drain do. Sizes are small, since all of it happens within the steps
// that are looked at.
module ring #(
  parameter int unsigned SlotWords = 3  // fixed: products of two unknowns keep the solver busy for minutes
) (
  input logic              clk_i,
  input logic signed [3:0] value_i,
  input logic [1:0]        row_step_i,
  input logic [1:0]        kernel_step_i,
  input logic [2:0]        slots_i,
  input logic              kernel_i  // go on by a step of the kernel, else of rows
);
  logic               rst_nq = 1'b0, started_q = 1'b0, there_q = 1'b0, walks_q = 1'b0;
  logic signed [3:0]  value_q;
  logic [1:0]         row_q, kernel_q;
  logic [2:0]         slots_q;
  logic               done;
  logic [31:0]        offset, row_step, kernel_step, limit;

  lf_ring u_ring (
    .clk_i,
    .rst_ni       (rst_nq),
    .start_i      (rst_nq && !started_q),
    .value_i      (23'(value_q)),
    .row_step_i   (5'(row_q)),
    .kernel_step_i(5'(kernel_q)),
    .slots_i      (12'(slots_q)),
    .slot_words_i (20'(SlotWords)),
    .done_o       (done),
    .offset_o     (offset),
    .row_step_o   (row_step),
    .kernel_step_o(kernel_step),
    .limit_o      (limit)
  );

  // The row that the place belongs to, and the place.
  logic signed [6:0] row_number_q;
  logic [31:0]       place_q;
  logic [32:0]       next;
  always_comb begin
    next = 33'(place_q) + 33'(kernel_i ? kernel_step : row_step);
    if (next >= 33'(limit)) next = next - 33'(limit);
  end

  always_ff @(posedge clk_i) begin
    rst_nq    <= 1'b1;
    started_q <= rst_nq;
    if (!rst_nq) begin
      value_q  <= value_i;
      row_q    <= row_step_i;
      kernel_q <= kernel_step_i;
      slots_q  <= slots_i == '0 ? 3'd1 : slots_i;
    end
    there_q <= started_q && done;
    if (there_q) begin
      walks_q      <= 1'b1;
      place_q      <= walks_q ? next[31:0] : offset;
      row_number_q <= walks_q ? row_number_q + 7'(kernel_i ? kernel_q : row_q) : 7'(value_q);
    end
  end

  // Where the row must lie: by going round the ring until the number is inside.
  logic signed [6:0] slots, slot;
  always_comb begin
    slots = 7'(slots_q);
    slot  = row_number_q;
    for (int k = 0; k < 8; k++) if (slot < 0) slot = slot + slots;
    for (int k = 0; k < 40; k++) if (slot >= slots) slot = slot - slots;
  end

  always_comb begin
    if (walks_q) begin
      assert (place_q < limit);
      assert (limit == 32'(slots_q) * SlotWords);
      assert (row_step < limit && kernel_step < limit);
      assert (place_q == 32'(slot[2:0]) * SlotWords);
    end
    cover (walks_q && value_q < -4'sd5 && row_number_q > 7'sd0);
  end
endmodule
