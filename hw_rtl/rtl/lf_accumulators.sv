// Sums of Accumulators columns, twice: while one bank grows, the other is drained; the drain may also follow
// the last pass in the same bank. Each bank is Window memories of one read and one write port, column c in
// memory c mod Window: so many neighbouring columns grow at once.
// A column's sum is read in the cycle in which the pass's comes, and is back in the next: a column may be
// touched again two cycles later.
`include "lf_assert.svh"

module lf_accumulators
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  localparam int unsigned ColumnBits = $clog2(Accumulators)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  // Sums of a pass, of neighbouring columns.
  input  logic                  valid_i,
  input  logic                  first_i,  // pass of the block
  input  logic                  max_i,  // the largest, not the sum; of one column
  input  logic                  bank_i,
  input  logic [ColumnBits-1:0] column_i,
  input  logic [2:0]            count_i,  // 1 to Window
  input  logic signed [31:0]    sum_i [Window][Lanes],
  // Finished sums: there in the cycle after they are granted, and only then.
  input  logic                  read_i,
  input  logic                  read_bank_i,
  input  logic [ColumnBits-1:0] read_column_i,
  output logic                  read_grant_o,
  output logic [Lanes*32-1:0]   read_data_o
);
  localparam int unsigned MemoryBits = $clog2(Window);

  logic                  valid_q, first_q, max_q, bank_q;
  logic [ColumnBits-1:0] column_q;
  logic [2:0]            count_q;
  logic [Lanes*32-1:0]   read_data [2][Window];  // bank, memory
  logic [Lanes*32-1:0]   old [Window], written [Window];
  logic signed [31:0]    turned_q [Window][Lanes];  // by memory
  logic [1:0][Window-1:0] grows;
  logic                  drained_bank_q;
  logic [MemoryBits-1:0] drained_q;

  // Whether one of `count` columns, the first of which is in memory `first`, is in a memory; in which row.
  function automatic logic meets(logic [MemoryBits-1:0] memory, logic [MemoryBits-1:0] first,
                                 logic [2:0] count);
    return 3'(MemoryBits'(memory - first)) < count;
  endfunction

  function automatic logic [ColumnBits-MemoryBits-1:0] row_of(logic [MemoryBits-1:0] memory,
                                                                logic [ColumnBits-1:0] column);
    return column[ColumnBits-1:MemoryBits] + (ColumnBits-MemoryBits)'(memory < column[MemoryBits-1:0]);
  endfunction

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      first_q <= 1'b0;
      max_q <= 1'b0;
      bank_q <= 1'b0;
      column_q <= '0;
      count_q <= '0;
    end else begin
      valid_q <= valid_i;
      if (valid_i) begin
        first_q <= first_i;
        max_q <= max_i;
        bank_q <= bank_i;
        column_q <= column_i;
        count_q <= count_i;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i)
      for (int unsigned b = 0; b < Window; b++)
        turned_q[b] <= sum_i[MemoryBits'(b) - column_i[MemoryBits-1:0]];
  end

  always_comb begin
    for (int unsigned b = 0; b < Window; b++) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        written[b][l*32 +: 32] = turned_q[b][l];
        if (max_q) begin
          if (!first_q && signed'(old[b][l*32 +: 32]) > turned_q[b][l])
            written[b][l*32 +: 32] = old[b][l*32 +: 32];
        end else if (!first_q) begin
          written[b][l*32 +: 32] = turned_q[b][l] + old[b][l*32 +: 32];
        end
      end
    end
  end

  assign old = read_data[bank_q];

  for (genvar h = 0; h < 2; h++) begin : gen_bank
    for (genvar b = 0; b < Window; b++) begin : gen_memory
      assign grows[h][b] = valid_i && !first_i && bank_i == 1'(h) &&
                           meets(MemoryBits'(b), column_i[MemoryBits-1:0], count_i);

      lf_memory #(
        .Width(Lanes * 32),
        .Depth(Accumulators / Window)
      ) u_memory (
        .clk_i,
        .read_i         (grows[h][b] ||
                         (read_i && read_bank_i == 1'(h) && read_column_i[MemoryBits-1:0] == MemoryBits'(b))),
        .read_address_i (grows[h][b] ? row_of(MemoryBits'(b), column_i) :
                         read_column_i[ColumnBits-1:MemoryBits]),
        .read_data_o    (read_data[h][b]),
        .write_i        (valid_q && bank_q == 1'(h) &&
                         meets(MemoryBits'(b), column_q[MemoryBits-1:0], count_q)),
        .write_address_i(row_of(MemoryBits'(b), column_q)),
        .write_parts_i  (1'b1),
        .write_data_i   (written[b])
      );
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      drained_bank_q <= 1'b0;
      drained_q <= '0;
    end else begin
      drained_bank_q <= read_bank_i;
      drained_q <= read_column_i[MemoryBits-1:0];
    end
  end

  assign read_grant_o = read_i && !grows[read_bank_i][read_column_i[MemoryBits-1:0]];
  assign read_data_o = read_data[drained_bank_q][drained_q];

`ifndef SYNTHESIS
  function automatic logic apart(logic [ColumnBits-1:0] column, logic [2:0] count,
                                 logic [ColumnBits-1:0] other, logic [2:0] others);
    return 10'(column) + 10'(count) <= 10'(other) || 10'(other) + 10'(others) <= 10'(column);
  endfunction
`endif

  // A column is not touched before its sum is back, nor drained.
  `LF_ASSERT(GrowsOnceBack, !(valid_i && !first_i && valid_q) || bank_i != bank_q ||
             apart(column_i, count_i, column_q, count_q),
             "a column grows whose sum is not back")
  `LF_ASSERT(DrainedOnceBack, !(read_grant_o && valid_q) || read_bank_i != bank_q ||
             apart(read_column_i, 3'd1, column_q, count_q),
             "a column is drained whose sum is not back")
  `LF_ASSERT(DrainedOnceDone, !(read_grant_o && valid_i) || read_bank_i != bank_i ||
             apart(read_column_i, 3'd1, column_i, count_i),
             "a column is drained as it grows")
endmodule
