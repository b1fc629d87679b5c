// Walks over the words of a transfer on chip: rows (slots of a ring), blocks of channels, columns.
`include "lf_assert.svh"

module lf_words
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,    // take job_i; not active, or in the cycle of the last step
  input  job_t               job_i,
  input  logic               step_i,     // go on to the next word
  output logic               active_o,
  output logic [19:0]        word_o,
  output logic               outside_o,  // the word is behind the end of its space
  output logic [6:0]         lanes_o,    // bytes of the word that exist in DRAM
  output logic [Lanes*8-1:0] mask_o,     // ones at those bytes
  output space_e             space_o,
  output logic               row_end_o,  // last word of the row
  output logic               last_o      // last word of the transfer
);
  job_t                  job_q;
  logic                  active_q;
  logic                  tail_q;     // in the last block
  logic [Lanes*8-1:0]    mask_q;
  logic [PlaceWidth-1:0] word_q;
  logic [PlaceWidth-1:0] block_q;    // first word of the block
  logic [PlaceWidth-1:0] slot_q;     // first word of the slot
  logic [11:0]           slots_q;    // slots up to the end of the ring, this one too
  logic [19:0]           columns_q;  // left, this one too
  logic [9:0]            blocks_q;   // left, this one too
  logic [11:0]           rows_q;     // left, this one too
  logic [PlaceWidth-1:0] limit_q;    // words of the space

  logic                  block_end;
  logic [PlaceWidth-1:0] next_block;
  logic [PlaceWidth-1:0] next_slot;
  logic                  unused;

  // Ones at the bytes of `lanes` lanes.
  function automatic logic [Lanes*8-1:0] mask(logic [6:0] lanes);
    logic [Lanes*8-1:0] found;
    for (int unsigned lane = 0; lane < Lanes; lane++) found[lane*8+:8] = {8{7'(lane) < lanes}};
    return found;
  endfunction

  assign block_end  = columns_q == 20'd1;
  assign next_block = block_q + PlaceWidth'(job_q.block_words);
  assign next_slot  = slots_q == 12'd1 ? job_q.base : slot_q + PlaceWidth'(job_q.slot_words);
  assign active_o   = active_q;
  assign word_o     = word_q[19:0];
  assign outside_o  = word_q >= limit_q;
  assign lanes_o    = tail_q ? job_q.tail : 7'(Lanes);
  assign mask_o     = mask_q;
  assign space_o    = job_q.space;
  assign row_end_o  = block_end && tail_q;
  assign last_o     = row_end_o && rows_q == 12'd1;
  // Of the job, this unit needs only where it lies on chip.
  assign unused = ^{job_q.class_, job_q.beat, job_q.row_beats, job_q.block_beats, job_q.merge_blocks,
                    job_q.merge_rows, job_q.full_beats, job_q.tail_beats, job_q.line_beats,
                    job_q.first_beats, job_q.rest_bytes, job_q.rows, job_q.slot, job_q.place};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      job_q     <= '0;
      active_q  <= 1'b0;
      tail_q    <= 1'b0;
      mask_q    <= '0;
      word_q    <= '0;
      block_q   <= '0;
      slot_q    <= '0;
      slots_q   <= '0;
      columns_q <= '0;
      blocks_q  <= '0;
      rows_q    <= '0;
      limit_q   <= '0;
    end else if (start_i) begin
      job_q     <= job_i;
      active_q  <= 1'b1;
      tail_q    <= job_i.blocks == 10'd1;
      mask_q    <= mask(job_i.blocks == 10'd1 ? job_i.tail : 7'(Lanes));
      word_q    <= job_i.place;
      block_q   <= job_i.place;
      slot_q    <= job_i.place;
      slots_q   <= job_i.slots - job_i.slot;
      columns_q <= job_i.columns;
      blocks_q  <= job_i.blocks;
      rows_q    <= job_i.rows;
      unique case (job_i.space)
        SpaceFactors: limit_q <= PlaceWidth'(FactorRows * FactorBytes);
        SpaceTables:  limit_q <= PlaceWidth'(Tables * TableBytes / Lanes);
        default:      limit_q <= PlaceWidth'(BufferWords);
      endcase
    end else if (step_i) begin
      columns_q <= columns_q - 20'd1;
      word_q    <= word_q + PlaceWidth'(1);
      if (block_end) begin
        columns_q <= job_q.columns;
        if (!tail_q) begin
          word_q   <= next_block;
          block_q  <= next_block;
          blocks_q <= blocks_q - 10'd1;
          tail_q   <= blocks_q == 10'd2;
          mask_q   <= mask(blocks_q == 10'd2 ? job_q.tail : 7'(Lanes));
        end else begin
          word_q   <= next_slot;
          block_q  <= next_slot;
          slot_q   <= next_slot;
          slots_q  <= slots_q == 12'd1 ? job_q.slots : slots_q - 12'd1;
          blocks_q <= job_q.blocks;
          tail_q   <= job_q.blocks == 10'd1;
          mask_q   <= mask(job_q.blocks == 10'd1 ? job_q.tail : 7'(Lanes));
          rows_q   <= rows_q - 12'd1;
          active_q <= rows_q != 12'd1;
        end
      end
    end
  end

  `LF_ASSERT(StartedInTurn, !start_i || !active_q || (step_i && last_o),
             "a transfer begins before the words of the one before are moved")
  `LF_ASSERT(StepOfOne, !step_i || active_q, "a word is moved that is no transfer's")
endmodule
