// Factors per output channel: rows of 5 words, of Lanes factors of 5 bytes each. A row is read word by word,
// each in the cycle after it is asked for.
module lf_factors
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16
) (
  input  logic               clk_i,
  input  logic               write_i,
  input  logic [10:0]        write_word_i,
  input  logic [Lanes*8-1:0] write_data_i,
  input  logic               read_i,
  input  logic [7:0]         read_row_i,
  input  logic [2:0]         read_part_i,  // 0 to 4
  output logic [Lanes*8-1:0] read_data_o
);
  lf_memory #(
    .Width(Lanes * 8),
    .Depth(FactorRows * FactorBytes)
  ) u_words (
    .clk_i,
    .read_i,
    .read_address_i ({1'b0, read_row_i, 2'b00} + 11'(read_row_i) + 11'(read_part_i)),
    .read_data_o,
    .write_i,
    .write_address_i(write_word_i),
    .write_parts_i  (1'b1),
    .write_data_i
  );
endmodule
