// Sums of Accumulators columns, twice: while one half grows, the other is drained; the drain may also follow the last pass in the same half. Each half
// is two memories of one read and one write port, for even and odd columns.
// A column's sum is read as its pass is computed, and is back in the second cycle after: a column may be touched again two cycles later.
module lf_accumulators
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  localparam int unsigned ColumnBits = $clog2(Accumulators)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  // A column whose pass is being computed; its sums come in the next cycle.
  input  logic                  valid_i,
  input  logic                  first_i,  // pass of the block
  input  logic                  max_i,  // the largest, not the sum
  input  logic                  half_i,
  input  logic [ColumnBits-1:0] column_i,
  input  int                    sum_i [Lanes],
  // Finished sums: there in the cycle after they are granted, and only then.
  input  logic                  read_i,
  input  logic                  read_half_i,
  input  logic [ColumnBits-1:0] read_column_i,
  output logic                  read_grant_o,
  output logic [Lanes*32-1:0]   read_data_o
);
  logic                  valid_q, first_q, max_q, half_q;
  logic [ColumnBits-1:0] column_q;
  logic [Lanes*32-1:0]   old, written;
  logic [Lanes*32-1:0]   read_data [4];  // even and odd columns of the first half, of the second
  logic [3:0]            grows;
  logic [1:0]            drained_q;  // memory

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      first_q <= 1'b0;
      max_q <= 1'b0;
      half_q <= 1'b0;
      column_q <= '0;
    end else begin
      valid_q <= valid_i;
      if (valid_i) begin
        first_q <= first_i;
        max_q <= max_i;
        half_q <= half_i;
        column_q <= column_i;
      end
    end
  end

  always_comb begin
    old = read_data[{half_q, column_q[0]}];
    written = '0;
    if (valid_q) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        if (first_q || (max_q && signed'(old[l*32 +: 32]) < sum_i[l])) written[l*32 +: 32] = sum_i[l];
        else written[l*32 +: 32] = max_q ? old[l*32 +: 32] : old[l*32 +: 32] + sum_i[l];
      end
    end
  end

  for (genvar m = 0; m < 4; m++) begin : gen_memory
    assign grows[m] = valid_i && !first_i && {half_i, column_i[0]} == 2'(m);

    lf_memory #(
      .Width(Lanes * 32),
      .Depth(Accumulators / 2)
    ) u_memory (
      .clk_i,
      .read_i         (grows[m] || (read_i && {read_half_i, read_column_i[0]} == 2'(m))),
      .read_address_i (grows[m] ? column_i[ColumnBits-1:1] : read_column_i[ColumnBits-1:1]),
      .read_data_o    (read_data[m]),
      .write_i        (valid_q && {half_q, column_q[0]} == 2'(m)),
      .write_address_i(column_q[ColumnBits-1:1]),
      .write_parts_i  (1'b1),
      .write_data_i   (written)
    );
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) drained_q <= '0;
    else drained_q <= {read_half_i, read_column_i[0]};
  end

  assign read_grant_o = read_i && !grows[{read_half_i, read_column_i[0]}];
  assign read_data_o = read_data[drained_q];

`ifndef SYNTHESIS
  // A column is not touched before its sum is back, nor drained.
  assert property (@(posedge clk_i) !(valid_i && !first_i && valid_q) || half_i != half_q || column_i != column_q);
  assert property (@(posedge clk_i) !(read_grant_o && valid_q) || read_half_i != half_q || read_column_i != column_q);
  assert property (@(posedge clk_i) !(read_grant_o && valid_i) || read_half_i != half_i || read_column_i != column_i);
`endif
endmodule
