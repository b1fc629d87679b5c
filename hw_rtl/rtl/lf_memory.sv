// A memory of one read port and one write port. Read data appear in the next cycle, until the next read.
// Reading a word in the cycle in which it is written gives the old word. A word is written in parts of `Part`
// bits, those that `write_parts` names.
module lf_memory #(
  parameter int unsigned Width = 128,  // bits
  parameter int unsigned Depth = 1024,  // words
  parameter int unsigned Part = Width,  // bits that are written together
  localparam int unsigned AddressBits = $clog2(Depth)
) (
  input  logic                   clk_i,
  input  logic                   read_i,
  input  logic [AddressBits-1:0] read_address_i,
  output logic [Width-1:0]       read_data_o,
  input  logic                   write_i,
  input  logic [AddressBits-1:0] write_address_i,
  input  logic [Width/Part-1:0]  write_parts_i,
  input  logic [Width-1:0]       write_data_i
);
  logic [Width-1:0] words_q [Depth];

  always_ff @(posedge clk_i) begin
    for (int unsigned k = 0; k < Width / Part; k++) begin
      if (write_i && write_parts_i[k])
        words_q[write_address_i][k*Part +: Part] <= write_data_i[k*Part +: Part];
    end
  end

  always_ff @(posedge clk_i) begin
    if (read_i) read_data_o <= words_q[read_address_i];
  end
endmodule
