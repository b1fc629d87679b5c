// Tables of 256 bytes: a memory of all, and two that are in use, which every lane may look into at once.
// `prepare` brings a table into one of the two places, in 256 / Lanes + 1 cycles, or none if it is there.
//
// Each lane has a memory of its own for both: what is brought in goes to those of all lanes, a word a cycle.
`include "lf_assert.svh"

module lf_tables
  import lf_isa_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  localparam int unsigned Words = TableBytes / Lanes,
  localparam int unsigned PartBits = $clog2(Words),
  localparam int unsigned LaneBits = $clog2(Lanes),
  localparam int unsigned WordBitsOfAll = $clog2(Tables * Words)
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  logic                     write_i,
  input  logic [WordBitsOfAll-1:0] write_word_i,
  input  logic [Lanes*8-1:0]       write_data_i,
  // The table that place `place_i` is to hold: level, until it is ready.
  input  logic                     prepare_i,
  input  logic                     place_i,
  input  logic [5:0]               table_i,
  output logic                     ready_o,
  // Bytes through a table, in the same cycle.
  input  logic                     look_i,
  input  logic                     look_place_i,
  input  logic [Lanes*8-1:0]       look_bytes_i,
  output logic [Lanes*8-1:0]       bytes_o
);
  logic [1:0]          valid_q;
  logic [5:0]          table_q [2];
  logic                reading_q, copying_q, place_q;
  logic [PartBits-1:0] part_q, copied_q;
  logic [Lanes*8-1:0]  word;

  assign ready_o = valid_q[place_i] && table_q[place_i] == table_i && !reading_q && !copying_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= '0;
      table_q <= '{default: '0};
      reading_q <= 1'b0;
      copying_q <= 1'b0;
      place_q <= 1'b0;
      part_q <= '0;
      copied_q <= '0;
    end else begin
      copying_q <= reading_q;
      copied_q <= part_q;
      if (reading_q) begin
        part_q <= part_q + 1'b1;
        reading_q <= part_q != '1;
      end else if (prepare_i && !ready_o && !copying_q) begin
        reading_q <= 1'b1;
        place_q <= place_i;
        table_q[place_i] <= table_i;
        valid_q[place_i] <= 1'b1;
      end
      if (write_i) begin
        for (int unsigned p = 0; p < 2; p++)
          if (table_q[p] == write_word_i[WordBitsOfAll-1:PartBits]) valid_q[p] <= 1'b0;
      end
    end
  end

  lf_memory #(
    .Width(Lanes * 8),
    .Depth(Tables * Words)
  ) u_words (
    .clk_i,
    .read_i         (reading_q),
    .read_address_i ({table_q[place_q], part_q}),
    .read_data_o    (word),
    .write_i,
    .write_address_i(write_word_i),
    .write_parts_i  (1'b1),
    .write_data_i
  );

  for (genvar l = 0; l < Lanes; l++) begin : gen_lane
    logic [Lanes*8-1:0] words_q [2 * Words];

    always_ff @(posedge clk_i) begin
      if (copying_q) words_q[{place_q, copied_q}] <= word;
    end

    always_comb begin
      bytes_o[l*8 +: 8] = look_bytes_i[l*8 +: 8];
      if (look_i) begin
        bytes_o[l*8 +: 8] = words_q[{look_place_i, look_bytes_i[l*8 + LaneBits +: PartBits]}]
            [{look_bytes_i[l*8 +: LaneBits], 3'd0} +: 8];
      end
    end
  end

  `LF_ASSERT(NotLookedInto, !(look_i && copying_q) || look_place_i != place_q,
             "a table is looked into as it is brought in")
endmodule
