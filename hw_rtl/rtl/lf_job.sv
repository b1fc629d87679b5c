// Prepares the transfer at the head of a queue: checks its fields, and finds where its rows begin in DRAM and on chip.
//
// It works on the head before the head may start, so that the time it takes is hidden.
module lf_job
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter bit          Store = 1'b0  // of the queue of stores
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  // Head of the queue. It stays until take_i.
  input  logic        valid_i,
  input  transfer_t   transfer_i,
  input  entry_t      entry_i,
  // The job. ready_o stays high until take_i, which comes together with the end of the head.
  output logic        ready_o,
  output logic        bad_o,    // level: the head has a field that no transfer may have
  output job_t        job_o,
  input  logic        take_i
);
  localparam int unsigned WordBeats = Lanes / BeatBytes;  // beats of a word
  localparam int unsigned FactorWords = FactorBytes;  // words of a row of factors
  localparam int unsigned TableWords = TableBytes / Lanes;  // words of a table

  typedef enum logic [2:0] {
    Idle,
    Sum,
    Ask,
    Answer,
    Total,
    Place,
    Ready
  } state_e;

  state_e                 state_d, state_q;
  logic [33:0]            body_beats_q;  // of all blocks of a row but the last
  logic [26:0]            tail_bytes_q;
  logic [35:0]            row_offset_q;  // beats from row 0 to the first row
  logic [29:0]            block_offset_q;  // beats from block 0 to the first block
  logic [29:0]            chip_offset_q;   // words from block 0 to the first block
  logic [33:0]            line_beats_q;
  logic [BeatWidth-1:0]   beat_q;
  logic [LengthWidth-1:0] total_beats_q;
  logic [11:0]            slot_q;
  logic [31:0]            slot_place_q;
  logic [PlaceWidth-1:0]  base_q;
  logic                   merge_blocks_q;
  job_t                   job_q;

  logic [9:0]  chip_block;
  logic [9:0]  dram_block;
  logic        outside;  // the row's number is not that of its slot
  logic        modulo_ready;
  logic        modulo_valid;
  logic [11:0] remainder;
  logic [23:0] full_beats;
  logic [23:0] tail_beats;
  logic        unused;

  assign chip_block = Store ? entry_i.from_block : entry_i.to_block;
  assign dram_block = Store ? entry_i.to_block : entry_i.from_block;
  assign outside    = entry_i.slot >= {4'd0, transfer_i.slots};
  assign full_beats = 24'(transfer_i.columns) * 24'(WordBeats);
  assign tail_beats = 24'((tail_bytes_q + 27'd15) >> 4);
  assign unused     = ^{transfer_i.reserved, transfer_i.kind, entry_i.descriptor, entry_i.factor, entry_i.wait_valid, entry_i.target};

  assign bad_o = valid_i && (entry_i.count == '0 || transfer_i.columns == '0 || transfer_i.blocks == '0 || transfer_i.slots == '0 ||
                             transfer_i.tail == '0 || transfer_i.tail > 7'(Lanes) || transfer_i.class_ > ClassInstruction ||
                             transfer_i.space > SpaceTables || (Store && transfer_i.space != SpaceBuffer) || transfer_i.dram[3:0] != '0);

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Idle:    if (valid_i && !bad_o) state_d = Sum;
      Sum:     state_d = outside ? Ask : Total;
      Ask:     if (modulo_ready) state_d = Answer;
      Answer:  if (modulo_valid) state_d = Total;
      Total:   state_d = Place;
      Place:   state_d = Ready;
      Ready:   if (take_i) state_d = Idle;
      default: state_d = Idle;
    endcase
  end

  lf_modulo u_modulo (
    .clk_i,
    .rst_ni,
    .valid_i    (state_q == Ask),
    .value_i    (entry_i.slot),
    .divisor_i  (transfer_i.slots),
    .ready_o    (modulo_ready),
    .valid_o    (modulo_valid),
    .remainder_o(remainder)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q        <= Idle;
      body_beats_q   <= '0;
      tail_bytes_q   <= '0;
      row_offset_q   <= '0;
      block_offset_q <= '0;
      chip_offset_q  <= '0;
      line_beats_q   <= '0;
      beat_q         <= '0;
      total_beats_q  <= '0;
      slot_q         <= '0;
      slot_place_q   <= '0;
      base_q         <= '0;
      merge_blocks_q <= 1'b0;
      job_q          <= '0;
    end else begin
      state_q <= state_d;
      unique case (state_q)
        Idle: if (valid_i) begin
          body_beats_q   <= 34'(transfer_i.blocks - 10'd1) * 34'(full_beats);
          tail_bytes_q   <= 27'(transfer_i.columns) * 27'(transfer_i.tail);
          row_offset_q   <= 36'(entry_i.row) * 36'(transfer_i.row_beats);
          block_offset_q <= 30'(dram_block) * 30'(transfer_i.block_beats);
          chip_offset_q  <= 30'(chip_block) * 30'(transfer_i.block_words);
          slot_q         <= entry_i.slot[11:0];
        end
        Sum: begin
          line_beats_q <= body_beats_q + 34'(tail_beats);
          beat_q       <= BeatWidth'(transfer_i.dram[31:4]) + BeatWidth'(row_offset_q) + BeatWidth'(block_offset_q);
          unique case (space_e'(transfer_i.space))
            SpaceFactors: base_q <= PlaceWidth'(transfer_i.base) * PlaceWidth'(FactorWords) + PlaceWidth'(chip_offset_q);
            SpaceTables:  base_q <= PlaceWidth'(transfer_i.base) * PlaceWidth'(TableWords) + PlaceWidth'(chip_offset_q);
            default:      base_q <= PlaceWidth'(transfer_i.base) + PlaceWidth'(chip_offset_q);
          endcase
        end
        Answer: slot_q <= remainder;
        Total: begin
          total_beats_q  <= LengthWidth'(line_beats_q) * LengthWidth'(entry_i.count);
          slot_place_q   <= 32'(slot_q) * 32'(transfer_i.slot_words);
          merge_blocks_q <= transfer_i.blocks == 10'd1 || 24'(transfer_i.block_beats) == full_beats;
        end
        Place: begin
          job_q <= '{
            class_:       class_e'(transfer_i.class_),
            space:        space_e'(transfer_i.space),
            rows:         entry_i.count,
            blocks:       transfer_i.blocks,
            columns:      transfer_i.columns,
            tail:         transfer_i.tail,
            beat:         beat_q,
            row_beats:    transfer_i.row_beats,
            block_beats:  transfer_i.block_beats,
            merge_blocks: merge_blocks_q,
            merge_rows:   merge_blocks_q && (entry_i.count == 12'd1 || 34'(transfer_i.row_beats) == line_beats_q),
            full_beats:   full_beats,
            tail_beats:   tail_beats,
            line_beats:   line_beats_q,
            total_beats:  total_beats_q,
            rest_bytes:   tail_bytes_q[3:0] == '0 ? 5'd16 : 5'(tail_bytes_q[3:0]),
            slots:        transfer_i.slots,
            slot:         slot_q,
            base:         base_q,
            place:        base_q + PlaceWidth'(slot_place_q),
            slot_words:   transfer_i.slot_words,
            block_words:  transfer_i.block_words
          };
        end
        default: ;
      endcase
    end
  end

  assign ready_o = state_q == Ready;
  assign job_o   = job_q;
endmodule
