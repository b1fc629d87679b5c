// A memory of one read port and one write port. What is read appears in the next cycle and stays until the next read.
// Reading a word in the cycle in which it is written gives the old word.
module lf_memory #(
  parameter int unsigned Width = 128,  // bits
  parameter int unsigned Depth = 1024,  // words
  localparam int unsigned AddressBits = $clog2(Depth)
) (
  input  logic                   clk_i,
  input  logic                   read_i,
  input  logic [AddressBits-1:0] read_address_i,
  output logic [Width-1:0]       read_data_o,
  input  logic                   write_i,
  input  logic [AddressBits-1:0] write_address_i,
  input  logic [Width-1:0]       write_data_i
);
  logic [Width-1:0] words_q [Depth];

  always_ff @(posedge clk_i) begin
    if (write_i) words_q[write_address_i] <= write_data_i;
  end

  always_ff @(posedge clk_i) begin
    if (read_i) read_data_o <= words_q[read_address_i];
  end
endmodule
